"""Lists of links: CSV, JSON lines, Parquet and plain URLs; real tables first, then odd ones."""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dump_files import submission
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.crawl.links.sources.lines import Unreadable
from webtext.crawl.links.sources.lists import CsvFile, Defaults, JsonLines, ParquetFile, UrlList, check_columns
from webtext.crawl.links.sources.submission import LinkSource, Submission

HERE = Defaults(file="links")


def read(source: LinkSource[Any], data: bytes) -> list[Submission | str]:
    """Return the posts, or the reason in place of one that failed."""
    posts: list[Submission | str] = []
    for _, record in source.records(io.BytesIO(data)):
        parsed = record if isinstance(record, Unreadable) else source.parse(record)
        posts += [parsed.reason] if isinstance(parsed, Unreadable) else parsed
    return posts


def only(source: LinkSource[Any], data: bytes) -> Submission:
    (post,) = read(source, data)
    assert isinstance(post, Submission), post
    return post


def in_json(**row: object) -> Submission:
    return only(JsonLines(HERE), json.dumps({"url": "http://a.com/"} | row).encode())


# --- CSV -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subreddit", ["netsec", "programming", "science"])
def test_the_real_top_posts_of_2013_are_read(shared_data: Path, subreddit: str) -> None:
    """The rows must equal those of Python's own reader on the entire file; the column of times is renamed."""
    data = (shared_data / f"crawl/reddit/top25_{subreddit}.csv").read_bytes().replace(b"created_utc", b"created", 1)
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    posts = read(CsvFile(HERE), data)
    assert len(posts) == len(rows) == 1000
    for post, row in zip(posts, rows, strict=True):
        assert isinstance(post, Submission)
        assert post.url == row["url"].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        assert (post.score, post.created) == (int(row["score"]), int(float(row["created"])))


def test_columns_are_found_by_name_in_any_order() -> None:
    data = b"title,score,url,ups,created\nx,5,http://a.com/,9,1400000000\n"
    post = only(CsvFile(HERE), data)
    assert (post.url, post.score, post.created) == ("http://a.com/", 5, 1400000000)


def test_tabs_separate_columns_where_the_header_has_one() -> None:
    post = only(CsvFile(HERE), b"url\tscore\nhttp://a.com/?a,b\t5\n")
    assert (post.url, post.score) == ("http://a.com/?a,b", 5)


def test_quoted_fields_may_contain_commas_quotes_and_line_ends() -> None:
    data = b'url,title,score\r\nhttp://a.com/,"one,\r\n\r\n""two""\n",5\r\n\r\nhttp://b.com/,x,6\r\n'
    expected = [("http://a.com/", 5), ("http://b.com/", 6)]
    assert [(post.url, post.score) for post in read(CsvFile(HERE), data) if isinstance(post, Submission)] == expected


def test_rows_may_end_in_a_carriage_return() -> None:
    data = b'url,title\rhttp://a.com/,x\rhttp://b.com/,"y\rz"\r\nhttp://c.com/,\r'
    check_columns("csv", io.BytesIO(data), "links.csv", ["url"])
    posts = [post for post in read(CsvFile(HERE), data) if isinstance(post, Submission)]
    assert [post.post_id for post in posts] == ["links:10", "links:26", "links:47"]


def test_the_position_of_a_row_is_that_of_its_first_line() -> None:
    data = b'url,title\nhttp://a.com/,"x\ny"\nhttp://b.com/,z\n'
    positions = [position for position, _ in CsvFile(HERE).records(io.BytesIO(data))]
    assert [data[position:].split(b",")[0] for position in positions] == [b"http://a.com/", b"http://b.com/"]


def test_rows_with_a_wrong_number_of_fields_fail_alone() -> None:
    data = b"url,score\nhttp://a.com/\nhttp://b.com/,5,6\nhttp://c.com/,7\n"
    assert [post if isinstance(post, str) else post.score for post in read(CsvFile(HERE), data)] == [
        *("wrong_columns", "wrong_columns", 7)
    ]


def test_a_quote_that_is_never_closed_loses_a_bounded_stretch() -> None:
    rows = b"".join(b"http://a.com/%d,5\n" % i for i in range(20_000))
    posts = read(CsvFile(HERE), b'url,score\nhttp://b.com/,"5\n' + rows)
    assert posts[0] == "field_too_long"
    assert len(posts) > 10_000
    assert sum(isinstance(post, str) for post in posts) <= 2


def test_bytes_that_are_not_utf8_matter_only_in_urls() -> None:
    data = b"url,title\nhttp://a.com/\xe9,x\nhttp://a.com/\xc3\xa9,caf\xe9\n"
    failed, post = read(CsvFile(HERE), data)
    assert failed == "not_utf8"
    assert isinstance(post, Submission)
    assert post.url == "http://a.com/é"
    assert read(UrlList(HERE), b"http://a.com/\xe9\n") == ["not_utf8"]


def test_a_stream_that_breaks_off_yields_the_rows_before() -> None:
    rows = b"".join(b"http://a.com/%d,%d\n" % (i, i * 7919) for i in range(9_000))
    *posts, last = read(CsvFile(HERE), gzip.compress(b"url,score\n" + rows)[:-5_000])
    assert last == "truncated_stream"
    assert len(posts) > 1000


def test_a_table_without_urls_is_an_error_that_names_the_file() -> None:
    for data in (b"link,score\nhttp://a.com/,5\n", b"http://a.com/\n", b"\n"):
        with pytest.raises(InputError, match="'links.csv' has no column 'url'"):
            check_columns("csv", io.BytesIO(data), "links.csv", ["url"])
    check_columns("csv", io.BytesIO(b"\xef\xbb\xbfurl\n"), "links.csv", ["url"])
    with pytest.raises(InputError, match="'links.csv' has several columns 'url': its columns are url, score, url\n"):
        check_columns("csv", io.BytesIO(b"url,score,url\n"), "links.csv", ["url", "score"])


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=6))
@settings(max_examples=100, deadline=None)
def test_rows_of_a_csv_writer_are_read_back(rows: list[tuple[str, str]]) -> None:
    rows = [(f"http://a.com/{url}", title) for url, title in rows]
    rows = [tuple("".join(c for c in field if c not in "\r\n" and c.isprintable()) for field in row) for row in rows]  # type: ignore[misc]
    text = io.StringIO()
    csv.writer(text).writerows([("url", "title"), *rows])
    posts = read(CsvFile(HERE), text.getvalue().encode())
    found = [post.url for post in posts if isinstance(post, Submission)]
    unescaped = [url.strip().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for url, _ in rows]
    assert found == unescaped


# --- JSON lines, and what a value may be -----------------------------------------------------------------------------


def test_a_json_line_may_have_any_of_the_fields() -> None:
    data = b'{"url": "http://a.com/"}\n\n{"score": 5, "url": "http://b.com/", "created": "2017-01-01T00:00:00Z"}\n'
    first, second = read(JsonLines(HERE), data)
    assert first == submission(source="list", post_id="links:0", url="http://a.com/")
    assert isinstance(second, Submission)
    assert (second.score, second.created, second.post_id) == (5, 1483228800, "links:26")


WRONG_SCORES = (b'"many"', b"true", b"[1]", b"1e999", b"99999999999999999999")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json", "invalid_json"),
        (b'{"url": "http://a.com/\xff"}', "invalid_json"),
        (b'{"url": "http://a.com/", "title": ' + b"[" * 100_000, "invalid_json"),
        *((line, "wrong_type") for line in (b"[" * 100_000, b'["http://a.com/"]', b"[1, 2]", b'"href"', b'{"url": 5}')),
        *((b'{"url": "http://a.com/", "score": %b}' % score, "wrong_type") for score in WRONG_SCORES),
        (b'{"url": "http://a.com/", "created": "2017-13-01"}', "wrong_type"),
        (b'{"url": "http://a.com/", "created": "yesterday"}', "wrong_type"),
    ],
    ids=lambda value: value[:60].decode("latin-1") if isinstance(value, bytes) else value,
)
def test_a_bad_line_is_a_counted_reason(line: bytes, reason: str) -> None:
    assert read(JsonLines(HERE), line) == [reason]
    check_columns("jsonl", io.BytesIO(line), "links", ["url"])  # of which only objects have some


@pytest.mark.parametrize("nothing", [None, "", " "])
def test_a_value_may_be_missing(nothing: str | None) -> None:
    post = in_json(url=nothing, score=nothing, created=nothing)
    assert (post.url, post.score, post.created) == (None, None, None)


@pytest.mark.parametrize(
    ("score", "number"), [(5, 5), (5.9, 5), ("5", 5), (" 5.0 ", 5), ("-3", -3), (float("nan"), None)]
)
def test_scores_are_whole_numbers(score: object, number: int | None) -> None:
    assert in_json(score=score).score == number


@pytest.mark.parametrize(
    "created",
    [
        *(1369592697, 1369592697.0, "1369592697", "1369592697.0"),
        *("2013-05-26T18:24:57Z", "2013-05-26 18:24:57", "2013-05-26T20:24:57+02:00"),
    ],
)
def test_times_are_seconds_or_iso_8601(created: object) -> None:
    assert in_json(created=created).created == 1369592697


@pytest.mark.parametrize("times", [1, 1_000, 1_000_000, 1_000_000_000])
def test_a_time_in_smaller_units_is_not_one_in_a_far_future(times: int) -> None:
    assert in_json(created=1369592697 * times).created == 1369592697


def test_a_date_is_its_first_second() -> None:
    assert in_json(created="2018-01-01").created == 1514764800
    assert in_json(created="20180101").created == 1514764800


def test_a_post_is_identified_by_file_and_position() -> None:
    post = in_json(id="t3_1f3bt1", source="reddit", subreddit="books", over_18=True)
    assert (post.source, post.post_id, post.subreddit, post.over_18) == ("list", "links:0", None, False)


def test_urls_are_unescaped_once_and_stripped() -> None:
    assert in_json(url=" http://a.com/?x=1&amp;y=2&amp;amp;&copy=3 ").url == "http://a.com/?x=1&y=2&amp;&copy=3"


def test_half_an_emoji_does_not_lose_the_row() -> None:
    post = only(JsonLines(HERE), b'{"url": "http://a.com/", "title": "\\ud83d", "score": 4}')
    assert (post.url, post.score) == ("http://a.com/", 4)


def test_missing_values_come_from_the_defaults() -> None:
    source = JsonLines(Defaults(file="links", score=3, created=7))
    post = only(source, b'{"url": "http://a.com/"}')
    assert (post.score, post.created) == (3, 7)
    post = only(source, b'{"url": "http://a.com/", "score": 0, "created": 1}')
    assert (post.score, post.created) == (0, 1)


# --- plain URLs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_plain_list_has_one_url_per_line(end: bytes) -> None:
    urls = [b"http://a.com/x#top", b"  http://b.com/?x&amp;y  ", b"no url"]
    data = end.join([b"# a comment", urls[0], b"", urls[1], b"  # another", urls[2], b""])
    source = UrlList(Defaults(file="urls.txt", score=3, created=7))
    posts = [post for post in read(source, data) if isinstance(post, Submission)]
    assert [post.url for post in posts] == ["http://a.com/x#top", "http://b.com/?x&y", "no url"]
    assert [post.post_id for post in posts] == [f"urls.txt:{data.index(url)}" for url in urls]
    assert {(post.score, post.created, post.source) for post in posts} == {(3, 7, "list")}


# --- Parquet ---------------------------------------------------------------------------------------------------------


def parquet(**columns: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, row_group_size=2)
    return out.getvalue()


def test_a_parquet_file_is_read_by_row_groups_and_typed_columns() -> None:
    when = [datetime(2017, 1, 1, tzinfo=UTC), None, datetime(2017, 1, 2, tzinfo=UTC)]
    data = parquet(
        text=["long"] * 3,
        url=["http://a.com/?x&amp;y", None, "http://c.com/"],
        score=pa.array([1.0, None, 3.0]),
        created=pa.array(when, pa.timestamp("us", "UTC")),
    )
    posts = [post for post in read(ParquetFile(HERE), data) if isinstance(post, Submission)]
    assert [(post.url, post.score, post.created, post.post_id) for post in posts] == [
        ("http://a.com/?x&y", 1, 1483228800, "links:0"),
        (None, None, None, "links:1"),
        ("http://c.com/", 3, 1483315200, "links:2"),
    ]


def test_values_of_parquet_may_be_bytes_and_decimals() -> None:
    scores = pa.array([Decimal("5.9"), Decimal(-3), None], pa.decimal128(12, 2))
    first, second, third = read(ParquetFile(HERE), parquet(url=[b"http://a.com/", None, b"\xff"], score=scores))
    assert (first.url, first.score, second.url, second.score) == ("http://a.com/", 5, None, -3)  # type: ignore[union-attr]
    assert third == "not_utf8"


def test_dates_of_parquet_are_utc_and_times_in_an_unknown_zone_are_counted() -> None:
    times = pa.array([date(2018, 1, 1)]), pa.array([0], pa.timestamp("s", "Nowhere/There"))
    utc, elsewhere = (read(ParquetFile(HERE), parquet(url=["http://a.com/"], created=each)) for each in times)
    assert (utc[0].created, elsewhere) == (1514764800, ["wrong_type"])  # type: ignore[union-attr]


def test_a_parquet_file_without_urls_or_without_its_end_is_refused() -> None:
    with pytest.raises(InputError, match="no column 'url'"):
        check_columns("parquet", io.BytesIO(parquet(link=["http://a.com/"])), "x.parquet", ["url"])
    with pytest.raises(InputError, match="'x.parquet' is damaged"):
        check_columns("parquet", io.BytesIO(parquet(url=["http://a.com/"])[:-20]), "x.parquet", ["url"])


def test_a_damaged_page_of_parquet_yields_the_rows_before() -> None:
    file = io.BytesIO()
    rows = pa.table({"url": [f"http://a.com/{i * 7919:032x}" for i in range(20_000)]})
    pq.write_table(rows, file, row_group_size=1_000)
    data = bytearray(file.getvalue())
    data[len(data) // 2 : len(data) // 2 + 4_000] = b"\xff" * 4_000
    *posts, last = read(ParquetFile(HERE), bytes(data))
    assert last == "damaged_stream"
    assert 0 < len(posts) < 20_000


def test_a_row_of_parquet_that_is_not_utf8_fails_alone() -> None:
    raw = pa.array([b"http://a.com/%d" % i if i != 700 else b"http://a.com/\xe9" for i in range(1000)], pa.binary())
    urls = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    posts = read(ParquetFile(HERE), parquet(url=urls))
    assert [i for i, post in enumerate(posts) if post == "not_utf8"] == [700]
    assert len([post for post in posts if isinstance(post, Submission)]) == 999


def test_a_small_parquet_file_of_gigabytes_is_one_failure() -> None:
    urls = pa.DictionaryArray.from_arrays(pa.array([0] * 9000, pa.int32()), pa.array(["http://a.com/" + "x" * 10**6]))
    data = io.BytesIO()
    pq.write_table(pa.table({"url": urls}), data, compression="zstd", dictionary_pagesize_limit=1 << 30)
    assert read(ParquetFile(HERE), data.getvalue()) == ["damaged_stream"]


@pytest.mark.parametrize("source", [CsvFile, JsonLines, UrlList, ParquetFile])
@given(
    data=st.binary(max_size=200)
    | st.text('url,score"\t\n\r5{}[]:#\0', max_size=80).map(lambda text: f"url,{text}".encode())
)
@settings(max_examples=100, deadline=None)
def test_no_bytes_crash_a_list(source: type[Any], data: bytes) -> None:
    for post in read(source(HERE), data):
        assert isinstance(post, Submission | str)


@pytest.mark.parametrize(
    ("source", "data", "columns"),
    [
        ("csv", b"href,points,when\nhttp://a.com/,5,2015-01-01\n", "href, points, when"),
        ("csv", b"url\tscore\ttime\nhttp://a.com/\t5\t1\n", "url, score, time"),
        ("jsonl", b'{"url": "http://a.com/", "ups": 5}\n\n{"url": null, "created_utc": 1}\n', "url, ups, created_utc"),
        ("parquet", parquet(url=["http://a.com/"], votes=[5]), "url, votes"),
        ("urls", b"http://a.com/\n", "url"),
    ],
)
def test_a_list_in_which_no_row_has_a_needed_column_is_an_error_that_lists_its_columns(
    source: str, data: bytes, columns: str
) -> None:
    """Before, every row was dropped as `null_score`, one column per run."""
    needed = ("url", "score", "created")
    missing = "', '".join(name for name in needed if name not in columns.split(", "))
    with pytest.raises(InputError) as error:
        check_columns(source, io.BytesIO(data), "links", needed)
    assert f"'links' has no column '{missing}': its columns are {columns}\n" in str(error.value)
    assert "--default-score" in str(error.value)
    check_columns(source, io.BytesIO(data), "links", set(needed) & set(columns.split(", ")))
