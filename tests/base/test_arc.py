"""ARC files: every HTTP response is read or counted as damage, in both versions, plain and gzip."""

from __future__ import annotations

import gzip
import io
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator

from webtext.base.storage import Folder
from webtext.base.warc.arc import read_arc
from webtext.base.warc.reader import Response, read_response_at, read_responses
from webtext.base.warc.response import MAX_RECORD_BYTES

MIB = 1 << 20
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
FIELDS = {
    1: "URL IP-address Archive-date Content-type Archive-length",
    2: "URL IP-address Archive-date Content-type Result-code Checksum Location Offset Filename Archive-length",
}


def record(url: str, block: bytes, version: int = 1, length: int | None = None) -> bytes:
    more = " 200 6ad3c1 - 120 test.arc" if version == 2 else ""
    size = len(block) if length is None else length
    return f"{url} 93.184.216.34 20050102030405 text/html{more} {size}\n".encode() + block + b"\n"


def page(number: int, version: int = 1, length: int | None = None) -> bytes:
    block = HEAD + b"<p>page %d</p>" % number * 20
    return record(f"http://example.com/{number} of 9", block, version, length)


def first(version: int = 1) -> bytes:
    about = f"{version} 0 InternetArchive\n{FIELDS[version]}\n".encode()
    return record("filedesc://test.arc", about).replace(b"93.184.216.34", b"0.0.0.0").replace(b"html", b"plain")


def whole(version: int = 1) -> list[bytes]:
    dns = record("dns:example.com", b"20050102030405\nexample.com. 10 IN A 93.184.216.34\n", version)
    return [first(version), dns, *(page(number, version) for number in range(3))]


def read(folder: Path, data: bytes, name: str = "a.arc.gz") -> list[Response]:
    (folder / name).write_bytes(data)
    return list(read_responses(Folder(folder), name))


def numbers(responses: Sequence[Response]) -> list[str]:
    return [found.damage or found.url[19] for found in responses]


PACKINGS = {
    "plain": b"".join,
    "gzip per record": lambda records: b"".join(map(gzip.compress, records)),
    "whole-file gzip": lambda records: gzip.compress(b"".join(records)),
}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("version", [1, 2])
def test_every_response_is_read_in_both_versions_and_any_packing(version: int, packing: str, tmp_path: Path) -> None:
    found = read(tmp_path, PACKINGS[packing](whole(version)))
    assert numbers(found) == ["0", "1", "2"]
    assert (found[0].url, found[0].date) == ("http://example.com/0 of 9", "2005-01-02T03:04:05Z")
    assert (found[0].status, found[0].content_type, found[0].captured) == (200, "text/html", 1104635045)
    assert found[0].body(MIB) == b"<p>page 0</p>" * 20


def test_responses_are_those_that_warcio_reads(tmp_path: Path) -> None:
    found = read(tmp_path, PACKINGS["gzip per record"](whole()))
    with open(tmp_path / "a.arc.gz", "rb") as file:
        theirs = [
            (one.rec_headers.get_header("WARC-Target-URI"), one.content_stream().read())
            for one in ArchiveIterator(file, arc2warc=True)
            if one.rec_type == "response" and one.http_headers is not None
        ]
    assert [(one.url.replace(" ", "%20"), one.body(MIB)) for one in found] == theirs


@pytest.mark.parametrize("packing", ["plain", "gzip per record"])
def test_offset_and_length_give_the_record_alone(packing: str, tmp_path: Path) -> None:
    for each in read(tmp_path, PACKINGS[packing](whole())):
        assert each.offset is not None
        assert each.length is not None
        alone = read_response_at(Folder(tmp_path), "a.arc.gz", each.offset, each.length)
        assert (alone.url, alone.date, alone.raw) == (each.url, each.date, each.raw)


def test_records_of_one_gzip_member_have_no_offset(tmp_path: Path) -> None:
    assert {each.offset for each in read(tmp_path, PACKINGS["whole-file gzip"](whole()))} == {None}


@pytest.mark.parametrize("packing", ["plain", "gzip per record"])
@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (b"this is not a record\nnor is this\n", "damaged_record"),
        (b"http://example.com/x 1.2.3.4 2005 text/html 10\n0123456789\n", "damaged_record"),
        (b"http://example.com/x 1.2.3.4 20050102030405 text/html -1\n", "damaged_record"),
        (record("http://example.com/x", b"no HTTP\n"), "damaged_http"),
    ],
)
def test_damage_counts_once_and_the_next_is_read(damaged: bytes, said: str, packing: str, tmp_path: Path) -> None:
    found = read(tmp_path, PACKINGS[packing]([first(), page(0), damaged, page(1)]))
    assert numbers(found) == ["0", said, "1"]


@pytest.mark.parametrize("place", [0, 3, 11, 40, -6])
def test_a_damaged_member_costs_one_record(place: int, tmp_path: Path) -> None:
    members = [bytearray(gzip.compress(each)) for each in whole()]
    members[3][place] ^= 0x5A
    found = numbers(read(tmp_path, b"".join(members)))
    assert [each for each in found if each.isdigit() and each != "1"] == ["0", "2"]
    assert found.count("1") + found.count("damaged_record") >= 1


@pytest.mark.parametrize("packing", ["plain", "gzip per record"])
def test_a_file_cut_short_loses_its_last_record_and_says_so(packing: str, tmp_path: Path) -> None:
    data = PACKINGS[packing](whole())
    last = len(PACKINGS[packing](whole()[:-1]))
    for end in range(last + 1, len(data) - 9, 7):
        found = numbers(read(tmp_path, data[:end]))
        assert found[:2] == ["0", "1"]
        assert found[2:] in (["damaged_record"], ["record_cut_short"], ["damaged_http"])


def test_a_record_above_the_bound_is_counted_not_loaded_nor_searched_for_records() -> None:
    """A page may contain text that looks like records: everything behind the bound is skipped by its length."""
    room = MAX_RECORD_BYTES + 10
    block = (HEAD + page(7) * (room // len(page(7)) + 1))[:room]
    found = list(read_arc(io.BytesIO(b"".join([first(), record("http://example.com/x", block), page(1)]))))
    assert numbers(found) == ["record_too_large", "1"]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_counted(data: bytes) -> None:
    found = list(read_arc(io.BytesIO(first() + page(0) + data)))
    assert numbers(found[:1]) == ["0"]
    assert len(found) > 1 or not data.strip() or b":" in data


HOSTILE = {
    "lines of dates without a length": (b"a:" + b" x 20170101000000 " * 3000 + b"\n") * 20,
    "lines of dates that nearly have one": (b"a:b" + b" 1 20170101000000 1" * 3000 + b"x\n") * 20,
    "lines of blanks": (b"a:" + b" " * 60_000 + b"\n") * 20,
    "one line of 5 MB": b"x" * 5_000_000 + b"\n",
    "starts of gzip members": b"\x1f\x8b\x08" * 60_000 + b"\n",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_lines_take_linear_time_and_the_next_record_is_read(
    what: str, tmp_path: Path, linear_time: None
) -> None:
    """The first two took 1.1 s for one line: a hundred of them would take more than a minute."""
    assert numbers(read(tmp_path, first() + HOSTILE[what] * 5 + page(1), "a.arc")) == ["damaged_record", "1"]


@pytest.mark.parametrize("line", [b"\n", pytest.param(b"x\n", marks=pytest.mark.slow)])
def test_a_small_member_of_a_hundred_million_lines_is_skipped(line: bytes, tmp_path: Path) -> None:
    members = [first(), line * (180_000_000 // len(line)), page(1)]
    data = b"".join(map(gzip.compress, members))
    assert len(data) < 200_000
    begun = time.process_time()
    assert numbers(read(tmp_path, data)) == ["damaged_record", "1"]
    assert time.process_time() - begun < 10  # 0.04 s on an idle machine; reading all lines took 22 s
