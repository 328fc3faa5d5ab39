"""What a build's exit code and messages say of failed records, and of stages that keep nothing."""

from __future__ import annotations

import dataclasses
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from webtext.app.config import classes_of_other_verbs, settings_classes
from webtext.app.main import run
from webtext.base.config import SECTIONS, place, subsections
from webtext.base.parts.counts import Counts
from webtext.base.parts.outcomes import UNSETTLED, unsettled
from webtext.base.parts.partset import MANIFEST

TOPICS = ("with", "for", "try", "class", "import", "numbers", "truth", "exprlists")
GERMAN = "Wer eine Sammlung von Texten aufbaut, muss zuerst entscheiden, welche Seiten er lesen will und warum. " * 12


class Pages(BaseHTTPRequestHandler):
    """/TOPIC is an article, /deutsch/N a German one, /short/N some words, /gone/N a 404, /busy/N a 503."""

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        from pydoc_data.topics import topics

        kind, _, number = self.path.strip("/").partition("/")
        status = {"gone": 404, "busy": 503, "robots.txt": 404}.get(kind, 200)
        texts = {"deutsch": f"<p>{number} {GERMAN}</p>", "short": f"<p>It says number {number} and no more.</p>"}
        text = texts.get(kind) or "".join(
            f"<p>{escape(said)}</p>" for said in topics.get(kind, "nothing").split("\n\n")
        )
        body = f"<html><head><title>{kind}</title></head><body><article>{text}</article></body></html>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_hints_lead_from_a_list_of_urls_to_its_pages(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    urls, links = tmp_path / "urls.txt", str(tmp_path / "links")
    urls.write_text(f"http://127.0.0.1:{port}/with\n")
    collect = ["crawl", "links", str(urls), "--out", links]
    assert run(collect) == 3
    assert "--default-score, --default-created" in capsys.readouterr().err
    assert run([*collect, "--default-score", "3", "--default-created", "2017-06-01"]) == 0
    run(["crawl", "fetch", links, "--out", str(tmp_path / "pages")])
    assert "--allow-address HOST:PORT" in (said := capsys.readouterr().err)
    assert "needs another --out" in said
    fetch = ["crawl", "fetch", links, "--out", str(tmp_path / "another"), "--allow-address", f"127.0.0.1:{port}"]
    assert run(fetch) == 0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def build(folder: Path, port: int, *paths: str, allowed: bool = True, **sections: str) -> int:
    """Build what these pages give; `sections` are more lines of TOML by section, '_' for '.'."""
    urls = [path if path.startswith("http") else f"http://127.0.0.1:{port}/{path}" for path in paths]
    posts = [
        {"id": f"p{number}", "url": url, "score": 5, "created_utc": 1_483_228_800 + number, "is_self": False}
        for number, url in enumerate(urls)
    ]
    (folder / "RS_2017-01").write_text("".join(json.dumps(post) + "\n" for post in posts))
    allow = f'allow_address = ["127.0.0.0/8:{port}"]\n' if allowed else ""
    rest = "\n".join(f"[{name.replace('_', '.')}]\n{lines}" for name, lines in sections.items())
    (folder / "build.toml").write_text(
        f'[build]\nlinks = ["{folder}/RS_2017-01"]\nout = "{folder}/build"\n'
        f'[crawl.fetch]\ncontact = "test@example.org"\ndelay = 0.0\nretries = 0\n{allow}'
        f"[tokenizer]\nvocab_size = 300\n{rest}\n"
    )
    return run(["build", str(folder / "build.toml"), "--workers", "1", "--json"])


@pytest.mark.slow
def test_a_build_with_a_host_that_did_not_answer_is_finished_and_exits_with_1(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    nobody = f"http://127.0.0.2:{dead}/page"
    assert build(tmp_path, port, *TOPICS, "busy/1", nobody, crawl_links="parts = 1") == 1
    error = capsys.readouterr().err
    assert "another run could change" in error
    assert "1 http_503" in error
    assert f"webtext build {tmp_path}/build.toml --workers 1 --json" in error
    assert len(error[error.index("error:") :].splitlines()) <= 3
    assert (tmp_path / "build" / "tokens" / MANIFEST).is_file()
    assert run(["build", str(tmp_path / "build.toml"), "--quiet"]) == 1
    assert run(["crawl", "fetch", f"{tmp_path}/build/links", "--out", f"{tmp_path}/build/pages",
                "--config", f"{tmp_path}/build.toml", "--quiet"]) == 1  # fmt: skip


def test_dead_links_are_outcomes_and_exit_with_0(port: int, tmp_path: Path) -> None:
    assert build(tmp_path, port, *TOPICS, "gone/1", "gone/2", "short/1", "deutsch/1") == 0


def test_a_damaged_record_exits_with_1_and_the_others_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(number: int) -> bytes:
        page = f"<html><body><p>The page number {number} says so.</p></body></html>".encode()
        http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page)
        head = (
            f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://127.0.0.1/{number}\r\n"
            f"WARC-Date: 2017-01-01T00:00:00Z\r\nWARC-Record-ID: <urn:uuid:{number:032}>\r\n"
            f"Content-Type: application/http;msgtype=response\r\nContent-Length: {len(http)}\r\n\r\n"
        )
        return gzip.compress(head.encode() + http + b"\r\n\r\n", mtime=0)

    records = [record(number) for number in range(3)]
    (tmp_path / "whole.warc.gz").write_bytes(b"".join(records))
    (tmp_path / "cut.warc.gz").write_bytes(b"".join(records)[:-150])
    assert run(["clean", "extract", f"{tmp_path}/whole.warc.gz", "--out", f"{tmp_path}/a", "--quiet"]) == 0
    assert run(["clean", "extract", f"{tmp_path}/cut.warc.gz", "--out", f"{tmp_path}/b", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["documents"] == 2
    assert "download the damaged files again" in captured.err


@pytest.mark.parametrize(
    ("paths", "options", "message"),
    [
        (TOPICS, {"allowed": False}, "--allow-address"),
        pytest.param(("deutsch/1", "deutsch/2"), {}, "--language", marks=pytest.mark.slow),
        (("short/1", "short/2"), {}, "too_few_words=N"),
        (("https://en.wikipedia.org/wiki/WebText",), {}, "'wikipedia'"),
        (TOPICS, {"crawl_links": "min_karma = 9"}, "--min-karma"),
    ],
    ids=["address", "language", "words", "links", "karma"],
)
def test_a_build_stops_where_nothing_is_kept_and_names_the_likely_cause(
    port: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    paths: tuple[str, ...],
    options: dict[str, str],
    message: str,
) -> None:
    assert build(tmp_path, port, *paths, **options) == 3  # type: ignore[arg-type]
    error = capsys.readouterr().err
    assert "error: kept 0 of " in error
    assert message in error
    assert not (tmp_path / "build" / "tokenizer").exists()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("RS_2017-01", b"<!doctype html>\n<html><body>\n<p>not found</p>\n</body></html>\n", "invalid_json"),
        ("RS_2017-01", bytes(range(256)) * 9, "invalid_json"),
        ("RS_2017-01", b'{"a": 1}\n', "contains none: 1 no_post_id (the first: neither id nor name)"),
        ("links.txt", b"<!doctype html>\n<html><body>\n", "not_http"),
        ("links.txt", b"\xff\xfe\x00\x01\n" * 9, "not_utf8"),
        ("links.jsonl", b"<!doctype html>\n", "invalid_json"),
    ],
)
def test_a_file_that_is_not_a_dump_is_an_error_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    voted = ["--default-score", "5", "--default-created", "2017-01-01"]
    assert run(["crawl", "links", f"{tmp_path}/{name}", "--out", f"{tmp_path}/links", "--quiet", *voted]) == 3
    error = capsys.readouterr().err
    assert f"'{tmp_path}/{name}' was read as" in error
    assert reason in error
    assert ".csv, .tsv, .jsonl, .parquet" in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["crawl", "links", "x", "--out", "y"],
        ["clean", "run", "x", "--out", "y"],
        ["tokenizer", "train", "x", "--out", "y.json"],
        ["shards", "pack", "x", "--tokenizer", "t", "--out", "y"],
        ["train", "run", "x", "--out", "y"],
    ],
)
def test_an_unknown_section_is_an_error_for_every_verb_with_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    (tmp_path / "c.toml").write_text("[crawl.lnks]\nmin_karma = 3\n")
    assert run([*arguments, "--config", f"{tmp_path}/c.toml"]) == 2
    error = capsys.readouterr().err
    assert "unknown section [crawl.lnks]" in error
    assert "did you mean 'crawl.links'?" in error


def test_the_known_sections_are_those_of_all_verbs() -> None:
    known = settings_classes() | classes_of_other_verbs()
    inner = [place(name, subsection) for name, cls in known.items() for subsection in subsections(cls)]
    assert sorted(SECTIONS) == sorted([*known, *inner])
    assert all(map(dataclasses.is_dataclass, known.values()))


def test_reasons_that_a_rerun_could_change_are_counted_wherever_they_stand() -> None:
    counts = Counts(9, 1, {"robots_unreachable": 2, "too_few_words": 1}, {"http_404": 2, "damaged_record": 3})
    assert unsettled(counts) == {"damaged_record": 3, "robots_unreachable": 2}
    assert not {"http_404", "dns_failed", "too_deep", "invalid_json"} & UNSETTLED.keys()
