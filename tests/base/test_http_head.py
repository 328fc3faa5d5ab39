"""The head of an archived HTTP response."""

from __future__ import annotations

import pytest

from webtext.base.web.http_head import split_http

INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
FINAL = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody"


@pytest.mark.parametrize("n", [0, 1, 16])
def test_interim_answers_before_the_response_are_skipped(n: int) -> None:
    found = split_http(INTERIM * n + FINAL)
    assert found is not None
    assert (found[0], found[1].fields, found[2]) == (200, (("A", "b"),), b"body")


@pytest.mark.usefixtures("linear_time")
def test_a_flood_of_interim_answers_is_not_a_response() -> None:
    """A megabyte of them compresses to a few kilobytes; reading it used to take quadratic time."""
    assert split_http(b"HTTP/1.1 100 C\r\n\r\n" * 400_000 + FINAL) is None


def test_an_interim_answer_without_a_response_after_it_is_what_there_is() -> None:
    found = split_http(INTERIM + b"not HTTP")
    assert found is not None
    assert (found[0], found[2]) == (103, b"not HTTP")


@pytest.mark.parametrize("folded", [b"A:\r\n b", b"A: b\r\n ", b"A: \n\t\n  b\n \t"])
def test_a_folded_value_has_no_blanks_around_it(folded: bytes) -> None:
    found = split_http(b"HTTP/1.1 200 OK\r\n" + folded + b"\r\n\r\nbody")
    assert found is not None
    assert found[1].fields == (("A", "b"),)
