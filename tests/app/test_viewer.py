"""The viewer: only its owner gets in, what it shows is what the build has, and no text of a build is markup."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import duckdb
import pytest

from webtext.app.main import run
from webtext.app.reports.report import make_report
from webtext.app.reports.report_html import report_page
from webtext.app.view import search as search_module
from webtext.app.view.search import PAGE_ROWS, Query, Search
from webtext.app.view.server import Viewer
from webtext.base.errors import InputError, MachineError
from webtext.base.parts.partset import PartSet
from webtext.tokenizer import Tokenizer

from .conftest import IDS, SCRIPT, TEXTS, URLS, write_set

HOSTILE = f"{SCRIPT}\x1b[31m\u202e" + "x" * 1_000_000


class Client:
    """What a browser would send and get."""

    def __init__(self, server: Viewer) -> None:
        self.server = server
        self.cookie = f"{server.cookie}={server.token}"

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        try:
            connection.request(
                method, path, headers={"Cookie": self.cookie} | {k.replace("_", "-"): v for k, v in headers.items()}
            )
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def search(self, **values: str) -> str:
        status, _, text = self.ask(f"/search?{urlencode(values)}")
        assert status == 200, text
        return text

    def found(self, **values: str) -> list[str]:
        """The ids of the documents on a page of results, in order."""
        return re.findall(r'<li><a href="/document\?id=([^"]+)"', self.search(**values))


def serving(root: Path) -> Iterator[Client]:
    with Viewer(str(root)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Client(server)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def client(written_build: Path) -> Iterator[Client]:
    yield from serving(written_build)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """120 documents in two parts, of which every third was dropped; the first is hostile."""
    root = tmp_path_factory.mktemp("many")
    rows = [
        {
            "id": f"{n:032x}",
            "url": "javascript:alert(1)" if n == 0 else f"http://d{n % 4}.example/{n}",
            "title": HOSTILE if n == 0 else f"Page {n}",
            "text": HOSTILE if n == 0 else f"Words of page {n}. {'Needle' if n in (70, 110) else ''}",
            "domain": f"d{n % 4}.example",
            "language": "de" if n % 5 == 0 else "en",
            "karma": None if n == 0 else n * 7 % 120,
            "date": 1_500_000_000 + n * 86_400,
            "split": "train",
        }
        for n in range(120)
    ]
    write_set(root / "documents", "documents", [rows[:60], rows[60:]])
    write_set(root / "corpus", "corpus", [[row for n, row in enumerate(rows) if n % 3]])
    gone = [{"id": row["id"], "url": row["url"], "stage": "filter", "reason": f"reason_{n % 2}", "value": 1.0, "threshold": 2.0, "text_start": row["text"][:200]} for n, row in enumerate(rows) if n % 3 == 0]  # fmt: skip # noqa: E501
    write_set(root / "dropped", "dropped", [gone])
    yield from serving(root)


def test_the_printed_address_gives_a_cookie_and_leaves_the_address_bar_without_the_token(client: Client) -> None:
    status, headers, _ = client.ask(f"/search?set=corpus&token={client.server.token}", Cookie="")
    assert (status, headers["Location"]) == (303, "/search?set=corpus")
    assert headers["Set-Cookie"] == f"{client.cookie}; HttpOnly; SameSite=Strict; Path=/"
    status, headers, text = client.ask("/")
    assert status == 200
    assert client.server.token not in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "script-src 'self';" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": ""},
        {"Cookie": "webtext-1=x; a"},
        {"Host": "rebound.example"},
        {"Origin": "http://other.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/search", "/style.css", "/nowhere"])
def test_nobody_else_gets_anything(client: Client, headers: dict[str, str], path: str) -> None:
    status, _, text = client.ask(path, **headers)
    assert status == 403
    assert "kept.example" not in text


def test_a_wrong_token_and_a_redirect_elsewhere_are_refused(client: Client) -> None:
    assert client.ask("/?token=wrong", Cookie="")[0] == 403
    assert client.ask("/?token=%C3%A9", Cookie="")[0] == 403
    assert client.ask(f"//evil.example/?token={client.server.token}")[1]["Location"] == "/evil.example/"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(client: Client, method: str) -> None:
    assert client.ask("/", method)[0] == 501


def test_the_first_page_is_the_report_whose_reasons_lead_to_the_records(client: Client) -> None:
    text = client.ask("/")[2]
    written = report_page(make_report(client.server.root))
    assert re.findall("<h2.*?</h2>", text) == re.findall("<h2.*?</h2>", written) != []
    assert '<a href="#funnel">The funnel</a>' in text
    links = [unescape(each) for each in re.findall(r'href="(/search[?][^"]*)"', text)]
    assert {re.sub("&reason=.*", "", link) for link in links} == {"/search?set=dropped", "/search?set=pages"}
    assert "/search?" not in written
    for link in links:
        status, _, found = client.ask(link)
        assert status == 200
        assert re.search(r"page 1, \d+ records? in all", found), link


def test_the_report_is_made_again_when_the_build_has_changed(written_build: Path, tmp_path: Path) -> None:
    build = shutil.copytree(written_build, tmp_path / "build")
    for client in serving(build):
        before = client.ask("/")[2]
        assert client.ask("/")[2] == before
        with open(build / "model" / "metrics.jsonl", "a") as metrics:
            metrics.write('{"step": 2000, "loss": 1.25}\n')
        assert client.ask("/")[2] != before


def test_results_are_counted_and_show_where_the_text_is_and_what_became_of_the_document(many: Client) -> None:
    assert "page 1, 30 records in all" in many.search(domain="d3.example")
    text = many.search(text="needle", set="documents")
    assert '<p class="soft">…Words of page 70. <mark>Needle</mark>…</p>' in text
    assert re.findall(r"kept|<b>dropped: <bdi>reason_\d</bdi>", text)[-2:] == ["kept", "kept"]
    assert "<b>dropped: <bdi>reason_1</bdi></b>" in many.search(text="words of page 99", set="documents")


def test_links_are_searched_by_address_and_outcome(client: Client) -> None:
    text = client.search(set="pages", reason="robots_disallowed")
    assert re.findall(r'href="/document[?]id=([^"]+)"', text) == [quote(URLS["forbidden"], safe="")]
    assert "<bdi>refused</bdi>: <bdi>robots_disallowed</bdi>" in text
    assert "<mark>forbidden</mark>" in client.search(set="pages", text="FORBIDDEN")


def test_filters_find_what_a_loop_over_the_records_finds(many: Client) -> None:
    def ids(test: Any) -> list[str]:
        ranked = sorted((n for n in range(120) if test(n)), key=lambda n: (-(n * 7 % 120) if n else 1, f"{n:032x}"))
        return [f"{n:032x}" for n in ranked[:PAGE_ROWS]]

    assert many.found(domain="d3.example") == ids(lambda n: n % 4 == 3)
    assert many.found(language="de", min_karma="50") == ids(lambda n: n % 5 == 0 and n and n * 7 % 120 >= 50)
    assert many.found(set="corpus", domain="d1.example") == ids(lambda n: n % 3 and n % 4 == 1)
    assert sorted(many.found(reason="reason_1")) == sorted(ids(lambda n: n % 3 == 0 and n % 2))
    assert sorted(many.found(set="dropped", reason="reason_1", language="de")) == [
        f"{n:032x}" for n in (15, 45, 75, 105)
    ]
    assert many.found(since="2017-07-24", until="2017-07-24") == [f"{10:032x}"]
    assert many.found(text="nEEDLE") == [f"{70:032x}", f"{110:032x}"]
    assert many.found(text="words of page 99", set="dropped") == [f"{99:032x}"]
    assert many.found(domain="' OR 1=1 --") == many.found(text="%") == []


def test_pages_follow_each_other_without_gap_or_repeat(many: Client) -> None:
    for values in ({}, {"text": "words"}):
        seen = [many.found(page=str(page), **values) for page in (1, 2, 3, 4)]
        assert [len(each) for each in seen[:2]] == [PAGE_ROWS, PAGE_ROWS]
        assert len({each for some in seen for each in some}) == 120 - bool(values)
        assert seen[3] == []
        assert 'rel="next"' in many.search(page="2", **values)
        assert 'rel="next"' not in many.search(page="3", **values)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("set=secrets", "unknown set 'secrets'"),
        ("min_karma=many", "min_karma is 'many'"),
        ("since=yesterday", "since is 'yesterday'"),
        ("until=9999-12-31T99", "until is"),
        ("page=one", "page is 'one'"),
        ("set=pages&language=en", "pages have no language"),
    ],
)
def test_a_bad_value_is_named(client: Client, query: str, said: str) -> None:
    status, _, text = client.ask(f"/search?{query}")
    assert status == 400
    assert said in unescape(text)


def test_a_document_shows_why_it_was_dropped_beside_its_votes_rules_and_text(client: Client) -> None:
    status, _, text = client.ask(f"/document?id={IDS['short']}")
    assert status == 200
    assert "dropped: <bdi>too_few_words</bdi>" in text
    assert "p-short" in text
    assert f"<bdi>{escape(TEXTS['short'])}</bdi>" in text
    text = client.ask(f"/document?id={IDS['copy']}")[2]
    assert f'href="/document?id={IDS["kept"]}"' in text
    assert client.ask(f"/document?id={quote(URLS['forbidden'], safe='')}")[0] == 200
    assert client.ask("/document?id=unknown")[0] == 404


def test_hostile_titles_addresses_and_texts_stay_text(many: Client, client: Client) -> None:
    text = many.ask(f"/document?id={0:032x}")[2]
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31m\\u202e" in text
    assert 'href="javascript' not in text
    assert len(text) < 500_000
    for path in ("/", f"/document?id={IDS['kept']}", "/search"):
        assert "<script>alert" not in client.ask(path)[2]


def test_a_build_that_has_only_links_says_what_is_missing(written_build: Path, tmp_path: Path) -> None:
    shutil.copytree(written_build / "links", tmp_path / "links")
    for client in serving(tmp_path):
        assert "Not made yet: pages, documents, corpus, tokens" in client.ask("/")[2]
        assert client.ask("/search")[0] == 404
        assert "Nothing has been trained" in client.ask("/training")[2]


def test_a_folder_without_a_build_and_a_taken_port_are_errors(tmp_path: Path, client: Client) -> None:
    assert run(["view", str(tmp_path)]) == 3
    with pytest.raises(InputError, match="there is no build"):
        Viewer(str(tmp_path))
    with pytest.raises(MachineError, match="cannot be used"):
        Viewer(client.server.root, client.server.server_port)


def test_a_set_of_a_newer_format_is_named_not_shown(written_build: Path, tmp_path: Path) -> None:
    shutil.copytree(written_build, tmp_path / "build")
    manifest = tmp_path / "build/documents/manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format_version": 99}))
    for client in serving(tmp_path / "build"):
        status, _, text = client.ask("/search")
        assert status == 404
        assert "documents" in text


def test_a_damaged_file_is_said_in_a_sentence(written_build: Path, tmp_path: Path) -> None:
    shutil.copytree(written_build, tmp_path / "build")
    part = next((tmp_path / "build/documents").glob("*.parquet"))
    part.write_bytes(b"PAR1" + b"\0" * (part.stat().st_size - 4))
    for client in serving(tmp_path / "build"):
        status, _, text = client.ask("/search")
        assert status == 404
        assert "inspect set --verify" in text


def test_documents_in_another_folder_are_searched_too(written_build: Path, tmp_path: Path) -> None:
    shutil.copytree(written_build, tmp_path / "whole")
    whole = PartSet.open(str(tmp_path / "whole/documents"))
    write_set(tmp_path / "build/links", "links", [[]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "build_documents", lambda layout: whole)
        assert len(list(Search(str(tmp_path / "build")).rows(Query()))) == whole.records


def test_queries_read_and_write_no_file(written_build: Path, tmp_path: Path) -> None:
    build = shutil.copytree(written_build, tmp_path / "build")
    search = Search(str(build))
    part = next((build / "documents").glob("*.parquet"))
    for query in (f"SELECT * FROM '{part}'", "INSTALL httpfs", "SET enable_external_access = true"):
        with pytest.raises(duckdb.Error):
            search._connection.execute(query)
    for query in (f"COPY (SELECT 1) TO '{build}/new.csv'", f"COPY (SELECT 1) TO '{part}'", f"ATTACH '{build}/new.db'"):
        with pytest.raises(duckdb.Error):
            search._connection.execute(query)
    assert not list(build.glob("new.*"))


@pytest.mark.parametrize(("name", "match"), [("run[1]", "run1"), ("run*", "run2"), ("r?n", "run")])
def test_a_folder_is_searched_under_any_name(written_build: Path, tmp_path: Path, name: str, match: str) -> None:
    build = shutil.copytree(written_build, tmp_path / name)
    for part in shutil.copytree(written_build, tmp_path / match).rglob("*.parquet"):
        part.write_bytes(b"of another build")
    for query in (Query(), Query(text="words"), Query(reason="too_few_words")):
        assert [row["id"] for row in Search(str(build)).rows(query)]


def test_altered_bytes_are_noticed_before_they_are_shown(written_build: Path, tmp_path: Path) -> None:
    build = shutil.copytree(written_build, tmp_path / "build")
    part = next((build / "documents").glob("*.parquet"))
    part.write_bytes(part.read_bytes().replace(b"parquet-cpp", b"parquet-cqq"))  # still a Parquet file of that size
    with pytest.raises(InputError, match=r"part-0000\d\.parquet' was altered: SHA-256 .* the manifest says"):
        list(Search(str(build)).rows(Query()))


def raw(client: Client, *lines: str) -> socket.socket:
    """A connection on which a request with the cookie has been sent."""
    connection = socket.create_connection(("127.0.0.1", client.server.server_port), timeout=60)
    host = f"Host: 127.0.0.1:{client.server.server_port}"
    connection.sendall("\r\n".join([lines[0], host, f"Cookie: {client.cookie}", *lines[1:]]).encode())
    return connection


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/search?" + "&".join(f"f{n}=1" for n in range(60)), 400),
        ("http://[", 400),
        ("http://[::1", 400),
        ("http://a]/search", 400),
        ("/document?id=http://[", 404),
        ("/document?id=%00%ED%A0%80", 404),
        ("/search?page=-9&min_karma=999999999999&since=0001-01-01", 200),
    ],
)
def test_every_address_has_an_answer(client: Client, capfd: Any, target: str, status: int) -> None:
    with raw(client, f"GET {target} HTTP/1.1", "", "") as connection, connection.makefile() as answer:
        text = answer.read()
    assert text.startswith(f"HTTP/1.1 {status} ")
    assert "Traceback" not in text + capfd.readouterr().err


@pytest.mark.parametrize(("start", "status"), [([], 500), (["<p>the start</p>"], 200)])
def test_a_defect_is_a_page_also_after_its_first_piece(
    client: Client, monkeypatch: pytest.MonkeyPatch, capfd: Any, start: list[str], status: int
) -> None:
    def answer(*_: Any) -> tuple[str, Iterator[str]]:
        return "text/html", (1 / 0 if n else piece for n, piece in enumerate([*start, *"ab"], 1 - len(start)))  # type: ignore

    monkeypatch.setattr(client.server, "answer", answer)
    found, _, text = client.ask("/")
    assert found == status
    assert ("the start" in text, "ZeroDivisionError" in text, "Traceback" in text) == (bool(start), True, False)
    assert capfd.readouterr().err == ""


def test_a_browser_that_leaves_is_no_error(many: Client, capfd: Any) -> None:
    for target in ("/", "/search?text=words", "/nowhere", "/style.css"):
        connection = raw(many, f"GET {target} HTTP/1.1", "", "")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes by a reset
        connection.close()
    assert many.ask("/")[0] == 200
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("field", ["Content-Length: 1000", "Transfer-Encoding: chunked", "Content-Length : 1000"])
def test_a_body_is_not_another_request(client: Client, field: str) -> None:
    inner = f"GET /document?id={IDS['kept']} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with raw(client, "GET / HTTP/1.1", field, "", inner) as connection, connection.makefile("rb") as answer:
        assert answer.read().count(b"HTTP/1.1 ") == 1


def test_a_search_that_takes_too_long_is_ended(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_: Search, cursor: Any, *__: Any) -> list[Any]:
        return list(cursor.execute("SELECT count(*) FROM range(1000000000000) WHERE random() > 2").fetchall())

    monkeypatch.setattr(search_module, "MAX_SECONDS", 0.1)
    monkeypatch.setattr(Search, "_select", endless)
    status, _, text = client.ask("/search")
    assert status == 404
    assert "took longer than 0.1 s" in text


def test_a_query_is_its_address() -> None:
    query = Query(set="dropped", text="a & b", page="3")
    assert query.url() == "/search?set=dropped&text=a+%26+b&page=1"
    assert Query.of({"text": " a & b ", "set": "dropped", "unknown": "x", "page": "3"}) == query


def test_curves_are_drawn_and_reload_by_themselves(client: Client) -> None:
    status, headers, text = client.ask("/training/curves")
    assert status == 200
    assert headers["Refresh"] == "5"
    assert text.count("<svg") >= 2
    assert "<script" not in text


@pytest.mark.parametrize(
    "row", ['{"step": 1e9, "loss": 1}', '{"step": 1, "loss": []}', '{"step": 1, "loss": NaN}', "[]"]
)
def test_odd_metrics_are_said_in_a_sentence(written_build: Path, tmp_path: Path, capfd: Any, row: str) -> None:
    build = shutil.copytree(written_build, tmp_path / "build")
    (build / "model" / "metrics.jsonl").write_text(f"{row}\n")
    for client in serving(build):
        status, _, text = client.ask("/training/curves")
        assert status == 404
        assert "metrics.jsonl:1&#39; is damaged" in text
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_keys_reach_everything_and_nothing_is_wrong(many: Client, client: Client, scheme: str) -> None:
    if not Path("/usr/bin/chromium").exists():
        pytest.skip("needs chromium at '/usr/bin/chromium'")
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(many.server.url)

        def check() -> None:
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            found = Axe().run(page).response["violations"]
            assert not [each["id"] for each in found if each["impact"] in ("serious", "critical")]

        check()
        page.keyboard.press("s")
        page.wait_for_url("**/search")
        assert (
            page.evaluate("new Set([...document.querySelectorAll('input,select')].map(e => e.offsetHeight)).size") == 1
        )
        check()
        page.keyboard.press("/")
        page.keyboard.type("needle")
        page.keyboard.press("Enter")
        page.wait_for_url("**text=needle**")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/document?id={110:032x}")
        check()
        page.keyboard.press("b")
        page.wait_for_url("**text=needle**")
        page.keyboard.press("?")
        assert page.locator("#keys").evaluate("keys => keys.open")
        page.goto(page.url.partition("/search")[0] + f"/document?id={0:032x}")
        check()
        assert page.evaluate("document.title").startswith("<script>")
        page.goto(client.server.url)
        page.goto(f"{page.url}document?id={IDS['copy']}")
        assert page.locator("td:first-child bdi", has_text="exact_duplicate").bounding_box()["height"] < 30  # unbroken
        browser.close()
    assert wrong == []


def test_the_tokens_of_a_document_are_boxes_with_their_ids(written_build: Path, tmp_path: Path) -> None:
    shutil.copytree(written_build, tmp_path / "build")
    (tmp_path / "build/tokenizer").mkdir()
    Tokenizer.train(["to be"], vocab_size=257, special_tokens=[]).save(tmp_path / "build/tokenizer/tokenizer.json")
    for client in serving(tmp_path / "build"):
        text = client.ask(f"/document?id={IDS['short']}")[2]
        assert '<div class="tokens"><code title="id 51">T</code><code title="id 78">o</code>' in text
        assert '<code title="id 256">be</code><code title="id 27">&lt;</code>' in text
