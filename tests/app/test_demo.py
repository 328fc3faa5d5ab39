"""The parts of the demo: the plan, the dump with its votes, and the web server."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from webtext.app.demo import plan as plans
from webtext.app.demo import run as demo
from webtext.app.demo import web
from webtext.app.demo.pages import NAMES, PageSection, article, blocks, listing, render_pages, thread
from webtext.app.demo.plan import CANARY, HOSTS, Plan, Planted, make_plan, write_dump
from webtext.app.demo.run import summary, web_running
from webtext.base.errors import MachineError
from webtext.base.parts.identifiers import link_id, split_of
from webtext.base.run import Run
from webtext.base.web.urls import canonical_url
from webtext.clean.extract.body import Body, ExtractSettings, extract_body
from webtext.crawl.links.karma import KarmaJudge
from webtext.crawl.links.settings import LinkSettings
from webtext.crawl.links.sources.lines import Unreadable
from webtext.crawl.links.sources.reddit import RedditDump

MODULES = ("argparse", "json", "logging", "os", "pathlib", "queue", "random", "unittest.mock")
PAGE = "<html><body><p>{} is the page, and the words of the page are the text.</p></body></html>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated pages with real names."""
    folder = tmp_path_factory.mktemp("web")
    names = [*MODULES, *plans.RESERVED]
    for name in names:
        (folder / f"{name}.html").write_text(PAGE.format(name))
    (folder / NAMES).write_text(json.dumps(names))
    return folder


@pytest.fixture(scope="module")
def port() -> int:
    with socket.create_server((HOSTS[0], 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def plan(port: int) -> Plan:
    return make_plan([*MODULES, *plans.RESERVED], port)


def planted(plan: Plan, label: str) -> Planted:
    return next(page for page in plan.planted if page.label == label)


def test_the_plan_is_a_function_of_names_and_port(plan: Plan) -> None:
    assert make_plan([*MODULES, *plans.RESERVED], plan.port) == plan
    assert make_plan([*MODULES, *plans.RESERVED], plan.port + 1) != plan


def test_every_url_is_canonical_and_planned_once(plan: Plan) -> None:
    urls = [page.url for page in plan.all]
    assert len(set(urls)) == len(urls)
    assert [canonical_url(url) for url in urls] == urls
    assert len({page.label for page in plan.all}) == len(urls)


def test_the_pages_are_spread_over_eight_hosts_and_reserved_ones_are_not_plain(plan: Plan) -> None:
    assert {urlsplit(page.url).hostname for page in plan.plain} == set(HOSTS)
    assert [page.page for page in plan.plain] == list(MODULES)
    assert not set(plans.RESERVED) & {page.page for page in plan.plain}
    assert plans.RESERVED[2] == planted(plan, "held-out page with a canary").page


@pytest.mark.parametrize("port", [8000, 8001, 8002, 8420, 40_000])
def test_a_copy_is_held_out_exactly_when_its_original_is_and_has_less_karma(port: int) -> None:
    plan = make_plan([*MODULES, *plans.RESERVED], port)
    originals = {page.page: page for page in plan.plain}
    copies = [page for page in plan.planted if page.content in ("copy", "edited")]
    assert len(copies) == 3
    for copy in copies:
        original = originals[copy.page]
        assert split_of(link_id(copy.url)) == split_of(link_id(original.url))
        assert copy.score < original.score
    redirect = planted(plan, "redirect to a page that is a link too")  # it gives the page its vote, and so its split
    assert redirect.location is not None
    assert split_of(link_id(redirect.url)) == split_of(link_id(redirect.location))
    assert split_of(link_id(planted(plan, "held-out page with a canary").url)) == "validation"


def test_the_dump_reads_as_the_plan_voted(plan: Plan, tmp_path: Path) -> None:
    """Every plain page with an even number has a second post; bad lines and odd rows are extra."""
    path = tmp_path / "RS_2017-01.zst"
    write_dump(plan, path)
    source = RedditDump()
    with open(path, "rb") as file:
        records = [source.parse(record) if isinstance(record, bytes) else record for _, record in source.records(file)]
    second_posts = (len(plan.plain) + 1) // 2
    assert len(records) == len(plan.all) + second_posts + len(plans.BAD_LINES) + len(plans.ODD_ROWS)
    posts = [post for record in records if not isinstance(record, Unreadable) for post in record]
    assert len(records) - len(posts) == len(plans.BAD_LINES)
    verdicts = [KarmaJudge.of(LinkSettings())(post) for post in posts]
    expected = {page.url for page in plan.all if page.stage != "links"}
    assert {url for url, _ in verdicts if url} == expected
    planned = Counter(page.reason for page in plan.planted if page.stage == "links")
    assert Counter(reason for _, reason in verdicts if reason) == planned + Counter(["null_score", "null_url"])
    best = {url: post.score for (url, _), post in zip(verdicts, posts, strict=True) if url and post.score != 4}
    assert best == {page.url: page.score for page in plan.all if page.stage != "links" and page.score != 4}


def test_the_same_plan_gives_the_same_dump(plan: Plan, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_dump(plan, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


Layout = Callable[[str, Sequence[PageSection], Iterable[str]], str]
Get = Callable[[str], tuple[int, dict[str, str], bytes]]


@pytest.fixture(scope="module")
def get(pages: Path, port: int) -> Iterator[Get]:
    """Request one URL from the demo's web, without following redirects."""
    servers = web.serve(pages, port)

    def ask(url: str) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=300)
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""))
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    yield ask
    with ThreadPoolExecutor(len(servers)) as pool:  # each takes up to half a second to stop
        list(pool.map(lambda server: (server.shutdown(), server.server_close()), servers))


def text(answer: tuple[int, dict[str, str], bytes]) -> str:
    status, headers, body = answer
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    return gzip.decompress(body).decode()


def test_plain_pages_and_copies_are_served_on_their_hosts(plan: Plan, get: Get) -> None:
    for page in plan.plain:
        assert text(get(page.url)) == PAGE.format(page.page)
    assert text(get(planted(plan, "mirror of a page").url)) == PAGE.format("argparse")
    elsewhere = plan.plain[0].url.replace("127.0.0.1", "127.0.0.2")
    assert get(elsewhere)[0] == 404


def test_an_edited_copy_differs_in_a_word_of_a_hundred(pages: Path, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / NAMES).write_text((pages / NAMES).read_text())
    (tmp_path / "unittest.mock.html").write_text("the " * 300)
    site = web._Site(tmp_path, plan.port)
    sent: list[str] = []
    handler = type("Handler", (web._Handler,), {"site": site, "__init__": lambda self: None})()
    handler._send_html = sent.append
    handler._answer_edited(planted(plan, "lightly edited copy"))
    assert Counter(sent[0].split()) == {"the": 297, "this": 3}


def test_each_hostile_page_answers_as_planted(plan: Plan, get: Get) -> None:
    status, headers, _ = get(planted(plan, "redirect to a page nobody linked").url)
    assert (status, headers["Location"]) == (302, planted(plan, "redirect to a page nobody linked").location)
    assert text(get(headers["Location"])) == PAGE.format(plans.RESERVED[0])
    assert get(planted(plan, "redirect into a private network").url)[1]["Location"] == "http://10.0.0.1/"
    assert get(planted(plan, "404").url)[0] == 404
    assert get(planted(plan, "PDF").url)[2].startswith(b"%PDF-")
    assert CANARY in text(get(planted(plan, "held-out page with a canary").url))
    assert text(get(planted(plan, "100,000 nested elements").url)).count("<div>") == 100_000
    assert "Bäcker" in text(get(planted(plan, "German page").url))
    assert get(planted(plan, "HTML-escaped URL").url)[0] == 302
    assert get(f"http://{HOSTS[0]}:{plan.port}/nowhere")[0] == 404
    assert get(f"http://{HOSTS[0]}:{plan.port}/unlinked/nothing.html")[0] == 404
    assert get(f"http://{HOSTS[0]}:{plan.port}/unlinked/../names.json.html")[0] == 404


def test_robots_txt_disallows_a_folder_on_one_host(plan: Plan, get: Get) -> None:
    bodies = {host: get(f"http://{host}:{plan.port}/robots.txt")[2].decode() for host in HOSTS}
    assert bodies == {host: plans.robots_txt(host) for host in HOSTS}
    assert [host for host, body in bodies.items() if "/private/" in body] == [HOSTS[1]]
    assert urlsplit(planted(plan, "forbidden by robots.txt").url).hostname == HOSTS[1]


def test_the_endless_page_is_bounded_and_survives_a_reader_that_disconnects(
    plan: Plan, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "ENDLESS_BYTES", 1 << 20)
    url = planted(plan, "page that never ends").url
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=300) as reader:
        reader.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        assert reader.recv(100)
    status, headers, body = get(url)
    assert (status, "Content-Length" in headers) == (200, False)
    assert (1 << 20) - 65_536 < len(body) <= 1 << 20


def test_a_port_that_is_taken_is_a_short_error(pages: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((HOSTS[3], 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MachineError, match=f"could not listen on .* port {port}"), web_running(pages, port):
            pass
    assert "Traceback" not in capfd.readouterr().err


def test_pages_are_rendered_from_the_documentation_of_modules(tmp_path: Path) -> None:
    """`keyword` has too little text for a page."""
    names = render_pages(tmp_path, ["argparse", "keyword", "no_such_module_at_all"])
    assert [name for name in names if not name.startswith("topic-")] == ["argparse"]
    assert set(plans.RESERVED) < set(names)
    assert json.loads((tmp_path / NAMES).read_text()) == names
    assert "ArgumentParser" in (tmp_path / "argparse.html").read_text()
    assert "<p>" in (tmp_path / f"{plans.RESERVED[2]}.html").read_text()  # where the canary is put


def test_a_long_module_has_several_pages_and_code_is_a_fifth_of_their_text_at_most(tmp_path: Path) -> None:
    names = [name for name in render_pages(tmp_path, ["builtins", "json", "no_such_module"]) if "topic-" not in name]
    assert names == ["builtins", "builtins-2", "builtins-3", "builtins-4", "json"]
    for name in names:
        page = (tmp_path / f"{name}.html").read_text()
        code = sum(map(len, re.findall(r"<pre>.*?</pre>", page, re.S)))
        assert code <= sum(map(len, re.findall(r"<(?:p|li|h\d)>.*?</", page, re.S))) / 4


@pytest.mark.slow
def test_one_python_always_renders_the_same_pages(tmp_path: Path) -> None:
    """The order of sets depends on the hash seed, and the addresses of objects differ between processes."""
    command = [sys.executable, "-m", "webtext.app.demo.pages"]
    for seed in ("1", "2"):
        subprocess.run([*command, str(tmp_path / seed)], check=True, env=os.environ | {"PYTHONHASHSEED": seed})
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()} for seed in ("1", "2"))
    assert len(first) > 200
    assert first == second


TOPIC = """\
A queue hands things on in the order in which they came, and nobody has to wait for a turn that never comes again.

Sizes
=====

The size of a queue is the number of things in it, and an empty one has none. Three words matter here:

* the *head*, which is served next, and
* the tail, where ``put()`` adds whatever comes.

+--------+-------------------+
| name   | what it does with |
|        | the head          |
|========|===================|
| peek   | shows it          |
+--------+-------------------+

   >>> queue.put(1)

   A paragraph that belongs to an item is set in, and it is prose like every other one on this page."""
FURNITURE = (
    "Newsletter", "Subscribe", "Sign in", "cookies", "rights reserved", "Tweet", "Quote Reply", "Blame", "Posts:",
    "quietbyte", "saved my afternoon",
)  # fmt: skip


def test_plain_text_becomes_headings_paragraphs_items_rows_and_code() -> None:
    html = blocks(TOPIC)
    assert "<h3>Sizes</h3>" in html
    assert "<li>the <em>head</em>, which is served next, and</li>" in html
    assert "<li>the tail, where <code>put()</code> adds whatever comes.</li>" in html
    assert "<li>name – what it does with the head</li>\n<li>peek – shows it</li>" in html
    assert "<pre><code>   &gt;&gt;&gt; queue.put(1)</code></pre>" in html
    assert "<p>A paragraph that belongs to an item is set in" in html
    assert "|" not in html


@pytest.mark.parametrize("layout", [article, thread, listing])
def test_the_extractor_keeps_the_text_of_a_page_and_leaves_out_what_is_around_it(layout: Layout) -> None:
    long = "It is said that every one of the readers waits for the end, and that the end is near by now."
    sections = [
        PageSection("", TOPIC),
        PageSection("Queue.get", long),
        PageSection("Queue.put", TOPIC.upper(), "def put(): pass"),
    ]
    body = extract_body(layout("queue", sections, ["stack"]).encode(), "text/html; charset=utf-8", ExtractSettings())
    assert isinstance(body, Body)
    assert "hands things on in the order" in body.text
    assert long in body.text
    assert ("def put(): pass" in body.text) is (layout is listing)
    assert [words for words in FURNITURE if words in body.text] == []


def test_an_unexpected_outcome_is_printed_with_the_expected_one(plan: Plan) -> None:
    from webtext.app.chain import BuildLayout

    missed = {"label": "404", "expected": "pages: http_404", "found": "corpus", "met": False}
    evaluation = {
        "tokens": 9,
        "stride": 8,
        "context": 8,
        "dtype": "float32",
        "perplexity": 2.0,
        "sample": "It says\nthis.",
    }
    result = {"outcomes": [missed], "evaluation": evaluation, "report": "r.html", "build": "b", "seconds": 3.2}
    lines = summary(result, BuildLayout("b")).splitlines()
    at = next(i for i, line in enumerate(lines) if "MISSED" in line)
    assert lines[at].split() == ["MISSED", "404", "corpus"]
    assert lines[at + 1].split(maxsplit=1) == ["expected", "pages: http_404"]
    assert "  | It says" in lines


def test_a_demo_s_folder_may_have_any_letters_and_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own `html.py` in the working directory isn't imported as the standard library's."""
    (folder := tmp_path / 'a "🦓"').mkdir()
    (folder / "html.py").write_text("raise SystemExit(5)")
    monkeypatch.chdir(folder)
    monkeypatch.delattr(demo, "web_running")
    with pytest.raises(NameError, match="web_running"):  # by then the pages are made and the configuration is read
        demo.run_demo(str(folder), Run.quiet(), modules=["argparse", "logging", "unittest.mock"])
    assert tomllib.loads((folder / "build.toml").read_text())["build"]["out"] == f"{folder}/build"
    with web_running(folder / "web", demo._port(folder)):
        pass


def test_two_demos_have_the_same_addresses_unless_the_port_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free ports are simulated, because a demo of another test may have taken the port just now."""
    find, free = demo._free_port, list[int | None]()
    monkeypatch.setattr(demo, "_free_port", lambda port: free.pop(0) if port == demo.PREFERRED_PORT else find(port))
    for name in ("one", "other", "third"):
        (tmp_path / name).mkdir()
    free[:] = [demo.PREFERRED_PORT, demo.PREFERRED_PORT, None]
    assert demo._port(tmp_path / "one") == demo._port(tmp_path / "other") == demo.PREFERRED_PORT
    third = demo._port(tmp_path / "third")
    assert third != demo.PREFERRED_PORT
    assert demo._port(tmp_path / "third") == third
    monkeypatch.setattr(demo, "_free_port", lambda _: None)
    assert demo._port(tmp_path) == demo.PREFERRED_PORT
    with socket.socket() as taken:
        taken.bind((HOSTS[3], 0))
        assert find(taken.getsockname()[1]) is None
