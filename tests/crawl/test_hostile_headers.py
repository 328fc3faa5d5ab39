"""Too many, too long or malformed headers, which are bounded, and cookies, which are never kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hostile_answers as hostile
import pytest
from hostile_answers import HEAD, answer

pytestmark = pytest.mark.usefixtures("wire")


def test_headers_beyond_the_bounds_are_bad_responses(outcomes: Any) -> None:
    plan = {
        "a line of 50 MB": hostile.huge_header_line,
        "a million": hostile.million_headers,
        "10,000 cookies": HEAD + b"".join(b"Set-Cookie: c%d=1\r\n" % i for i in range(10_000)) + b"\r\n",
        "NUL in a value": HEAD + b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
        "no colon": HEAD + b"what is this\r\nContent-Length: 0\r\n\r\n",
    }
    assert {row["reason"] for row in outcomes(plan).values()} == {"bad_response"}


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
    assert rows["folded"]["reason"] in (None, "bad_response")
    assert rows["folded location"]["outcome"] == "failed"


def test_cookies_are_never_sent_back(outcomes: Any, web: Any) -> None:
    cookies = [f"Set-Cookie: c{i}=1; Path=/" for i in range(100)]
    first, second = web.page("/first", "<html>", *cookies), web.page("/second")
    rows = outcomes({"first": first, "second": second, "other": answer(b"<html>", *cookies)})
    assert {row["reason"] for row in rows.values()} == {None}
    assert not any("cookie" in request.headers for request in web.requests)
