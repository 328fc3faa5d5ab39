"""Another karma threshold on a finished build: from dump to tokens, over pages that a server on loopback answers."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from webtext.app.main import run
from webtext.base.parts.identifiers import link_id, split_of
from webtext.base.parts.partset import PartSet

sys.path.insert(0, str(Path(__file__).parents[1] / "clean"))

from set_contents import contents, rows  # noqa: E402
from warc_files import article, page  # noqa: E402

KARMA = {"/two": [2], "/three": [3], "/four": [1, 4], "/five": [5, 2], "/six": [6], "/moved": [5], "/gone": [9]}
DAY = 86_400


class Web:
    """Answers each path of KARMA with an article of its own, `/moved` with a redirect, `/gone` with 404."""

    def __init__(self) -> None:
        web = self
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path not in ("/robots.txt", "/.well-known/tdmrep.json"):
                    web.asked.append(self.path)
                found = self.path in KARMA and self.path != "/gone"
                body = page(article(list(KARMA).index(self.path) + 1, 60)) if found else b""
                self.send_response(302 if self.path == "/moved" else 200 if found else 404)
                if self.path == "/moved":
                    self.send_header("Location", "/three")
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        while split_of(link_id(self.url("/four"))) != "train":  # one test keeps this page alone, for the tokenizer
            self.server.server_close()
            self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.server_port}{path}"

    def write_dump(self, path: Path) -> str:
        base = {"subreddit": "books", "is_self": False, "over_18": False}
        posts = [
            base | {"id": f"{i}x{j}", "url": self.url(url), "score": score,
                    "created_utc": 1_400_000_000 + i * DAY}
            for i, (url, scores) in enumerate(KARMA.items()) for j, score in enumerate(scores)
        ]  # fmt: skip
        path.write_text("".join(json.dumps(post) + "\n" for post in posts))
        return str(path)


@contextlib.contextmanager
def serving() -> Iterator[Web]:
    served = Web()
    yield served
    served.server.shutdown()
    served.server.server_close()
    served.thread.join()


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as served:
        yield served


def build(web: Web, folder: Path, *overrides: str) -> int:
    """`webtext build` into `folder`; its config is beside it."""
    config = folder.with_suffix(".toml")
    dump = web.write_dump(folder.with_name("RS_2014-05"))
    config.write_text(
        f"[build]\nlinks = [{json.dumps(dump)}]\nout = {json.dumps(str(folder))}\n"
        f'[crawl.fetch]\nallow_address = ["127.0.0.1:{web.server.server_port}"]\ndelay = 0.0\nretries = 0\n'
        '[clean.rules]\nrule = ["too_few_words=10"]\n[clean.language]\nlanguage = ["all"]\n[tokenizer]\nvocab_size = 300\n'
    )
    options = [option for each in overrides for option in ("--set", each)]
    return run(["build", str(config), "--workers", "1", "--quiet", *options])


def corpus(folder: Path, *columns: str) -> dict[str, tuple[Any, ...]]:
    found = rows(PartSet.open(str(folder / "corpus"), "corpus"))
    return {row["url"].rpartition("/")[2]: tuple(row[column] for column in columns) for row in found}


@pytest.mark.slow
def test_a_threshold_of_the_view_is_raised_and_lowered_and_nothing_is_fetched_again(web: Web, tmp_path: Path) -> None:
    """All links are collected once. Every threshold gives the corpus of a build that never had another."""
    kept = {
        3: {"three", "four", "five", "six"},
        5: {"three", "five", "six"},
        2: {"two", "three", "four", "five", "six"},
    }
    for min_karma, names in kept.items():
        settings = ("crawl.links.min_karma=none", f"clean.votes.min_karma={min_karma}")
        assert build(web, tmp_path / "build", *settings) == 0
        assert set(corpus(tmp_path / "build")) == names
        asked = len(web.asked)
        assert build(web, tmp_path / f"fresh{min_karma}", *settings) == 0
        columns = ("text", "karma", "split", "link_ids", "posts")
        assert corpus(tmp_path / "build", *columns) == corpus(tmp_path / f"fresh{min_karma}", *columns)
        del web.asked[asked:]
    assert sorted(web.asked) == sorted(KARMA)  # /three by the redirect is not asked for twice
    assert [post["score"] for post in corpus(tmp_path / "build", "posts")["three"][0]] == [3, 5]


@pytest.mark.slow
def test_another_rule_for_links_keeps_the_pages_and_gives_the_corpus_of_a_fresh_build(web: Web, tmp_path: Path) -> None:
    for min_karma, fetched in ((3, {"/three", "/four", "/five", "/six", "/moved", "/gone"}), (5, set()), (2, {"/two"})):
        web.asked.clear()
        assert build(web, tmp_path / "build", f"crawl.links.min_karma={min_karma}") == 0
        assert set(web.asked) == fetched
        assert build(web, tmp_path / f"fresh{min_karma}", f"crawl.links.min_karma={min_karma}") == 0
        columns = ("text", "karma")
        assert corpus(tmp_path / "build", *columns) == corpus(tmp_path / f"fresh{min_karma}", *columns)
        if min_karma == 5:
            assert json.loads((tmp_path / "build/pages/run.json").read_text())["links_gone"] == 2
            dropped = PartSet.open(str(tmp_path / "build/dropped"), "dropped")
            assert dropped.records == 1  # /three has the vote of /moved
            before = contents(tmp_path / "build")
            assert build(web, tmp_path / "build", "crawl.links.min_karma=5") == 0
            assert {name for name in before if contents(tmp_path / "build")[name] != before[name]} <= {
                "report.json",
                "report.html",
            }
            assert run(["build", str(tmp_path / "build.toml"), "--dry-run", "--set", "crawl.links.min_karma=5"]) == 0


@pytest.mark.slow
def test_any_other_rule_for_links_gives_the_corpus_of_a_fresh_build(web: Web, tmp_path: Path) -> None:
    """Sums instead of single scores, then an earlier end: each drops pages that were fetched under the rule before."""
    sums = ("crawl.links.profile=openwebtext2", "crawl.links.min_karma=5")
    rules = {(): {"three", "four", "five", "six"}, sums: {"three", "four", "five", "six"}}
    rules |= {(*sums, "crawl.links.before=2014-05-16"): {"four"}}  # that of /four are from 15 May, the others later
    for number, (rule, names) in enumerate(rules.items()):
        assert build(web, tmp_path / "build", *rule) == 0
        assert build(web, tmp_path / f"fresh{number}", *rule) == 0
        assert set(corpus(tmp_path / "build")) == names
        assert corpus(tmp_path / "build", "text", "karma") == corpus(tmp_path / f"fresh{number}", "text", "karma")
    dropped = rows(PartSet.open(str(tmp_path / "build/dropped"), "dropped"))
    assert {(row["stage"], row["reason"]) for row in dropped} == {("votes", "link_not_collected")}
    kinds = [parent["kind"] for parent in PartSet.open(str(tmp_path / "build/corpus"), "corpus").manifest["parents"]]
    assert kinds == ["documents", "signals", "links"]


@pytest.mark.slow
def test_the_card_starts_at_the_votes_and_inspect_says_who_voted(
    web: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rule and blocklists are the links' recipe, the funnel goes from posts to corpus, and every step adds up."""
    (tmp_path / "mine|.txt").write_text("politics\nfunny\n")
    lists = f"crawl.links.subreddit_blocklist={json.dumps([str(tmp_path / 'mine|.txt')])}"
    votes = (lists, "clean.votes.min_karma=1", "clean.votes.communities=['-cats']")
    for min_karma in (3, 5):
        assert build(web, tmp_path / "build", f"crawl.links.min_karma={min_karma}", *votes) == 0
    card = (tmp_path / "build/corpus/README.md").read_text()
    links = card.split("## Links\n", 1)[1].split("\n## ", 1)[0]
    assert "- karma: a post counts if its score is at least 5\n" in links
    assert "- dates: posts made before 2018" in links
    assert "- links to Wikipedia and its mirrors: left out\n" in links
    assert "- blocklists of subreddits: mine\\|\\.txt (2 entries, no licence named, SHA-256 `" in links
    assert "- blocklists of domains: none" in links
    assert "- votes: a post with a score of at least 1\n" in card
    assert "not in them): `-cats`\n" in card
    posts = card.split("### posts → links\n", 1)[1].split("\n### ", 1)[0]
    assert "| 4 | kept |\n| 5 | dropped: `too_little_karma` |\n| **9** |" in posts
    assert "vote for 4 links. Pages of 2 more links were fetched by an earlier rule." in posts
    assert card.index("posts → links") < card.index("links → pages") < card.index("pages → documents")
    assert "| links | `" in card.split("## Digests\n", 1)[1]
    capsys.readouterr()
    assert run(["inspect", "doc", str(tmp_path / "build"), web.url("/four")]) == 0
    found = capsys.readouterr().out
    assert "ended in dropped: link_not_collected" in found
    assert "reddit 2x1 in r/books: 4 points" in found  # of the document: its link is no longer in the set
    (tmp_path / "build/links").rename(tmp_path / "elsewhere")
    assert run(["clean", "run", str(tmp_path / "build/pages"), "--out", str(tmp_path / "again"), "--quiet"]) == 0
    assert "is no longer at its recorded location" in (tmp_path / "again/corpus/README.md").read_text()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Web, Path]]:
    folder = tmp_path_factory.mktemp("finished") / "build"
    with serving() as web:
        assert build(web, folder, "crawl.links.min_karma=3") == 0
        yield web, folder


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("crawl.fetch.max_bytes=5000", "another `out` in [build]"),
        ("clean.remove.remove=['no-such-list']", "no-such-list"),
        ("clean.dedup.index=['no-such-index']", "no-such-index"),
        ("tokenizer.base=no-such-tokenizer.json", "no-such-tokenizer.json"),
    ],
)
def test_what_a_later_stage_refuses_is_found_before_the_links_are_written(
    setting: str, says: str, finished: tuple[Web, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    web, folder = finished
    before = contents(folder)
    assert build(web, folder, "crawl.links.min_karma=5", setting) == 3
    assert says in capsys.readouterr().err
    assert contents(folder) == before
