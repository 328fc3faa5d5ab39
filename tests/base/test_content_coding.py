"""HTTP bodies: both codings are undone, wrong labels ignored, and bombs stopped at the bound."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.base.web.content_coding import MAX_CHUNKS, BodyError, dechunk, decode_body, decoded_start

MIB = 1 << 20
TEXT = b"<p>some text, and more of it</p>\n" * 500


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def brotli(data: bytes) -> bytes:
    from fastwarc.stream_io import BrotliWriter

    out = io.BytesIO()
    with BrotliWriter(out) as writer:
        writer.write(data)
    return out.getvalue()


PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli,
    "zstd": zstandard.ZstdCompressor().compress,
}


def chunked(data: bytes, size: int) -> bytes:
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def test_the_example_of_rfc_9112() -> None:
    assert dechunk(b"4\r\nWiki\r\n5\r\npedia\r\nE\r\n in\r\n\r\nchunks.\r\n0\r\n\r\n") == b"Wikipedia in\r\n\r\nchunks."


@pytest.mark.parametrize("coding", PACKERS)
def test_each_coding_is_undone(coding: str) -> None:
    assert decode_body(PACKERS[coding](TEXT), "", coding.upper(), MIB) == TEXT


def test_text_under_the_name_of_deflate_is_text() -> None:
    assert decode_body(TEXT, "", "deflate", MIB) == TEXT
    assert decode_body(zlib.compress(TEXT)[:-40], "", "deflate", MIB) == zlib.decompressobj().decompress(
        zlib.compress(TEXT)[:-40]
    )


def test_deflate_without_zlib_header_is_undone() -> None:
    assert decode_body(raw_deflate(TEXT), "", "deflate", MIB) == TEXT


def test_a_body_without_coding_is_itself() -> None:
    assert decode_body(TEXT, "", "", MIB) == decode_body(TEXT, "identity", "identity", MIB) == TEXT


@pytest.mark.parametrize("outer", PACKERS)
@pytest.mark.parametrize("inner", PACKERS)
def test_two_codings_are_undone_from_the_last_to_the_first(inner: str, outer: str) -> None:
    sent = PACKERS[outer](PACKERS[inner](TEXT))
    assert decode_body(sent, "", f"{inner}, {outer}", MIB) == TEXT


@given(st.binary(max_size=5000), st.integers(1, 700), st.sampled_from(sorted(PACKERS)))
@settings(max_examples=60, deadline=None)
def test_chunks_and_codings_undo_what_a_server_does(data: bytes, size: int, coding: str) -> None:
    assert decode_body(chunked(PACKERS[coding](data), size), "chunked", coding, MIB) == data


@pytest.mark.parametrize("label", ["utf-8", "none", "binary", "8bit", "text/html", "UTF-16", "iso-8859-1, none, x"])
def test_a_label_that_names_no_coding_is_ignored_over_text(label: str) -> None:
    utf_16 = "<html>\u65e5\u672c".encode("utf-16")
    for plain in (TEXT, b"", utf_16, "na\u00efve".encode("latin-1")):
        assert decode_body(plain, "", label, MIB) == plain
        assert decoded_start(plain, "", label, 1000) == plain[:1000]
    assert decode_body(brotli(TEXT), "", f"br, {label}", MIB) == TEXT
    assert decode_body(chunked(gzip.compress(TEXT), 90), "chunked", f"{label}, gzip", MIB) == TEXT


@pytest.mark.parametrize("start", [b"<!DOCTYPE html>", b"From me to you", b"\n# title", b"{}", b"\xef\xbb\xbfwords"])
def test_text_under_the_name_of_brotli_is_text(start: bytes) -> None:
    assert decode_body(start + TEXT, "", "br", MIB) == start + TEXT
    assert decoded_start(start + TEXT, "", "br, br", 100) == (start + TEXT)[:100]


def test_three_codings_are_refused() -> None:
    with pytest.raises(BodyError) as caught:
        decode_body(TEXT, "", "gzip, gzip, gzip", MIB)
    assert caught.value.reason == "too_many_content_codings"


def test_an_unknown_coding_is_rejected_with_its_name() -> None:
    with pytest.raises(BodyError, match="'compress'") as caught:
        decode_body(b"\x1f\x9d\x90words", "", "compress", MIB)
    assert caught.value.reason == "unknown_content_coding"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_label_that_the_first_bytes_contradict_is_ignored(coding: str) -> None:
    assert decode_body(TEXT, "", coding, MIB) == TEXT


def test_a_body_that_was_never_chunked_is_itself() -> None:
    assert decode_body(TEXT, "chunked", "", MIB) == TEXT


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_cut_short_gives_what_came_before_the_cut(coding: str) -> None:
    data = random.Random(0).randbytes(400_000)  # several blocks of any coding
    sent = PACKERS[coding](data)
    body = decode_body(sent[: len(sent) * 3 // 4], "", coding, MIB)
    assert 0 < len(body) < len(data)
    assert data.startswith(body)


@pytest.mark.parametrize(
    ("coding", "sent"),
    [
        ("gzip", b"\x1f\x8b\x08garbage"),
        ("gzip", b"\x1f\x8b"),
        ("zstd", b"\x28\xb5\x2f\xfd"),
        ("zstd", zstandard.ZstdCompressor().compress(TEXT)[:-4]),
        ("deflate", b"\xff\x00\x01 neither deflate nor text"),
        ("br", b"\xff\x00\x01 neither brotli nor text"),
    ],
)
def test_a_body_that_gives_nothing_is_damaged(coding: str, sent: bytes) -> None:
    with pytest.raises(BodyError) as caught:
        decode_body(sent, "", coding, MIB)
    assert caught.value.reason == "damaged_body"


def test_a_chunk_cut_short_gives_what_is_there() -> None:
    assert dechunk(b"5\r\nhello\r\nff\r\n wor") == b"hello wor"
    assert dechunk(b"5\r\nhello\r\nxx\r\n wor") == b"hello"
    assert dechunk(b"5\nhello\n0\n\n") == b"hello", "bare line feeds"
    assert dechunk(b"fffffffffffffff\r\nhello") == b"hello", "a size no memory could hold"
    assert dechunk(b"-5\r\nhello") == b"-5\r\nhello"


def test_an_empty_body_is_empty_under_any_label() -> None:
    assert [decode_body(b"", "chunked", coding, MIB) for coding in PACKERS] == [b""] * len(PACKERS)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
def test_a_bomb_stops_at_the_bound(coding: str) -> None:
    """64 MiB of zeros in at most 64 KiB; the bound is 1 MiB, so 16 MiB of memory are more than enough."""
    sent = b"\0" * (64 * MIB)
    for one in coding.split(", "):
        sent = PACKERS[one](sent)
    assert len(sent) < MIB
    tracemalloc.start()
    try:
        with pytest.raises(BodyError) as caught:
            decode_body(sent, "", coding, MIB)
        assert caught.value.reason == "body_too_large"
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def test_the_bound_itself_is_allowed() -> None:
    assert decode_body(gzip.compress(TEXT), "", "gzip", len(TEXT)) == TEXT
    with pytest.raises(BodyError):
        decode_body(gzip.compress(TEXT), "", "gzip", len(TEXT) - 1)
    with pytest.raises(BodyError):
        decode_body(TEXT, "", "", len(TEXT) - 1)


def test_gzip_members_are_joined_and_what_follows_them_is_ignored() -> None:
    assert decode_body(gzip.compress(b"one ") + gzip.compress(b"two") + b"\0\0garbage", "", "gzip", MIB) == b"one two"


def test_a_hundred_thousand_empty_members_take_no_time() -> None:
    """Each member copies only the rest of one chunk instead of the entire body: the time isn't quadratic."""
    assert decode_body(gzip.compress(b"") * 100_000 + gzip.compress(b"end"), "", "gzip", MIB) == b"end"


def test_a_zstd_window_above_8_mib_is_damaged() -> None:
    """RFC 9659: a frame that asks for more must not make us allocate it."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    sent = packer.compress(TEXT * 2000) + packer.flush()
    with pytest.raises(BodyError) as caught:
        decode_body(sent, "", "zstd", 100 * MIB)
    assert caught.value.reason == "damaged_body"


@given(st.binary(max_size=300), st.sampled_from(["", "gzip", "deflate", "br", "zstd", "gzip, br"]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_a_body_or_a_reason(data: bytes, coding: str, is_chunked: bool) -> None:
    reason = "none"
    try:
        assert len(decode_body(data, "chunked" if is_chunked else "", coding, 1000)) <= 1000
    except BodyError as error:
        reason = error.reason
    assert reason in ("none", "damaged_body", "body_too_large")


@pytest.mark.slow
@pytest.mark.usefixtures("linear_time")
def test_a_body_in_millions_of_chunks_is_given_up() -> None:
    """64 MiB in chunks of one byte took ten seconds of CPU time."""
    raw = b"1\r\nx\r\n" * (64 * 2**20 // 6)
    with pytest.raises(BodyError) as caught:
        decode_body(raw, "chunked", "", 10**8)
    assert caught.value.reason == "too_many_chunks"
    assert decoded_start(raw, "chunked", "", 1000) == b"x" * 1000
    assert dechunk(b"1\r\nx\r\n" * MAX_CHUNKS + b"0\r\n\r\n") == b"x" * MAX_CHUNKS
