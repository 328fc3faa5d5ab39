"""Bodies that are mislabelled, incomplete, endless or bombs: stored as they came or counted as failed, not decoded."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from pathlib import Path
from typing import Any

import hostile_answers as hostile
import pytest
from hostile_answers import HEAD, answer

from webtext.base.archives.reader import read_responses
from webtext.base.storage import Folder
from webtext.base.web.content_coding import BodyError

pytestmark = pytest.mark.usefixtures("wire")

TEXT = b"<html>" + b"words " * 2000
RAW_DEFLATE = zlib.compressobj(wbits=-15)
PACKED: dict[str, tuple[bytes, str]] = {  # body as sent, Content-Encoding
    "deflate as zlib": (zlib.compress(TEXT), "deflate"),
    "deflate as the bare stream": (RAW_DEFLATE.compress(TEXT) + RAW_DEFLATE.flush(), "deflate"),
    "gzip twice": (gzip.compress(gzip.compress(TEXT)), "gzip, gzip"),
    "gzip that breaks off": (gzip.compress(TEXT)[:-20], "gzip"),
    "plain under a gzip label": (TEXT, "gzip"),
}


def test_compressed_bodies_are_stored_as_they_came_and_read_as_far_as_possible(outcomes: Any, tmp_path: Path) -> None:
    plan = {name: answer(body, f"Content-Encoding: {coding}") for name, (body, coding) in PACKED.items()}
    rows = outcomes(plan)
    assert {row["reason"] for row in rows.values()} == {None}
    read = {response.url: response for response in read_responses(Folder(tmp_path / "pages"), "part-00000.warc.gz")}
    for name, row in rows.items():
        body = read[row["final_url"]].body(1_000_000)
        assert TEXT.startswith(body[:5000])
        assert body == TEXT or name == "gzip that breaks off"


def test_bombs_are_stored_packed_and_their_extraction_stops_at_its_bound(outcomes: Any, tmp_path: Path) -> None:
    bombs = {
        "gzip": answer(hostile.gzip_bomb(), "Content-Encoding: gzip"),
        "gzip in gzip": answer(gzip.compress(hostile.gzip_bomb()), "Content-Encoding: gzip, gzip"),
        "brotli": answer(hostile.brotli_bomb(), "Content-Encoding: br"),
        "zstd": answer(hostile.zstd_bomb(), "Content-Encoding: zstd"),
        "100,000 empty members": answer(hostile.empty_gzip_members(), "Content-Encoding: gzip"),
        "an unknown coding": answer(b"?" * 1000, "Content-Encoding: rot13"),
    }
    rows = outcomes(bombs, max_bytes=3 * hostile.MiB)
    assert {row["reason"] for row in rows.values()} == {None}
    found = {}
    for response in read_responses(Folder(tmp_path / "pages"), "part-00000.warc.gz"):
        [name] = [name for name, row in rows.items() if row["final_url"] == response.url]
        try:
            found[name] = str(len(response.body(2 * hostile.MiB)))
        except BodyError as error:
            found[name] = error.reason
    assert found.pop("100,000 empty members") == "0"
    assert found.pop("an unknown coding") == "unknown_content_coding"
    assert found.pop("zstd") in ("body_too_large", "damaged_body"), "its window alone is above the bound"
    assert set(found.values()) == {"body_too_large"}


def test_bodies_that_never_end_are_cut(outcomes: Any) -> None:
    plan = {
        "endless": hostile.endless,
        "one line of a gigabyte": b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n<html>",
        "one huge chunk": hostile.huge_chunk,
    }
    rows = outcomes(plan, max_bytes=1_000_000)
    assert {row["reason"] for row in rows.values()} == {"too_large"}


@pytest.mark.parametrize(
    ("body", "reasons"),
    {
        "chunks of one byte": (hostile.tiny_chunks, {"timed_out", "too_large"}),
        "trailers": (hostile.endless_trailers, {"bad_response"}),
        "a chunk extension": (hostile.endless_chunk_extension, {"timed_out", "bad_response"}),
    }.values(),
)
def test_chunks_of_one_byte_and_endless_trailers_end_in_time(outcomes: Any, body: Any, reasons: set[str]) -> None:
    patience = {} if len(reasons) == 1 else hostile.IN_A_SECOND
    rows = outcomes({"page": body}, max_bytes=10_000_000, **patience)
    assert rows["page"]["reason"] in reasons


def test_endless_interim_answers_are_a_bad_response(outcomes: Any) -> None:
    rows = outcomes({"page": hostile.interim_flood})
    assert rows["page"]["reason"] == "bad_response"
    assert "interim" in rows["page"]["cause"]


def test_lengths_that_do_not_fit_are_never_guessed(outcomes: Any, bodies: Any, web: Any) -> None:
    smuggled = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 7\r\n\r\nforeign"
    plan = {
        "shorter than the body": HEAD + b"Content-Length: 6\r\n\r\n<html>" + smuggled,
        "longer than the body": hostile.short_body,
        "two": HEAD + b"Content-Length: 6\r\nContent-Length: 7\r\n\r\n<html>.",
        "beside chunks": HEAD + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n<html>\r\n0\r\n\r\n",
        "negative": HEAD + b"Content-Length: -1\r\n\r\n<html>",
        "huge": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n<html>",
        "a bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n6;\r\n<html>zz\r\n",
        "a chunk size beyond all bounds": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n<html>",
    }
    next_page = web.page("/next", "<html>own")
    rows = outcomes(plan | {"next": next_page})
    reasons = {name: row["reason"] for name, row in rows.items()}
    assert reasons.pop("shorter than the body") is reasons.pop("next") is None
    assert reasons.pop("longer than the body") == "connection_failed"
    assert set(reasons.values()) <= {"bad_response", "too_large"}
    stored = bodies()
    assert stored == {rows["shorter than the body"]["url"]: b"<html>", next_page: b"<html>own"}


def test_other_statuses_are_counted_by_their_number(outcomes: Any) -> None:
    lines = {
        "http_206": "206 Partial Content",
        "http_416": "416 Range Not Satisfiable",
        "http_999": "999 Go Away",
    }
    rows = outcomes({reason: answer(b"<html>a body", status=line) for reason, line in lines.items()})
    assert {name: row["reason"] for name, row in rows.items()} == {name: name for name in lines}
    without_body = {line: answer(b"<html>a body", status=line) for line in ("204 No Content", "304 Not Modified")}
    rows = outcomes(without_body, "without")  # a body that these statuses don't allow is not HTTP
    assert {row["reason"] for row in rows.values()} <= {"http_204", "http_304", "bad_response"}


def test_an_answer_that_is_not_http_is_a_bad_response(outcomes: Any) -> None:
    async def version_nine(writer: asyncio.StreamWriter) -> None:
        writer.write(b"<html>HTTP/0.9 had no head</html>")

    plan = {
        "HTTP/0.9": version_nine,
        "a status that is not a number": b"HTTP/1.1 2OO OK\r\n\r\n",
        "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
        "another protocol": b"220 mail.example ESMTP\r\n\r\n",
        "bytes": bytes(range(256)) * 10,
    }
    assert {row["reason"] for row in outcomes(plan).values()} == {"bad_response"}
