"""Hostile answers: bodies that are mislabelled, incomplete, endless or bombs, wasted time, odd headers, wrong types, opt-outs.

Bodies are stored as they came or counted as failed, not decoded. Every exchange ends at its deadline, or earlier if it is
too slow. Headers are bounded, and cookies are never kept.
"""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from pathlib import Path
from typing import Any

import hostile_answers as hostile
import pytest
from hostile_answers import HEAD, answer

from webtext.base.storage import Folder
from webtext.base.warc.reader import read_responses
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
        "gzip": answer(hostile.gzip_bomb(32), "Content-Encoding: gzip"),
        "gzip in gzip": answer(gzip.compress(hostile.gzip_bomb(32)), "Content-Encoding: gzip, gzip"),
        "brotli": answer(hostile.brotli_bomb(32), "Content-Encoding: br"),
        "zstd": answer(hostile.zstd_bomb(32), "Content-Encoding: zstd"),
        "100,000 empty members": answer(hostile.empty_gzip_members(), "Content-Encoding: gzip"),
    }
    rows = outcomes(bombs, max_bytes=3 * hostile.MiB)
    assert rows.pop("zstd")["reason"] == "bad_content_coding", "its window alone is above the bound"
    assert {row["reason"] for row in rows.values()} == {None}
    found = {}
    for response in read_responses(Folder(tmp_path / "pages"), "part-00000.warc.gz"):
        [name] = [name for name, row in rows.items() if row["final_url"] == response.url]
        try:
            found[name] = str(len(response.body(2 * hostile.MiB)))
        except BodyError as error:
            found[name] = error.reason
    assert found.pop("100,000 empty members") == "0"
    assert set(found.values()) == {"body_too_large"}


CODED: dict[str, tuple[bytes, str]] = {  # a body that clean can read, or that fetch doesn't take
    "utf-8": (TEXT, "utf-8"),
    "text/html in capitals": (TEXT, "Text/HTML"),
    "plain under br": (TEXT, "br"),
    "UTF-16 under binary": (TEXT.decode().encode("utf-16"), "binary"),
    "gzip, then none": (gzip.compress(TEXT), "gzip, none"),
    "!compress": (b"\x1f\x9d\x90" + TEXT, "compress"),
    "!another coding over none": (b"\x00\x01" * 500, "none"),
    "!broken gzip": (b"\x1f\x8b\x08" + TEXT, "gzip"),
}


def test_a_page_counts_as_fetched_if_and_only_if_its_coding_can_be_undone(outcomes: Any, tmp_path: Path) -> None:
    rows = outcomes({name: answer(body, f"Content-Encoding: {label}") for name, (body, label) in CODED.items()})
    for name, row in rows.items():
        assert row["reason"] == ("bad_content_coding" if name.startswith("!") else None), (name, row["cause"])
    read = [response.body(1_000_000) for response in read_responses(Folder(tmp_path / "pages"), "part-00000.warc.gz")]
    assert len(read) == 5
    assert set(read) == {TEXT, CODED["UTF-16 under binary"][0]}


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
    patience = {} if len(reasons) == 1 else {**hostile.IN_A_SECOND, "total_seconds": 0.3}
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
    assert reasons.pop("two") == "repeated_length"
    assert reasons.pop("beside chunks") == "length_beside_coding"
    assert set(reasons.values()) <= {"bad_response", "too_large"}
    stored = bodies()
    assert stored == {rows["shorter than the body"]["url"]: b"<html>", next_page: b"<html>own"}


def test_other_statuses_are_counted_by_their_number(outcomes: Any) -> None:
    lines = {"http_206": "206 Partial Content", "http_416": "416 Range Not Satisfiable", "http_999": "999 Go Away"}
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


# --- times ------------------------------------------------------------------------------------------------------------


def test_servers_that_never_finish_are_cut_off_at_the_deadline(outcomes: Any) -> None:
    """Without a deadline they would continue for ten minutes, or forever."""
    plan = {"never answers": hostile.silence, "drips headers": hostile.header_drip, "drips": hostile.body_drip}
    begun = time.monotonic()
    rows = outcomes(plan, **hostile.IN_A_SECOND)
    assert {row["reason"] for row in rows.values()} == {"timed_out"}
    assert time.monotonic() - begun < 120, "three deadlines of a second, and a minute for a busy machine to see each"


def test_a_body_below_the_minimum_rate_ends_before_the_deadline(outcomes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stalls(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 1000\r\n\r\n<html>")
        await asyncio.sleep(600)

    async def slow_but_steady(writer: asyncio.StreamWriter) -> None:
        """Send a body a hundred times faster than the minimum rate, so that a busy machine is fast enough."""
        writer.write(HEAD + b"Content-Length: 11000\r\n\r\n" + b"x" * 1000)
        for _ in range(10):
            await asyncio.sleep(0.1)
            writer.write(b"x" * 1000)
            await writer.drain()

    monkeypatch.setattr("webtext.crawl.fetch.client.body.RATE_SECONDS", 0.4)
    plan = {"drips": hostile.body_drip, "stalls": stalls, "slow but steady": slow_but_steady}
    rows = outcomes(plan, min_rate=100.0)
    assert [row["reason"] for row in rows.values()] == ["too_slow", "too_slow", None]
    assert rows["drips"]["cause"] == "fewer than 100 bytes per second"


def test_broken_connections_are_counted_as_failed(outcomes: Any) -> None:
    plan = {"after the headers": hostile.close_after_headers, "in a chunk": hostile.short_chunk}
    rows = outcomes(plan | {"reset in the body": hostile.reset})
    assert {row["reason"] for row in rows.values()} == {"connection_failed"}
    assert all(row["cause"] for row in rows.values())


# --- headers ----------------------------------------------------------------------------------------------------------


def test_headers_beyond_the_bounds_are_bad_responses(outcomes: Any) -> None:
    plan = {
        "a line of 50 MB": hostile.huge_header_line,
        "a million": hostile.million_headers,
        "10,000 cookies": HEAD + b"".join(b"Set-Cookie: c%d=1\r\n" % i for i in range(10_000)) + b"\r\n",
    }
    assert {row["reason"] for row in outcomes(plan).values()} == {"bad_response"}


CHUNKS = b"6\r\n<html>\r\n0\r\n\r\n"
REJECTED = {
    "repeated_length": [
        b"Content-Length: 6\r\nContent-Length: 6\r\n\r\n<html>",
        b"content-length: 6\r\nX: y\r\nCONTENT-LENGTH: 6\r\n\r\n<html>",
    ],
    "length_beside_coding": [
        b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
        b"transfer-encoding: chunked\r\nContent-Length: 16\r\n\r\n" + CHUNKS,
    ],
    "blank_before_colon": [b"X-Cache : hit\r\nContent-Length: 6\r\n\r\n<html>", b"Content-Length \t: 6\r\n\r\n<html>"],
    "invalid_header": [
        b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"what is this\r\nContent-Length: 0\r\n\r\n",
        b"Duplicate Content-Length: 6\r\n\r\n<html>",
    ],
}


def test_an_answer_that_breaks_a_rule_of_http_is_counted_by_the_rule(outcomes: Any) -> None:
    rows = outcomes({f"{reason} {i}": HEAD + rest for reason, sent in REJECTED.items() for i, rest in enumerate(sent)})
    for name, row in rows.items():
        assert row["reason"] == name.split()[0], row["cause"]


def test_odd_header_values_are_harmless(outcomes: Any, tmp_path: Path) -> None:
    plan = {
        "Latin-1 bytes": HEAD + b"X: caf\xe9\r\nContent-Length: 6\r\n\r\n<html>",
        "UTF-8 bytes": HEAD + "X: café\r\nContent-Length: 6\r\n\r\n<html>".encode(),
        "an empty one": HEAD + b"X:\r\nContent-Length: 6\r\n\r\n<html>",
    }
    rows = outcomes(plan)
    assert {row["reason"] for row in rows.values()} == {None}
    stored = b"".join(path.read_bytes() for path in (tmp_path / "pages").glob("*.warc.gz"))
    assert b"caf\xe9\r\n" in stored


def test_a_folded_header_is_refused_or_one_header(outcomes: Any) -> None:
    folded = b"HTTP/1.1 200 OK\r\nContent-Type: text/html;\r\n charset=utf-8\r\nContent-Length: 6\r\n\r\n<html>"
    rows = outcomes({"folded": folded, "folded location": b"HTTP/1.1 302 Found\r\nLocation: /a\r\n b\r\n\r\n"})
    assert rows["folded"]["reason"] in (None, "bad_response", "invalid_header")
    assert rows["folded location"]["outcome"] == "failed"


def test_cookies_are_never_sent_back(outcomes: Any, web: Any) -> None:
    cookies = [f"Set-Cookie: c{i}=1; Path=/" for i in range(100)]
    first, second = web.page("/first", "<html>", *cookies), web.page("/second")
    rows = outcomes({"first": first, "second": second, "other": answer(b"<html>", *cookies)})
    assert {row["reason"] for row in rows.values()} == {None}
    assert not any("cookie" in request.headers for request in web.requests)


# --- content ----------------------------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


def test_files_of_other_types_are_recognised_by_their_first_bytes(outcomes: Any) -> None:
    rows = outcomes(
        {
            "an image as HTML": answer(PNG),
            "a PDF as HTML": answer(b"%PDF-1.7 ..."),
            "a PDF without type": b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n%PDF-1.7 ...",
            "unknown data without type": b"HTTP/1.1 200 OK\r\nContent-Length: 304\r\n\r\n" + b"data" * 75 + bytes(4),
            "an image as an image": answer(PNG, "Content-Type: image/png"),
        }
    )
    assert {row["reason"] for row in rows.values()} == {"not_text"}
    assert rows["an image as HTML"]["cause"] == "begins as image/png"
    assert rows["an image as an image"]["cause"] == "Content-Type: image/png"


WORDS = "<html><meta charset=koi8-r>grüße, мир"


def test_pages_without_type_or_with_a_wrong_charset_are_stored_byte_for_byte(outcomes: Any, bodies: Any) -> None:
    pages = {
        "no type": (b"words \x1b(B in Japanese", None),
        "UTF-7": (WORDS.encode("utf-7"), "utf-7"),
        "UTF-16 without a mark": (WORDS.encode("utf-16-le"), "utf-16"),
        "a charset that is not so": (WORDS.encode(), "iso-8859-1"),
        "a charset that does not exist": (WORDS.encode(), "klingon"),
        "a byte order mark": (b"\xef\xbb\xbf" + WORDS.encode(), None),
    }
    plan: dict[str, Any] = {}
    for name, (body, charset) in pages.items():
        if name == "no type":
            plan[name] = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        else:
            plan[name] = answer(body, f"Content-Type: text/html; charset={charset}" if charset else "X: y")
    rows = outcomes(plan)
    assert {row["reason"] for row in rows.values()} == {None}
    stored = bodies()
    assert {name: stored[row["url"]] for name, row in rows.items()} == {name: body for name, (body, _) in pages.items()}


def test_opt_outs_in_headers_are_obeyed_and_recorded(outcomes: Any) -> None:
    plan = {
        "noindex_header": answer(b"<html>", "X-Robots-Tag: noindex"),
        "noai_header": answer(b"<html>", "X-Robots-Tag: noarchive, noai"),
        "tdm_reserved": answer(b"<html>", "TDM-Reservation: 1", "TDM-Policy: https://example.org/policy.json"),
        "content_signal_no_training": answer(b"<html>", "Content-Signal: search=yes, ai-train=no"),
    }
    rows = outcomes(plan)
    assert {name: row["reason"] for name, row in rows.items()} == {name: name for name in plan}
    assert {name: row["opt_outs"] for name, row in rows.items()} == {name: [name] for name in plan}
    off = dict.fromkeys(("obey_noindex", "obey_noai", "obey_tdm_reservation", "obey_content_signal"), False)
    rows = outcomes(plan, "all", **off)
    assert {row["reason"] for row in rows.values()} == {None}
    assert {name: row["opt_outs"] for name, row in rows.items()} == {name: [name] for name in plan}


def test_opt_outs_in_meta_tags_are_obeyed_and_recorded_before_a_body_is_written(outcomes: Any, bodies: Any) -> None:
    noai = b'<html><head><meta name="robots" content="noai"></head><body>'
    plan = {
        "noai_meta": answer(noai),
        "noindex_meta": answer(gzip.compress(noai.replace(b"noai", b"noindex")), "Content-Encoding: gzip"),
        "tdm_reserved": answer(b"<html><head><meta content=1 name=tdm-reservation></head><body>"),
    }
    rows = outcomes(plan)
    assert {name: row["reason"] for name, row in rows.items()} == {name: name for name in plan}
    assert {name: row["opt_outs"] for name, row in rows.items()} == {name: [name] for name in plan}
    assert {row["outcome"] for row in rows.values()} == {"refused"}
    assert bodies() == {}
    rows = outcomes(plan, "all", obey_noai=False, obey_noindex=False, obey_tdm_reservation=False)
    assert {row["reason"] for row in rows.values()} == {None}
    assert {name: row["opt_outs"] for name, row in rows.items()} == {name: [name] for name in plan}
