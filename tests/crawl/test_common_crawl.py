"""Pages from a small Common Crawl: a real WARC file on a server with ranges, and an index made from it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from local_common_crawl import ARCHIVE, FILE, SCHEMA, LocalCommonCrawl, seconds
from warcio.archiveiterator import ArchiveIterator

from webtext.base.errors import InputError, NetworkError
from webtext.base.storage import Folder
from webtext.base.warc.reader import read_responses
from webtext.crawl.archives import cc_index, common_crawl
from webtext.crawl.archives import server as archive_server
from webtext.crawl.archives.archived_record import read_archived_record
from webtext.crawl.archives.cc_index import Place
from webtext.crawl.archives.common_crawl import neighbours
from webtext.crawl.pages.surt import surt
from webtext.crawl.pages.visit import FetchFailed


def test_a_page_keeps_the_bytes_of_its_record(crawl_archive: LocalCommonCrawl, tmp_path: Path) -> None:
    url, absent = crawl_archive.web.url("/a?b=1"), crawl_archive.web.url("/absent")
    crawl_archive.page(url, body=b"<html>kept</html>")
    rows = crawl_archive.crawl([url, absent])
    row = rows[url]
    assert (row["outcome"], row["source"], row["final_url"], row["requests"]) == ("fetched", "common-crawl", url, 1)
    assert (row["captured"], row["voted"]) == (seconds("2017-12-01"), 1)
    assert (rows[absent]["outcome"], rows[absent]["reason"]) == ("failed", "not_archived")
    [path] = (tmp_path / "pages").glob("*.warc.gz")
    [ours] = read_responses(Folder(path.parent), path.name)
    [theirs] = read_responses(Folder(crawl_archive._path.parent), crawl_archive._path.name)
    expected = (theirs.raw, theirs.http_headers.fields, url, "2017-12-01T00:00:00Z")
    assert (ours.raw, ours.http_headers.fields, ours.url, ours.date) == expected
    assert ours.warc_headers.get("WARC-Source-URI") == crawl_archive.web.url(f"/{FILE}", ARCHIVE)
    [(start, end)] = crawl_archive.ranges
    assert ours.warc_headers.get("WARC-Source-Range") == f"bytes={start}-{end - 1}"
    with open(path, "rb") as file:
        assert sum(record.rec_type == "response" for record in ArchiveIterator(file, check_digests="raise")) == 1


def test_neighbouring_records_come_in_one_request(crawl_archive: LocalCommonCrawl) -> None:
    """Clusters of ten records, separated by a record that no link needs."""
    urls = []
    for cluster in range(4):
        for page in range(10):
            urls.append(crawl_archive.web.url(f"/{cluster}/{page}"))
            crawl_archive.page(urls[-1])
        crawl_archive.page(f"http://b.example/{cluster}", body=bytes([cluster]) * 20_000)
    rows = crawl_archive.crawl(urls, max_gap=10_000)
    assert {row["outcome"] for row in rows.values()} == {"fetched"}
    assert len(crawl_archive.ranges) == 4
    assert len(urls) >= 5 * len(crawl_archive.ranges)
    assert sum(row["requests"] for row in rows.values()) == 4


def test_a_group_has_a_bounded_gap_and_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common_crawl, "MAX_RANGE_BYTES", 100)

    def groups(*places: tuple[str, int, int], gap: int = 10) -> list[list[int]]:
        members = [(offset, Place(file, offset, length, "u", None)) for file, offset, length in places]
        return [[offset for offset, _ in group] for group in neighbours(members, gap)]

    assert groups(("a", 0, 20), ("a", 30, 20), ("a", 61, 20)) == [[0, 30], [61]]
    assert groups(("a", 0, 20), ("b", 20, 20)) == [[0], [20]]
    assert groups(("a", 0, 20), ("a", 0, 20)) == [[0, 0]]
    assert groups(("a", 0, 60), ("a", 60, 60), ("a", 120, 500)) == [[0], [60], [120]]
    assert groups() == []


@pytest.mark.parametrize(
    ("settings", "best"), [({}, "1999-01-01"), ({"archive_before": "2018-01-01"}, "2017-06-01")], ids=["vote", "before"]
)
def test_the_preferred_capture_is_taken(settings: dict[str, Any], best: str, crawl_archive: LocalCommonCrawl) -> None:
    url = crawl_archive.web.url("/a")
    for date in ("2005-01-01", "1999-01-01", "2017-06-01", "2018-01-01"):
        crawl_archive.page(url, date)
    crawl_archive.page(url, "1998-01-01", fetch_status=404)
    crawl_archive.page(url, "1998-01-01", content_truncated="length")
    crawl_archive.page(url, "1998-01-01", content_mime_detected="image/png")
    crawl_archive.page(url + "/", "1998-01-01")
    [row] = crawl_archive.crawl([url], **settings).values()
    assert row["captured"] == seconds(best)


def test_a_truncated_capture_or_another_spelling_is_better_than_none(crawl_archive: LocalCommonCrawl) -> None:
    cut, slash = crawl_archive.web.url("/cut"), crawl_archive.web.url("/slash")
    crawl_archive.page(cut, content_truncated="length")
    crawl_archive.page(slash + "/")
    rows = crawl_archive.crawl([cut, slash])
    assert rows[cut]["outcome"] == "fetched"
    assert (rows[slash]["outcome"], rows[slash]["final_url"]) == ("fetched", slash + "/")


@pytest.mark.usefixtures("names")  # which knows none of these hosts
def test_the_archived_robots_txt_of_a_gone_site_is_obeyed(crawl_archive: LocalCommonCrawl) -> None:
    """A site without one, or whose own moved, allows everything. One that can't be read forbids everything."""
    rules = b"User-agent: *\nDisallow: /closed"
    hosts = ("gone", "moved", "bare", "same")
    urls = [f"http://{host}.example/{path}" for host in hosts for path in ("closed", "open")]
    for url in urls:
        crawl_archive.page(url)
    gone, moved, same = (f"http://{host}.example/robots.txt" for host in ("gone", "moved", "same"))
    crawl_archive.page(gone, "2017-11-01", rules, content_mime_detected="text/x-robots")
    crawl_archive.page(gone, "2017-12-01", b"", content_mime_detected="text/x-robots")  # is farther from the vote
    crawl_archive.redirect(moved, "/")
    crawl_archive.revisit(same, same, rules, "2017-12-01", "2017-11-01")
    rows = crawl_archive.crawl(urls, contact="https://example.org/", take_gone_sites=True)
    reasons = ["robots_disallowed", *[None] * 5, "robots_unreachable", "robots_unreachable"]
    assert [rows[url]["reason"] for url in urls] == reasons
    [notice] = rows[urls[0]]["opt_out_evidence"]
    source = f"{gone} in common-crawl"
    assert notice == {"rule": "robots_disallowed", "source": source, "noticed": seconds("2017-11-01")}
    assert sum(row["requests"] for row in rows.values()) == 1, "the pages are neighbours"
    rows = crawl_archive.crawl(urls, "more", contact="https://example.org/", take_gone_sites=True, obey_robots=False)
    assert (rows[urls[0]]["outcome"], rows[urls[0]]["opt_outs"]) == ("fetched", ["robots_disallowed"])


@pytest.mark.usefixtures("names")
def test_redirects_and_revisits_of_gone_sites_obey_robots_txt(crawl_archive: LocalCommonCrawl) -> None:
    start, end, other = "http://start.example/a", "http://end.example/b", "http://end.example/c"
    crawl_archive.redirect(start, end)
    crawl_archive.revisit(end, other, b"<html>c", "2017-12-01", "2017-11-01")
    crawl_archive.page(other, "2017-11-01", b"<html>c")
    rows = crawl_archive.crawl([start], contact="https://example.org/", take_gone_sites=True)
    assert (rows[start]["outcome"], rows[start]["final_url"]) == ("fetched", end)
    crawl_archive.page("http://end.example/robots.txt", body=b"User-agent: GPTBot\nDisallow: /b")
    rows = crawl_archive.crawl([start], "more", contact="https://example.org/", take_gone_sites=True)
    assert rows[start]["reason"] == "robots_disallowed_ai_training"


def test_links_under_one_key_share_no_page(crawl_archive: LocalCommonCrawl) -> None:
    """The best capture of two links is of a third URL: only one of them gets it. A link's own capture is its own."""
    plain, slash = crawl_archive.web.url("/a"), crawl_archive.web.url("/a/")
    upper, own = crawl_archive.web.url("/A"), crawl_archive.web.url("/a?")
    crawl_archive.page(own)
    rows = crawl_archive.crawl([plain, slash, upper])
    assert sorted(row["outcome"] for row in rows.values()) == ["fetched", "linked", "linked"]
    rows = crawl_archive.crawl([plain, slash, own], "more")
    assert (rows[own]["outcome"], rows[plain]["outcome"], rows[slash]["outcome"]) == ("fetched", "linked", "linked")


def test_row_groups_that_no_link_needs_are_not_read(crawl_archive: LocalCommonCrawl, tmp_path: Path) -> None:
    """The second row group is overwritten, so that reading it fails."""
    first, second = crawl_archive.web.url("/a"), crawl_archive.web.url("/b")
    crawl_archive.page(first)
    crawl_archive.page(second)
    crawl_archive.write_index(row_group_size=1)
    [path] = (tmp_path / "cc/index").rglob("*.parquet")
    group = pq.read_metadata(path).row_group(1)
    columns = [group.column(i) for i in range(group.num_columns)]
    start = min(column.dictionary_page_offset or column.data_page_offset for column in columns)
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(b"\xff" * sum(column.total_compressed_size for column in columns))
    [row] = crawl_archive.crawl([first]).values()
    assert row["outcome"] == "fetched"
    with pytest.raises(InputError, match="the index cannot be read"):
        crawl_archive.crawl([first, second], "more")


def test_blocks_of_links_and_files_of_the_index_make_no_difference(
    crawl_archive: LocalCommonCrawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [crawl_archive.web.url(f"/{i:03}") for i in range(60)]
    for url in urls:
        crawl_archive.page(url)
    crawl_archive.write_index(row_group_size=7)
    crawl_archive.write_index(row_group_size=11, name="crawl=CC-MAIN-2018-05/subset=warc/part-0.parquet")
    crawl_archive.write_index(name="crawl=CC-MAIN-2018-05/subset=crawldiagnostics/part-0.parquet")
    monkeypatch.setattr(cc_index, "LINKS_AT_A_TIME", 4)
    rows = crawl_archive.crawl(urls[::3])
    assert len(rows) == 20
    assert {row["outcome"] for row in rows.values()} == {"fetched"}


def test_the_current_robots_txt_is_checked_before_the_archive(crawl_archive: LocalCommonCrawl) -> None:
    web = crawl_archive.web
    web.page("/robots.txt", "User-agent: CCBot\nDisallow: /no", "Content-Type: text/plain")
    no, yes = web.url("/no"), web.url("/yes")
    for url in (no, yes):
        crawl_archive.page(url)
    rows = crawl_archive.crawl([no, yes])
    assert (rows[no]["outcome"], rows[no]["reason"]) == ("refused", "robots_disallowed_ai_training")
    assert rows[yes]["outcome"] == "fetched"
    assert sum(end - start for start, end in crawl_archive.ranges) < 2000
    assert web.paths() == []


def test_an_opt_out_in_an_archived_page_is_obeyed(crawl_archive: LocalCommonCrawl) -> None:
    url = crawl_archive.web.url("/noai")
    crawl_archive.page(url, body=b"<html><head><meta name=robots content=noai></head><body>")
    [row] = crawl_archive.crawl([url]).values()
    assert (row["outcome"], row["reason"]) == ("refused", "noai_meta")


def test_a_record_that_contradicts_the_index_fails_alone(crawl_archive: LocalCommonCrawl) -> None:
    web = crawl_archive.web
    bad = {
        web.url("/digest"): {"content_digest": "A" * 32},
        web.url("/short"): {"warc_record_length": 99},
        web.url("/beyond"): {"warc_record_offset": 30_000},
        web.url("/middle"): {"warc_record_offset": 77},
        web.url("/path"): {"warc_filename": "../../etc/passwd"},
        web.url("/host"): {"warc_filename": "//10.0.0.1/x"},
        web.url("/nofile"): {"warc_filename": "crawl-data/none.warc.gz"},
    }
    good = [web.url(f"/good{i}") for i in range(3)]
    crawl_archive.page(good[0])
    for url, columns in bad.items():
        crawl_archive.page(url, **columns)
    other = web.url("/other")
    crawl_archive.row(other, "2017-12-01", 200, 300, b"")
    for url in good[1:]:
        crawl_archive.page(url)
    rows = crawl_archive.crawl([*good, *bad, other])
    assert {url: rows[url]["reason"] for url in [*bad, other]} == dict.fromkeys([*bad, other], "archive_damaged")
    assert {rows[url]["outcome"] for url in good} == {"fetched"}


PART = b"HTTP/1.1 206 Partial Content\r\n"


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(PART + b"Content-Range: bytes 0-99/100\r\n\r\n")
    while True:
        writer.write(bytes(65536))
        await writer.drain()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        PART + b"Content-Length: 3\r\n\r\nabc",
        PART + b"Content-Range: bytes 0-2/9\r\nContent-Length: 3\r\n\r\nabc",
        PART + b"Content-Range: bytes 0-999999999/1000000000\r\nContent-Length: 1000000000\r\n\r\nabc",
        PART + b"Content-Range: items 1\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        endless,
    ],
    ids=["whole", "no range", "other range", "huge", "odd", "endless"],
)
def test_wrong_answers_of_a_file_server_are_detected(answer: Any, crawl_archive: LocalCommonCrawl) -> None:
    urls = [crawl_archive.web.url(f"/{i}") for i in range(2)]
    for url in urls:
        crawl_archive.page(url)
    crawl_archive.web.answer = lambda host, path: answer if path == f"/{FILE}" else crawl_archive.answer(host, path)
    rows = crawl_archive.crawl(urls)
    assert {row["reason"] for row in rows.values()} == {"archive_damaged"}


def test_a_folder_works_like_a_file_server(crawl_archive: LocalCommonCrawl, tmp_path: Path) -> None:
    url = crawl_archive.web.url("/a")
    crawl_archive.page(url)
    settings = {"cc_data": str(tmp_path / "cc/data")}
    [row] = crawl_archive.crawl([url], **settings).values()
    assert row["outcome"] == "fetched"
    assert crawl_archive.ranges == []


def test_a_busy_file_server_is_asked_less_and_a_failing_one_ends_the_run(
    crawl_archive: LocalCommonCrawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_server, "RETRY_SECONDS", 0.005)
    urls = [crawl_archive.web.url(f"/{i}") for i in range(8)]
    for url in urls:
        crawl_archive.page(url)
        crawl_archive.page("http://b.example/", body=url.encode() * 300)
    n_busy = 3

    def answer(host: str, path: str) -> Any:
        nonlocal n_busy
        if path == f"/{FILE}" and n_busy:
            n_busy -= 1
            return b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
        return crawl_archive.answer(host, path)

    crawl_archive.web.answer = answer
    settings = {"max_gap": 100}
    rows = crawl_archive.crawl(urls, **settings)
    assert {row["outcome"] for row in rows.values()} == {"fetched"}
    assert sum(row["requests"] for row in rows.values()) == 8 + 3
    n_busy = 1_000_000
    with pytest.raises(NetworkError, match="HTTP status 403"):
        crawl_archive.crawl(urls, "more", **settings)


@pytest.mark.parametrize("what", ["missing", "empty", "no parquet", "another table"])
def test_an_invalid_index_is_rejected(what: str, crawl_archive: LocalCommonCrawl, tmp_path: Path) -> None:
    folder = tmp_path / "cc/index"
    if what != "missing":
        folder.mkdir(parents=True)
    if what == "no parquet":
        (folder / "a.parquet").write_bytes(b"no parquet at all")
    if what == "another table":
        pq.write_table(pa.table({"a": [1]}), folder / "a.parquet")
    with pytest.raises(InputError, match="index"):
        crawl_archive.crawl([crawl_archive.web.url("/a")])


@pytest.mark.parametrize("path", ["na\udcefve", "no-such-store://index"])
def test_an_index_whose_name_is_no_place_is_rejected(path: str) -> None:
    with pytest.raises(InputError, match="no index in '"):
        cc_index.open_index([path])


def test_real_records_of_common_crawl_fit_their_index(shared_data: Path) -> None:
    """Answers of index.commoncrawl.org and data.commoncrawl.org, as recorded by cdx_toolkit."""
    n_checked = 0
    for name in ("cdxt_test_warc_prefix_1", "cdxt_test_capture_object"):
        index: dict[str, dict[str, str]] = {}
        for line in (shared_data / f"crawl/cc/{name}.jsonl").read_text().splitlines():
            answer = json.loads(line)
            if answer["url"].startswith("https://index.") and answer["response_status_code"] == 200:
                index |= {row["filename"]: row for row in map(json.loads, answer["response_text"].splitlines())}
            elif answer["url"].startswith("https://data."):
                row = index[answer["url"].split(".org/", 1)[1]]
                record = read_archived_record(base64.b64decode(answer["response_text"]), 1_000_000)
                assert row["digest"] in record.digests
                assert surt(record.capture.url) == row["urlkey"]
                assert time.strftime("%Y%m%d%H%M%S", time.gmtime(record.capture.captured)) == row["timestamp"]
                assert record.capture.head is not None
                assert record.capture.head.startswith(b"HTTP/1.1 " + row["status"].encode())
                n_checked += 1
    assert n_checked == 3


@pytest.mark.parametrize("n_bytes", [10, 1_000_000, 50_000_000])
def test_a_record_that_decompresses_to_too_much_is_rejected_early(n_bytes: int) -> None:
    import gzip

    block = b"HTTP/1.1 200 OK\r\n\r\n" + bytes(n_bytes)
    head = (
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.example/\r\nWARC-Date: 2017-01-01T00:00:00Z\r\n"
    )
    head += f"Content-Type: application/http\r\nContent-Length: {len(block)}\r\n\r\n"
    member = gzip.compress(head.encode() + block + b"\r\n\r\n")
    if n_bytes < 100:
        assert read_archived_record(member, 100).capture.body == bytes(10)
        return
    with pytest.raises(FetchFailed, match="too_large"):
        read_archived_record(member, 100_000)


def test_the_index_may_be_at_an_fsspec_url(crawl_archive: LocalCommonCrawl, tmp_path: Path) -> None:
    url = crawl_archive.web.url("/a")
    crawl_archive.page(url)
    crawl_archive.write_index()
    fsspec.filesystem("memory").put(str(tmp_path / "cc/index"), "/cc-index", recursive=True)
    settings = {"cc_index": ("memory://cc-index",)}
    [row] = crawl_archive.crawl([url], **settings).values()
    assert row["outcome"] == "fetched"


def test_a_crawl_from_archives_resumes(crawl_archive: LocalCommonCrawl) -> None:
    archived, living = crawl_archive.web.url("/archived"), crawl_archive.web.page("/living")
    crawl_archive.page(archived)
    settings = {"sources": ("common-crawl", "web")}
    rows = crawl_archive.crawl([archived], **settings)
    n_asked = len(crawl_archive.web.requests)
    assert crawl_archive.crawl([archived], **settings) == rows
    assert len(crawl_archive.web.requests) == n_asked
    rows = crawl_archive.crawl([archived, living], **settings)
    assert {url: row["source"] for url, row in rows.items()} == {archived: "common-crawl", living: "web"}
    assert len(crawl_archive.ranges) == 1
    with pytest.raises(InputError, match="sources was"):
        crawl_archive.crawl([archived, living], **settings | {"sources": ("web", "common-crawl")})


def test_a_join_that_is_closed_while_another_thread_chooses_ends_after_its_block(monkeypatch: Any) -> None:
    """As by Ctrl-C: SQLite crashed."""
    join = cc_index.LinkJoin()
    closing = threading.Thread(target=join.close)

    def chosen(rows: Any, *_: Any) -> Any:
        closing.start()
        time.sleep(0.1)
        yield from ((row.id, row.url, None, "file", 0, 1) for row in rows)

    monkeypatch.setattr(cc_index, "_chosen", chosen)
    monkeypatch.setattr(cc_index, "LINKS_AT_A_TIME", 1)
    for url in ("http://a.example/1", "http://a.example/2"):
        link = cc_index.QueuedLink(link_id=url, url=url, karma=3, split="train", voted=0)
        join.add(cc_index.Lookup(link, cc_index.Visit(url=url, at=url)))
    join.choose(None, None)
    closing.join()


SCRATCH = """
import contextlib, os
from webtext.crawl.archives.cc_index import LinkJoin, Lookup
from webtext.crawl.pages.visit import QueuedLink, Visit
with contextlib.closing(LinkJoin()) as join:
    for i in range(20_000):
        url = f"http://a.example/{i}"
        link = QueuedLink(link_id=f"{i:032x}", url=url, karma=3, split="train", voted=0)
        join.add(Lookup(link, Visit(url=url, at=url)))
    folder = os.environ["TMPDIR"]
    paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    files = [os.readlink(path) for path in paths if os.path.lexists(path)]
    print(os.listdir(folder), any(file.startswith(folder) and file.endswith("(deleted)") for file in files))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at open files as Linux shows them")
def test_scratch_files_have_no_name(tmp_path: Path) -> None:
    """So a killed run leaves nothing behind."""
    said = subprocess.run(
        [sys.executable, "-c", SCRATCH], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert said.stdout == "[] True\n", said.stderr


def test_the_small_index_has_columns_of_the_published_one(shared_data: Path) -> None:
    types = {"string": pa.string(), "timestamp": pa.timestamp("ms"), "short": pa.int16(), "integer": pa.int32()}
    fields = json.loads((shared_data / "crawl/cc/cc-index-schema-flat.json").read_text())["fields"]
    published = {field["name"]: types[field["type"]] for field in fields}
    assert {field.name: field.type for field in SCHEMA}.items() <= published.items()
