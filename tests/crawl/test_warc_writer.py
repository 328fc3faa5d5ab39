"""WARC files, checked with warcio and FastWARC."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecordType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from warc_exchanges import BODY, bodies_by_fastwarc, bodies_by_warcio, exchange, write
from warcio.archiveiterator import ArchiveIterator

from webtext.crawl.fetch.answers import identified_type
from webtext.crawl.pages.exchange import Exchange
from webtext.crawl.pages.warc_writer import index_line, read_index_line


def test_warcio_reads_every_record_with_its_headers_and_right_digests(tmp_path: Path) -> None:
    write(tmp_path / "a.warc.gz", exchange())
    with open(tmp_path / "a.warc.gz", "rb") as file:
        records = []
        for record in ArchiveIterator(file, check_digests="raise"):
            records.append((record.rec_type, record.content_stream().read(), record))
    assert [kind for kind, *_ in records] == ["warcinfo", "response", "request"]
    assert records[0][1] == b"software: webtext/test\r\n"
    response, request = records[1][2], records[2][2]
    assert records[1][1] == BODY
    header = response.rec_headers.get_header
    assert header("WARC-Target-URI") == "http://example.com/a?b=c"
    assert header("WARC-Date") == "2023-11-14T22:13:20Z"
    assert header("WARC-IP-Address") == "8.8.8.8"
    assert header("WARC-Identified-Payload-Type") == "text/html"
    assert header("WARC-Payload-Digest") == "sha1:" + base64.b32encode(hashlib.sha1(BODY).digest()).decode()
    assert request.rec_headers.get_header("WARC-Concurrent-To") == header("WARC-Record-ID")
    assert response.rec_headers.protocol == "WARC/1.1"


def test_fastwarc_verifies_the_digests(tmp_path: Path) -> None:
    """A body has a payload digest and other blocks have a block digest, so nothing is hashed twice."""
    write(tmp_path / "a.warc.gz", exchange(), exchange(b"other"), exchange(url="http://example.com/again"))
    with open(tmp_path / "a.warc.gz", "rb") as file:
        kinds = []
        for record in FastIterator(file, parse_http=False):
            kinds.append(record.headers["WARC-Type"])
            if record.record_type == WarcRecordType.response:
                record.parse_http()
                assert record.verify_payload_digest()
            else:
                assert record.verify_block_digest()
    assert kinds == ["warcinfo", "response", "request", "response", "request", "revisit", "request"]


def test_a_url_cannot_forge_a_header_or_a_line_of_the_index(tmp_path: Path) -> None:
    [stored] = write(tmp_path / "a.warc.gz", exchange(url="http://example.com/\r\nWARC-Type: metadata\n{} x"))
    url = "http://example.com/%0D%0AWARC-Type:%20metadata%0A{}%20x"
    with open(tmp_path / "a.warc.gz", "rb") as file:
        records = [(r.rec_type, r.rec_headers.get_header("WARC-Target-URI")) for r in ArchiveIterator(file)]
    assert records == [("warcinfo", None), ("response", url), ("request", url)]
    _, fields = read_index_line(stored.index_line)
    assert fields["url"] == url


def test_a_year_has_four_digits_so_that_the_index_can_be_read_back() -> None:
    long_ago = -33_765_897_600
    assert read_index_line(index_line("http://example.com/", long_ago))[0] == long_ago


def test_a_body_of_many_blocks_is_written_completely(tmp_path: Path) -> None:
    body = bytes(range(256)) * 4096 * 80  # 80 MiB: more pieces than one call takes
    write(tmp_path / "a.warc.gz", exchange(body))
    [found] = bodies_by_fastwarc(tmp_path / "a.warc.gz")
    assert found == body


def test_the_http_header_is_stored_byte_for_byte(tmp_path: Path) -> None:
    [place] = write(tmp_path / "a.warc.gz", exchange())
    member = (tmp_path / "a.warc.gz").read_bytes()[place.offset : place.offset + place.length]
    block = gzip.decompress(member).split(b"\r\n\r\n", 1)[1]
    assert block == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nx-Odd: \xff kept\r\n\r\n" + BODY + b"\r\n\r\n"
    )


def test_a_chunked_reply_is_stored_with_a_header_that_fits_its_body(tmp_path: Path) -> None:
    write(tmp_path / "a.warc.gz", exchange(BODY, (b"transfer-Encoding", b"chunked"), (b"Content-Length", b"999")))
    with open(tmp_path / "a.warc.gz", "rb") as file:
        [response] = [r.http_headers.headers for r in ArchiveIterator(file) if r.rec_type == "response"]
    assert response == [("X-Crawler-Transfer-Encoding", "chunked"), ("Content-Length", str(len(BODY)))]
    assert bodies_by_warcio(tmp_path / "a.warc.gz") == bodies_by_fastwarc(tmp_path / "a.warc.gz") == [BODY]


def test_a_gzipped_body_stays_as_it_came_and_is_decoded_by_readers(tmp_path: Path) -> None:
    wire = gzip.compress(BODY)
    write(tmp_path / "a.warc.gz", exchange(wire, (b"Content-Encoding", b"gzip")))
    assert wire in gzip.decompress((tmp_path / "a.warc.gz").read_bytes())
    assert bodies_by_warcio(tmp_path / "a.warc.gz") == bodies_by_fastwarc(tmp_path / "a.warc.gz") == [BODY]


def test_each_line_of_the_index_finds_its_record_alone(tmp_path: Path) -> None:
    urls = [f"http://example.com/{name}" for name in "cab"]
    write(tmp_path / "a.warc.gz", *(exchange(url.encode(), url=url) for url in urls))
    data = (tmp_path / "a.warc.gz").read_bytes()
    lines = (tmp_path / "a.warc.cdxj").read_text().splitlines()
    assert [line.split(" ")[:2] for line in lines] == [[f"com,example)/{n}", "20231114221320"] for n in "abc"]
    for line in lines:
        fields = json.loads(line.split(" ", 2)[2])
        start = int(fields["offset"])
        member = data[start : start + int(fields["length"])]
        record = next(iter(ArchiveIterator(io.BytesIO(member))))
        assert record.rec_headers.get_header("WARC-Target-URI") == fields["url"]
        assert record.content_stream().read().decode() == fields["url"]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bodies=st.lists(st.binary(min_size=1, max_size=3000), min_size=1, max_size=4, unique=True),
    large=st.sampled_from([0, 65_535, 200_000]),
)
def test_any_bytes_come_back_from_both_readers(tmp_path: Path, bodies: list[bytes], large: int) -> None:
    bodies = [*bodies, b"", b"", b"x" * (large + 3001)]  # an empty body needs no revisit
    write(tmp_path / "a.warc.gz", *(exchange(body) for body in bodies))
    assert bodies_by_warcio(tmp_path / "a.warc.gz") == bodies
    assert bodies_by_fastwarc(tmp_path / "a.warc.gz") == bodies


@pytest.mark.parametrize(
    ("body", "encoding", "kind"),
    [
        (b"%PDF-1.7 ...", "", "application/pdf"),
        (b"\x89PNG\r\n\x1a\n...", "", "image/png"),
        (b"\xef\xbb\xbf \n<!DOCTYPE html>", "", "text/html"),
        (gzip.compress(b"%PDF-1.7", mtime=0), "gzip", "application/pdf"),
        (gzip.compress(b"<html>" + bytes(5_000_000), mtime=0), "gzip", "text/html"),
        (b"<html>", "gzip", "text/html"),
        (b"<html>", "br", "text/html"),
        (b"%PDF-1.7", "utf-8", "application/pdf"),
        (b"words", "", None),
        (b"", "", None),
    ],
)
def test_the_type_of_a_page_is_found_from_its_first_bytes(body: bytes, encoding: str, kind: str | None) -> None:
    assert identified_type(body, "", encoding) == kind


def test_an_archived_record_keeps_its_bytes_and_names_its_source(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 fine\nContent-Type:text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    archived = Exchange(
        url="http://example.com/",
        captured=1_400_000_000,
        status=200,
        status_line=b"HTTP/1.1 200 fine",
        headers=[(b"Content-Type", b"text/html"), (b"Transfer-Encoding", b"chunked")],
        body=b"6\r\n<html>\r\n0\r\n\r\n",
        identified_type="text/html",
        head=head,
        origin=[("WARC-Source-URI", "https://archive.example/x")],
    )
    write(tmp_path / "a.warc.gz", archived)
    assert head + archived.body in gzip.decompress((tmp_path / "a.warc.gz").read_bytes())
    assert bodies_by_warcio(tmp_path / "a.warc.gz") == [b"<html>"]
    with open(tmp_path / "a.warc.gz", "rb") as file:
        records = [
            (r.rec_type, r.rec_headers) for r in ArchiveIterator(file, check_digests="raise") if r.raw_stream.read()
        ]
    assert [kind for kind, _ in records] == ["warcinfo", "response"]
    assert records[1][1].get_header("WARC-Source-URI") == "https://archive.example/x"
    assert records[1][1].get_header("WARC-Date") == "2014-05-13T16:53:20Z"
    assert records[1][1].get_header("WARC-IP-Address") is None
