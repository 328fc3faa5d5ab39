"""Dump files: compression by content, lines as bytes, and every schema change in twenty years of Reddit."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.crawl.links.sources import lines as streams
from webtext.crawl.links.sources.lines import Unreadable, read_lines
from webtext.crawl.links.sources.reddit import RedditDump
from webtext.crawl.links.sources.submission import Submission


def lines_of(data: bytes) -> list[bytes | Unreadable]:
    return [line for _, line in read_lines(io.BytesIO(data))]


def parse(**fields: object) -> Submission:
    row = {"id": "88", "url": "http://a.com/", "score": 8, "created_utc": 1119552314}
    return only(json.dumps(row | {"is_self": False, "over_18": False} | fields).encode())


def only(line: bytes) -> Submission:
    result = RedditDump().parse(line)
    assert not isinstance(result, Unreadable), result
    (post,) = result
    return post


def failure(line: bytes) -> str:
    result = RedditDump().parse(line)
    assert isinstance(result, Unreadable), result
    return result.reason


def zstd(data: bytes, window_log: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(
        window_log=window_log, hash_log=10, chain_log=10, search_log=1, strategy=1, write_content_size=0
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(data) + compressor.flush()


# --- streams ---------------------------------------------------------------------------------------------------------

TEXT = b'{"a": 1}\n{"b": "\xe6\x97\xa5\xe6\x9c\xac"}\n{"c": 3}\n'
LINES = TEXT.splitlines()


@pytest.mark.parametrize(
    "data",
    [
        TEXT,
        lzma.compress(TEXT),
        bz2.compress(TEXT),
        zstandard.compress(TEXT),
        gzip.compress(TEXT),
        gzip.compress(TEXT[:10]) + gzip.compress(TEXT[10:]) + bytes(3),  # two members, then padding
        lzma.compress(TEXT[:10]) + bytes(8) + lzma.compress(TEXT[10:]),  # two streams with padding
        bz2.compress(TEXT[:10]) + bz2.compress(TEXT[10:]),
        zstandard.compress(TEXT[:10]) + zstandard.compress(TEXT[10:]),  # two frames
        b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + zstandard.compress(TEXT),  # a skippable frame, as pzstd writes
        TEXT.removesuffix(b"\n"),
        b"\xef\xbb\xbf" + TEXT,
        b"\n  \n" + TEXT + b"\n\t\n",
    ],
    ids=["plain", "xz", "bz2", "zst", "gz", "gz x2", "xz x2", "bz2 x2", "zst x2"]
    + ["zst skip", "no newline", "BOM", "blank lines"],
)
def test_compression_is_detected_from_the_content(data: bytes) -> None:
    assert lines_of(data) == LINES


@pytest.mark.parametrize("window_log", [27, 29, 31])
def test_zstandard_windows_up_to_two_gib_are_read(window_log: int) -> None:
    assert lines_of(zstd(TEXT, window_log)) == LINES


def test_positions_are_byte_offsets_in_the_decompressed_file() -> None:
    data = b"\n" + TEXT
    for position, line in read_lines(io.BytesIO(bz2.compress(data))):
        assert isinstance(line, bytes)
        assert data[position : position + len(line)] == line


def test_carriage_returns_before_newlines_are_json_whitespace() -> None:
    lines = lines_of(b'{"id":"1"}\r\n\r\n{"id":"2"}\r\n')
    assert [only(line).post_id for line in lines if isinstance(line, bytes)] == ["1", "2"]


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), max_size=12), st.integers(1, 50))
@settings(max_examples=150, deadline=None)
def test_chunk_edges_change_nothing(lines: list[bytes], chunk: int) -> None:
    """Also in the middle of a character: a line is decoded only when it is complete."""
    data = b"{" + b"\n".join(lines)  # no compression's magic

    class Dripping(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(chunk, size) if size and size > 0 else chunk)

    assert [line for _, line in read_lines(Dripping(data))] == [line for line in data.split(b"\n") if line.strip()]


@pytest.mark.parametrize(
    "compress",
    [lzma.compress, lambda data: bz2.compress(data, 1), zstandard.compress, gzip.compress],
    ids=["xz", "bz2", "zst", "gz"],
)
def test_truncated_streams_yield_their_lines_and_one_failure(compress: object) -> None:
    rng = random.Random(7)
    lines = [
        json.dumps({"id": str(i), "r": rng.random(), "s": rng.random(), "t": rng.random()}).encode()
        for i in range(6_000)
    ]
    data = compress(b"\n".join(lines) + b"\n")  # type: ignore[operator]
    *read, last = lines_of(data[: len(data) * 3 // 4])
    assert isinstance(last, Unreadable)
    assert last.reason == "truncated_stream"
    assert 100 < len(read) < len(lines)
    assert read == lines[: len(read)]


@pytest.mark.parametrize("compress", [lzma.compress, bz2.compress, gzip.compress], ids=["xz", "bz2", "gz"])
def test_damaged_streams_yield_one_failure(compress: object) -> None:
    data = bytearray(compress(random.Random(7).randbytes(300_000)))  # type: ignore[operator]
    data[150_000:150_016] = bytes(16)
    last = lines_of(bytes(data))[-1]
    assert isinstance(last, Unreadable)
    assert last.reason == "damaged_stream"


def test_a_100_mb_line_is_counted_and_never_in_memory() -> None:
    data = zstandard.compress(b'{"id":"1"}\n' + b'{"t":"' + b"x" * (100 << 20) + b'"}\n{"id":"2"}')
    first, long, last = lines_of(data)
    assert (first, last) == (b'{"id":"1"}', b'{"id":"2"}')
    assert isinstance(long, Unreadable)
    assert long.reason == "line_too_long"
    line = streams._Line()
    for _ in range(300):
        line.add(bytes(100 << 10))
        assert sum(map(len, line._pieces)) <= streams.MAX_LINE_BYTES


def test_a_long_line_without_end_is_bounded_too() -> None:
    (only,) = lines_of(b"{" + b"x" * (17 << 20))
    assert isinstance(only, Unreadable)
    assert only.reason == "line_too_long"


# --- Reddit's schema, month by month ---------------------------------------------------------------------------------


def test_created_utc_is_a_string_in_2014_and_2015() -> None:
    assert parse(created_utc="1388534400").created == 1388534400


def test_created_utc_and_score_may_be_floats() -> None:
    post = parse(created_utc=1369592697.0, score=5.0)
    assert (post.created, post.score) == (1369592697, 5)


def test_null_score_in_late_2017_and_null_url_in_2022_are_read() -> None:
    assert parse(score=None).score is None
    assert parse(url=None, domain=None).url is None


def test_missing_fields_are_like_null() -> None:
    post = only(b'{"id": "1"}')
    assert (post.score, post.url, post.created, post.retrieved, post.is_self, post.over_18) == (
        *(None, None, None, None, False, False),
    )


@pytest.mark.parametrize("is_self", ["absent", None])
def test_self_posts_are_recognized_without_is_self(is_self: str | None) -> None:
    def post(**fields: object) -> bool:
        row = {"id": "88", "url": "http://a.com/", **fields} | ({} if is_self else {"is_self": None})
        return only(json.dumps(row).encode()).is_self

    assert post(domain="self.books")
    assert post(url="http://www.reddit.com/r/books/comments/88/title/")
    assert post(url="/r/books/comments/88")
    assert not post(domain="selfmade.org")
    assert not post(url="http://www.reddit.com/r/books/comments/881/other/")


def test_when_the_score_was_read_has_three_names() -> None:
    assert parse(retrieved_on=5).retrieved == 5
    assert parse(retrieved_utc=6).retrieved == 6
    assert parse(retrieved_on=5, _meta={"retrieved_2nd_on": 7, "removal_type": "deleted"}).retrieved == 7
    assert parse(_meta=None).retrieved is None


def test_a_crosspost_is_a_post_of_its_own() -> None:
    """Its row contains the row of the original post, with fields of the same names."""
    nested = {"id": "77", "url": "http://b.com/", "score": 900, "created_utc": 1, "is_self": True, "over_18": True}
    post = parse(crosspost_parent="t3_77", crosspost_parent_list=[nested], url="http://b.com/", score=4)
    assert (post.post_id, post.url, post.score, post.created) == ("88", "http://b.com/", 4, 1119552314)
    assert not post.is_self
    assert not post.over_18


def test_a_post_of_a_deleted_author_still_votes() -> None:
    assert parse(author="[deleted]", author_fullname=None, _meta={"removal_type": "deleted"}).score == 8


def test_negative_scores_are_kept() -> None:
    assert parse(score=-7).score == -7
    assert parse(score=-(2**63)).score == -(2**63)


def test_names_replace_missing_ids() -> None:
    assert parse(id=None, name="t3_abc").post_id == "abc"
    assert failure(b'{"url": "http://a.com/"}') == "no_post_id"


@pytest.mark.parametrize(
    ("escaped", "url"),
    [
        ("http://a.com/?x=1&amp;y=2", "http://a.com/?x=1&y=2"),
        ("http://a.com/?x=1&amp;amp;y=2", "http://a.com/?x=1&amp;y=2"),
        ("http://a.com/?x=&lt;b&gt;", "http://a.com/?x=<b>"),
        ("http://a.com/?x=1&amp;copy=2", "http://a.com/?x=1&copy=2"),
        ("http://a.com/?x=1&copy=2&quot;", "http://a.com/?x=1&copy=2&quot;"),
    ],
)
def test_urls_are_unescaped_exactly_once_and_only_as_reddit_escapes(escaped: str, url: str) -> None:
    assert parse(url=escaped).url == url


def test_paths_are_reddits_own_pages() -> None:
    assert parse(url="/r/books/comments/99/x/").url == "https://www.reddit.com/r/books/comments/99/x/"
    assert parse(url="//example.com/").url == "//example.com/"


def test_half_an_emoji_neither_loses_the_post_nor_begins_the_query_of_its_url() -> None:
    line = (
        b'{"id":"88","title":"\\ud83d","url":"http://a.com/\\ud83dx","subreddit":"x\\ude00","score":3,"created_utc":1}'
    )
    post = only(line)
    assert (post.url, post.subreddit, post.score) == ("http://a.com/\ufffdx", "x\ufffd", 3)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json", "invalid_json"),
        (b'{"id": "88", "url": "http://a', "invalid_json"),
        (b'{"id": "88"} {"id": "89"}', "invalid_json"),
        (b'{"id": "88", "url": "http://a.com/\xff"}', "invalid_json"),
        (b"\x00" * 50, "invalid_json"),
        (b'{"t":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid_json"),
        (b"[1, 2]", "wrong_type"),
        (b'"text"', "wrong_type"),
        (b"null", "wrong_type"),
        (b'{"id": 88}', "wrong_type"),
        (b'{"id": "88", "url": ["http://a.com/"]}', "wrong_type"),
        (b'{"id": "88", "score": "many"}', "wrong_type"),
        (b'{"id": "88", "score": true}', "wrong_type"),
        (b'{"id": "88", "score": 1e999}', "wrong_type"),
        (b'{"id": "88", "score": 99999999999999999999}', "wrong_type"),
        (b'{"id": "88", "score": -99999999999999999999}', "wrong_type"),
        (b'{"id": "88", "created_utc": "2014-01-01"}', "wrong_type"),
        (b'{"id": "88", "created_utc": "1_000"}', "wrong_type"),
        (b'{"id": "88", "is_self": "false"}', "wrong_type"),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else value,
)
def test_a_bad_line_is_a_counted_reason(line: bytes, reason: str) -> None:
    assert failure(line) == reason


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_no_bytes_crash_the_parser(line: bytes) -> None:
    assert isinstance(RedditDump().parse(line), tuple | Unreadable)
