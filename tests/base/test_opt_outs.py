"""Opt-outs in header fields and meta tags: every spelling that sites use, and texts that only look like one."""

from __future__ import annotations

import gzip
import zlib

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.web.opt_outs import HEAD_BYTES, body_opt_outs, header_opt_outs, meta_opt_outs

NOAI = b'<meta name="robots" content="noai">'


@pytest.mark.parametrize(
    ("field", "value", "reasons"),
    [
        ("x-robots-tag", "noai;noimageai", ["noai_header", "noimageai_header"]),
        ("x-robots-tag", "noai, noimageai", ["noai_header", "noimageai_header"]),
        ("x-robots-tag", "NoIndex nofollow", ["noindex_header"]),
        ("x-robots-tag", "none", ["noindex_header"]),
        ("x-robots-tag", "webtext: noai", ["noai_header"]),
        ("x-robots-tag", "CCBot: noindex", ["noindex_header"]),
        ("x-robots-tag", "otherbot: noindex", []),
        ("x-robots-tag", "otherbot: noindex; noai", []),
        ("x-robots-tag", "otherbot: noindex, webtext: noai", ["noai_header"]),
        ("x-robots-tag", "unavailable_after: 25 Jun 2030 15:00:00 GMT; noai", ["noai_header"]),
        ("x-robots-tag", "max-snippet: -1, max-image-preview:large, noimageai", ["noimageai_header"]),
        ("tdm-reservation", "1", ["tdm_reserved"]),
        ("tdm-reservation", " 1 , 1", ["tdm_reserved"]),
        ("tdm-reservation", "0", []),
        ("tdm-reservation", "10", []),
        ("content-signal", "search=yes, ai-train=no", ["content_signal_no_training"]),
        ("content-signal", "search=no,ai-train=yes", []),
        ("content-signal", "ai-train=yes, ai-train=no", ["content_signal_no_training"]),
        ("content-usage", "train-ai=n", ["content_usage_no_training"]),
        ("content-usage", "search=y, train-ai=n", ["content_usage_no_training"]),
        ("content-usage", "train-ai=n;since=2026", ["content_usage_no_training"]),
        ("content-usage", "bots=n", ["content_usage_no_training"]),
        # three statements of draft-ietf-aipref-vocab, sections 6 and 6.5
        ("content-usage", "train-ai=y, search=n", []),
        ("content-usage", 'train-ai=y, train-ai, search=n, search="n"', []),
        ("content-usage", "train-ai;allow=n, train-ai=y", []),
        ("content-usage", "bots=n, train-ai=y", []),
        ("content-usage", "train-ai=y", []),
        ("content-usage", "search=n", []),
    ],
)
def test_header_fields_are_read_in_every_form(field: str, value: str, reasons: list[str]) -> None:
    assert header_opt_outs([("server", "x"), (field, value)]) == reasons


@pytest.mark.parametrize(
    ("head", "reasons"),
    [
        (NOAI, ["noai_meta"]),
        (b"<META CONTENT='NoAI, NoImageAI' NAME='ROBOTS'/>", ["noai_meta", "noimageai_meta"]),
        (b"<meta name=robots content=noindex>", ["noindex_meta"]),
        (b"<meta name = robots\ncontent = none >", ["noindex_meta"]),
        (b"<meta\tdata-x='>' name=robots content='nofollow noai'>", ["noai_meta"]),
        (b'<meta name="r&#111;bots" content="no&#x61;i&comma;nofollow">', ["noai_meta"]),
        (
            b'<meta name="robots" content="index"><meta name="robots" content="noai;noindex">',
            ["noai_meta", "noindex_meta"],
        ),
        (b'<meta name="webtext" content="noai">', ["noai_meta"]),
        (b'<meta name="GPTBot" content="noindex">', ["noindex_meta"]),
        (b'<meta name="tdm-reservation" content="1">', ["tdm_reserved"]),
        (b'<meta content="1" name=tdm-reservation><meta name="tdm-policy" content="x">', ["tdm_reserved"]),
        (b'<title>it\'s</title><link title="a > b">' + NOAI, ["noai_meta"]),
        (b"<!-- a -- > comment --!><!--><!--->" + NOAI, ["noai_meta"]),
        (b"<script>if (a < b) document.write('<body>')</script>" + NOAI, ["noai_meta"]),
        (b"<div>misplaced</div>" + NOAI, ["noai_meta"]),
        (b'<meta name="robots" content="all" content="noai">', []),
        (b'<meta name="googlebot" content="noindex">', []),
        (b'<meta name="robots" content="noimageai, max-snippet:-1">', ["noimageai_meta"]),
        (b'<meta name="tdm-reservation" content="0">', []),
        (b'<meta property="robots" content="noai">', []),
        (b'<meta name="description" content="robots noai">', []),
        (b"<metadata name=robots content=noai>", []),
        (b"<!-- " + NOAI + b" -->", []),
        (b"<!-- " + NOAI, []),
        (b"<script>var a = '" + NOAI + b"'</script>", []),
        (b"<SCRIPT type=x>" + NOAI + b"</script >", []),
        (b"<noscript>" + NOAI + b"</noscript>", []),
        (b"<style>" + NOAI + b"</style>", []),
        (b"<title>How to write " + NOAI + b"</title>", []),
        (b"<template>" + NOAI + b"</template>", []),
        (b"<link title='" + NOAI + b"'>", []),
        (b"<? " + NOAI + b" ?>", []),
        (b"<!x " + NOAI, []),
        (b"</ " + NOAI, []),
        (b"<? pi ?><! declaration></>< " + NOAI, ["noai_meta"]),
        (b'<meta name="robots" content="noai', []),
    ],
)
def test_meta_tags_are_read_as_browsers_read_them(head: bytes, reasons: list[str]) -> None:
    page = b"<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>" + head
    assert meta_opt_outs(page + b"</head><body><p>text</body>") == reasons
    assert meta_opt_outs(page) == reasons


def test_a_tag_in_the_body_or_in_plain_text_is_text() -> None:
    body = b"<body><p>Put <code>" + NOAI + b"</code> into the head"
    assert meta_opt_outs(b"<html><head></head>" + body) == []
    assert meta_opt_outs(b"<p>hello" + NOAI) == []
    assert meta_opt_outs(NOAI + b"<p>no head tag") == ["noai_meta"]
    assert meta_opt_outs(b"<head></head>" + NOAI + b"<p>") == ["noai_meta"]
    for kind in ("text/plain; charset=utf-8", "text/markdown"):
        assert meta_opt_outs(NOAI, kind) == body_opt_outs(NOAI, "", "", kind) == []


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_other_encodings_are_read(codec: str) -> None:
    assert meta_opt_outs(f"<html><head>{NOAI.decode()}<title>Ж㹃</title>".encode(codec)) == ["noai_meta"]


def test_the_body_is_read_under_its_codings() -> None:
    page = b"<html><head><style>" + b"a{}" * 7000 + b"</style>" + NOAI + b"</head><body>" + b"x" * 10**6
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(page), page)
    assert body_opt_outs(page, "", "") == ["noai_meta"]
    assert body_opt_outs(chunks, "chunked", "") == ["noai_meta"]
    for coding, packed in {
        "gzip": gzip.compress(page),
        "x-gzip": gzip.compress(page),
        "deflate": zlib.compress(page),
        "br": brotli.compress(page),
        "gzip, identity": gzip.compress(page),
    }.items():
        assert body_opt_outs(packed, "", coding) == ["noai_meta"], coding
    assert body_opt_outs(gzip.compress(page)[:-20], "", "gzip") == ["noai_meta"]
    assert body_opt_outs(b"no gzip", "", "gzip, x, y") == []


def test_only_the_first_64_kib_are_read() -> None:
    before, after = (b"<head><!--" + b"x" * (HEAD_BYTES + shift) + b"-->" + NOAI for shift in (-200, 200))
    assert (meta_opt_outs(before), meta_opt_outs(after)) == (["noai_meta"], [])


HOSTILE = {
    "tags that never end": b"<meta " * 170_000,
    "attributes": b"<meta " + b"a " * 500_000,
    "values": b"<meta " + b"a=b " * 250_000,
    "equals signs": b"<meta " + b"=" * 10**6,
    "opening quotes": b"<meta a=\"b '" * 80_000,
    "comments": b"<!-" * 300_000 + b"<!--" * 10,
    "comments that almost end": b"<!--" + b"--!" * 300_000,
    "angles": b"<" * 10**6,
    "scripts": b"<script></scrip" * 60_000,
    "blanks": b"<meta" + b" " * 10**6,
    "entities": b"<meta name=robots content='" + b"&#97" * 250_000 + b"'>",
    "small tags": b"<link>" * 160_000,
}


@pytest.mark.parametrize("page", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.usefixtures("linear_time")
def test_hostile_pages_take_linear_time(page: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even without the bound on bytes, which by itself would make any of them cheap."""
    meta_opt_outs(page)
    monkeypatch.setattr("webtext.base.web.opt_outs.HEAD_BYTES", len(page))
    meta_opt_outs(page)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    meta_opt_outs(b"<head>" + data)
    body_opt_outs(data, "chunked", "gzip")
