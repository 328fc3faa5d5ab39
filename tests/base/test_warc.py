"""WARC files: every response is read or counted as damage, whatever the file looks like."""

from __future__ import annotations

import contextlib
import gzip
import io
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.base.warc.reader import Response, read_response_at, read_responses
from webtext.base.web.content_coding import BodyError

MIB = 1 << 20


def record(url: str, block: bytes, kind: str = "response", length: int | None = None) -> bytes:
    mime = "application/http; msgtype=response" if kind in ("response", "request") else "application/warc-fields"
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2020-02-03T04:05:06Z\r\n"
        f"WARC-Record-ID: <urn:uuid:12345678-1234-1234-1234-123456789abc>\r\nContent-Type: {mime}\r\n"
        f"Content-Length: {len(block) if length is None else length}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def response(number: int, body: bytes | None = None, headers: str = "", length: int | None = None) -> bytes:
    text = body if body is not None else f"<p>page {number}</p>".encode() * 20
    block = f"HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; charset=utf-8\r\n{headers}\r\n".encode() + text
    return record(f"http://example.com/{number}", block, length=length)


def read(folder: Path, data: bytes, name: str = "a.warc.gz") -> list[Response]:
    (folder / name).write_bytes(data)
    return list(read_responses(Folder(folder), name))


def numbers(responses: list[Response]) -> list[str]:
    """Return the page number of each response, or its damage."""
    return [found.damage or found.url.rpartition("/")[2] for found in responses]


def lz4(data: bytes) -> bytes:
    """Return an LZ4 frame of blocks of at most 64 KiB, stored uncompressed."""
    blocks = [data[start : start + (64 << 10)] for start in range(0, len(data), 64 << 10)]
    stored = b"".join((len(block) | 1 << 31).to_bytes(4, "little") + block for block in blocks)
    return b"\x04\x22\x4d\x18\x60\x40\x82" + stored + bytes(4)


PACKINGS = {
    "plain": lambda records: b"".join(records),
    "gzip per record": lambda records: b"".join(map(gzip.compress, records)),
    "zstd per record": lambda records: b"".join(map(zstandard.ZstdCompressor().compress, records)),
    "lz4 per record": lambda records: b"".join(map(lz4, records)),
    "whole-file gzip": lambda records: gzip.compress(b"".join(records)),
}
THREE = [record("", b"software: x\r\n", "warcinfo"), response(0), record("dns:x", b"x", "request")]
THREE += [response(1), response(2)]


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_response_is_read_whatever_the_packing(packing: str, tmp_path: Path) -> None:
    found = read(tmp_path, PACKINGS[packing](THREE))
    assert numbers(found) == ["0", "1", "2"]
    first = found[0]
    assert (first.status, first.content_type, first.captured) == (200, "text/html", 1580702706)
    assert first.http_headers.get("content-TYPE") == "Text/HTML; charset=utf-8"
    assert first.warc_headers.get("warc-type") == "response"
    assert first.body(MIB) == b"<p>page 0</p>" * 20


@pytest.mark.parametrize("packing", ["plain", "gzip per record", "zstd per record", "lz4 per record"])
def test_offset_and_length_name_the_bytes_of_the_record_alone(packing: str, tmp_path: Path) -> None:
    found = read(tmp_path, PACKINGS[packing](THREE))
    for expected in found:
        assert expected.offset is not None
        assert expected.length is not None
        again = read_response_at(Folder(tmp_path), "a.warc.gz", expected.offset, expected.length)
        assert (again.url, again.raw, again.offset, again.length) == (
            expected.url, expected.raw, expected.offset, expected.length,
        )  # fmt: skip
    packed = [PACKINGS[packing]([one]) for one in THREE]
    assert [(one.offset, one.length) for one in found] == [
        (sum(map(len, packed[:index])), len(packed[index])) for index in (1, 3, 4)
    ]


def test_records_of_one_gzip_member_have_no_offset_of_their_own(tmp_path: Path) -> None:
    pages = [response(number, body=bytes(range(256)) * 300) for number in range(5)]
    assert [(one.offset, one.length) for one in read(tmp_path, gzip.compress(b"".join(pages)))] == [(None, None)] * 5


@pytest.mark.parametrize("packing", ["gzip per record", "zstd per record", "lz4 per record"])
def test_records_that_share_a_member_among_others_have_no_offset(packing: str, tmp_path: Path) -> None:
    """The second one had the member's place, where the first one would be read instead."""
    pages = [response(number) for number in range(4)]
    found = read(tmp_path, PACKINGS[packing]([pages[0], pages[1] + pages[2], pages[3]]))
    assert numbers(found) == ["0", "1", "2", "3"]
    assert [one.offset is None for one in found] == [one.length is None for one in found] == [False, True, True, False]


def test_a_place_without_a_response_is_an_error_that_names_it(tmp_path: Path) -> None:
    read(tmp_path, PACKINGS["plain"](THREE))
    with pytest.raises(InputError, match="no response record at offset 3 of"):
        read_response_at(Folder(tmp_path), "a.warc.gz", 3, 100)


def test_the_body_is_decoded_by_its_headers(tmp_path: Path) -> None:
    packed = gzip.compress(b"hello")
    block = b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
    (found,) = read(tmp_path, response(0, block, "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n"))
    assert found.body(MIB) == b"hello"
    assert found.raw == block


def test_a_body_above_the_bound_has_a_reason(tmp_path: Path) -> None:
    (found,) = read(tmp_path, response(0, gzip.compress(b"\0" * (50 * MIB)), "Content-Encoding: gzip\r\n"))
    with pytest.raises(BodyError, match="body_too_large: above 1,048,576 bytes"):
        found.body(MIB)


@pytest.mark.parametrize("packing", ["plain", "gzip per record", "zstd per record", "lz4 per record"])
@pytest.mark.parametrize(
    ("middle", "expected"),
    [
        (response(1, length=50_000), ["0", "record_cut_short", "2"]),  # too long: it runs into the next record
        (response(1, length=60), ["0", "1", "damaged_record", "2"]),  # too short: the rest of it isn't a record
        (response(1).replace(b"Content-Length", b"Content-Width", 1), ["0", "damaged_record", "2"]),
        (response(1).replace(b"WARC-Type", b"WARC-Tope", 1), ["0", "damaged_record", "2"]),
        (response(1, length=-5), ["0", "damaged_record", "2"]),
        (response(1, length=1 << 70), ["0", "damaged_record", "2"]),
        (record("http://example.com/1", b"GARBAGE 200 OK\r\n\r\nbody"), ["0", "damaged_http", "2"]),
        (record("http://example.com/1", b""), ["0", "damaged_http", "2"]),
    ],
)
def test_a_malformed_record_is_counted_and_the_next_one_is_read(
    packing: str, middle: bytes, expected: list[str], tmp_path: Path
) -> None:
    found = read(tmp_path, PACKINGS[packing]([response(0), middle, response(2)]))
    assert numbers(found) == expected
    for one in found:
        if one.damage:
            with pytest.raises(BodyError, match=one.damage):
                one.body(MIB)


@pytest.mark.parametrize("packing", ["plain", "gzip per record"])
def test_bytes_that_are_not_a_record_are_counted_once(packing: str, tmp_path: Path) -> None:
    pack = PACKINGS[packing]
    found = read(tmp_path, pack([response(0)]) + b"no record\n" * 1000 + pack([response(1)]))
    assert numbers(found) == ["0", "damaged_record", "1"]
    assert found[2].offset == len(pack([response(0)])) + 10_000


def test_two_damaged_members_in_a_row_count_twice_and_say_where(tmp_path: Path) -> None:
    members = [bytearray(gzip.compress(response(number))) for number in range(4)]
    members[1][-6] ^= 0xFF  # checksum
    members[2][-6] ^= 0xFF
    found = read(tmp_path, b"".join(members))
    assert numbers(found) == ["0", "damaged_record", "damaged_record", "3"]
    assert [one.offset for one in found] == [sum(map(len, members[:index])) for index in range(4)]


def test_a_file_that_begins_with_damage_is_read_from_its_first_record(tmp_path: Path) -> None:
    first, second, third = (bytearray(gzip.compress(response(number))) for number in range(3))
    assert numbers(read(tmp_path, bytes(first[5:] + second))) == ["damaged_record", "1"]
    second[-6] ^= 0xFF  # checksum
    assert numbers(read(tmp_path, bytes(first[5:] + second + third))) == ["damaged_record", "damaged_record", "2"]


@pytest.mark.parametrize(
    ("first", "bad"),
    [
        (response(0), b"WARC/\n"),
        (response(0), response(7, length=1 << 40)),
        (gzip.compress(b"filedesc:x 0.0.0.0 20050102030405 text/plain 0\n"), b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xff"),
    ],
    ids=["short lines", "long lengths", "members of ARC"],
)
def test_the_rest_of_a_file_with_far_more_damage_than_records_is_not_read(
    first: bytes, bad: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading resumed at each of the 6-byte lines, and each record of a wrong length was the rest of the file."""
    for module in ("scan", "arc"):
        monkeypatch.setattr(f"webtext.base.warc.{module}.MAX_MORE_DAMAGED", 10)
    assert 10 < len(read(tmp_path, first + bad * 30)) < 14


@pytest.mark.parametrize("flag", [4, 8, 16])
@pytest.mark.parametrize(
    ("victims", "expected"),
    [
        ([0], ["damaged_record", "1", "2", "3"]),
        ([1], ["0", "damaged_record", "2", "3"]),
        ([3], ["0", "1", "2", "damaged_record"]),
        ([0, 2], ["damaged_record", "1", "damaged_record", "3"]),
        ([1, 2], ["0", "damaged_record", "3"]),  # one stretch
        ([2, 3], ["0", "1", "damaged_record"]),
    ],
)
def test_a_flipped_gzip_flag_costs_no_other_record(
    flag: int, victims: list[int], expected: list[str], tmp_path: Path
) -> None:
    """RFC 1952: flags 4, 8, 16 announce an extra field, a name or a comment before the compressed data."""
    members = [bytearray(gzip.compress(response(number))) for number in range(4)]
    for victim in victims:
        members[victim][3] ^= flag
    assert numbers(read(tmp_path, b"".join(members))) == expected


@pytest.mark.parametrize("packing", ["gzip per record", "zstd per record", "lz4 per record"])
def test_a_file_cut_short_at_any_byte_says_so(packing: str, tmp_path: Path) -> None:
    first, second = (PACKINGS[packing]([response(number, b"text")]) for number in range(2))
    for n_kept in range(1, len(second)):
        found = numbers(read(tmp_path, first + second[:n_kept]))
        assert found[0] == "0"
        assert found[-1] in ("damaged_record", "record_cut_short"), n_kept


@pytest.mark.parametrize("size", [0, 65_000, 65_200, 65_300, 65_400, 65_536, 130_900, 131_072, 200_000])
def test_a_good_file_of_any_size_has_no_damage(size: int, tmp_path: Path) -> None:
    """fastwarc reads 64 KiB at a time; the file, stored uncompressed, ends near a multiple of that."""
    for pack in (lambda data: gzip.compress(data, compresslevel=0), gzip.compress):
        assert numbers(read(tmp_path, pack(response(0)) + pack(response(1, b"x" * size)))) == ["0", "1"]


def test_a_file_cut_short_loses_its_last_record_only(tmp_path: Path) -> None:
    data = PACKINGS["gzip per record"]([response(0), response(1, bytes(range(256)) * 4000)])
    assert numbers(read(tmp_path, data[:-2000])) == ["0", "record_cut_short"]
    assert numbers(read(tmp_path, PACKINGS["plain"]([response(0), response(1)])[:-200])) == ["0", "record_cut_short"]


@pytest.mark.parametrize("n_lost", [9, 20, 50, 100])
def test_a_small_record_cut_short_at_the_end_gives_no_body(n_lost: int, tmp_path: Path) -> None:
    pages = [" ".join(f"word {i * 7919 % 1009} of {n}" for i in range(150)).encode() for n in range(3)]
    data = PACKINGS["gzip per record"]([response(n, text) for n, text in enumerate(pages)])
    found = read(tmp_path, data[:-n_lost])
    assert [one.body(MIB) for one in found if not one.damage] == pages[:2]
    # The random bytes that mark the file's end continue the cut member: one time in fifty they aren't deflate data.
    assert [one.damage for one in found if one.damage] in (["record_cut_short"], ["damaged_record"])


def test_a_revisit_of_a_record_cut_short_gets_no_body(tmp_path: Path) -> None:
    text = " ".join(f"word {i * 7919 % 1009}" for i in range(150)).encode()
    (tmp_path / "a.warc.gz").write_bytes(gzip.compress(response(0, text))[:-50])
    fields = (
        b"WARC-Refers-To-Target-URI: http://example.com/0\r\nWARC-Refers-To-Date: 2020-02-03T04:05:06Z\r\n"
        b"WARC-Refers-To-Filename: a.warc.gz\r\nWARC-Refers-To-File-Offset: 0\r\nContent-Type: application/http\r\n"
    )
    revisit = record("http://example.com/1", b"HTTP/1.1 200 OK\r\n\r\n", "revisit")
    found = read(tmp_path, revisit.replace(b"Content-Type: application/warc-fields\r\n", fields), "b.warc")
    assert [one.damage for one in found] == ["original_not_found"]


def test_damage_inside_one_big_member_ends_the_file_and_is_counted(tmp_path: Path) -> None:
    pages = [response(number, body=bytes(range(256)) * 300 + str(number).encode() * 5000) for number in range(20)]
    data = bytearray(gzip.compress(b"".join(pages)))
    data[len(data) // 2] ^= 0xFF
    found = numbers(read(tmp_path, bytes(data)))
    assert found[-1] in ("damaged_record", "record_cut_short")
    assert found[:-1] == [str(number) for number in range(len(found) - 1)]


def test_a_record_too_large_is_counted_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webtext.base.warc.response.MAX_RECORD_BYTES", 10_000)
    found = read(tmp_path, PACKINGS["gzip per record"]([response(0), response(1, b"x" * 20_000), response(2)]))
    assert numbers(found) == ["0", "record_too_large", "2"]


def test_headers_as_servers_really_send_them(tmp_path: Path) -> None:
    block = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404\nContent-Type:text/plain\nno header\nX-Folded: a\n  b\nX-Two: 1\n"
        b"x-two: 2\nX-Latin: caf\xe9\n\nbody"
    )
    (found,) = read(tmp_path, record("<http://example.com/a b>", block))
    expected = ("http://example.com/a b", 404, "text/plain", b"body")
    assert (found.url, found.status, found.content_type, found.raw) == expected
    headers = found.http_headers
    assert (headers.get("x-folded"), headers.joined("X-Two"), headers.get("x-latin")) == ("a b", "1, 2", "café")
    assert headers.get("x-absent") == ""


def test_a_head_without_end_is_damage_and_a_head_without_body_is_none(tmp_path: Path) -> None:
    endless = record("http://example.com/1", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 50_000)
    bodiless = record("http://example.com/2", b"HTTP/1.1 204 No Content\r\nA: b\r\n")
    one, two = read(tmp_path, endless + bodiless)
    assert one.damage == "damaged_http"
    assert (two.status, two.http_headers.get("a"), two.raw) == (204, "b", b"")


def test_members_that_are_stored_read_like_compressed_ones(tmp_path: Path) -> None:
    """Our own writer stores without compression: a record's text is in the file as it is, and isn't a plain record."""
    members = [gzip.compress(response(number), compresslevel=0) for number in range(3)]
    found = read(tmp_path, b"".join(members))
    assert [(one.offset, one.length) for one in found] == [
        (sum(map(len, members[:index])), len(members[index])) for index in range(3)
    ]
    damaged = bytearray(members[1])
    damaged[-6] ^= 0xFF
    assert numbers(read(tmp_path, members[0] + bytes(damaged) + members[2])) == ["0", "damaged_record", "2"]


def test_large_members_that_are_stored_have_their_places(tmp_path: Path) -> None:
    """fastwarc reads such a member far ahead, beyond the start of the next one."""
    bodies = [bytes([number]) * (number * 61_000 + 7) for number in range(6)]
    members = [gzip.compress(response(number, body), compresslevel=0) for number, body in enumerate(bodies)]
    found = read(tmp_path, b"".join(members))
    assert [(each.offset, each.length) for each in found] == [
        (sum(map(len, members[:number])), len(member)) for number, member in enumerate(members)
    ]
    assert [each.raw for each in found] == bodies


def test_an_invalid_date_has_no_time(tmp_path: Path) -> None:
    good = response(0)
    for date in (b"2009-03-65T08:43:19", b"0001-01-01T00:00:00+01:00"):
        assert read(tmp_path, good.replace(b"2020-02-03T04:05:06Z", date))[0].captured is None
    assert read(tmp_path, good.replace(b"04:05:06Z", b"04:05:06.789Z"))[0].captured == 1580702706


def test_a_failing_disk_is_an_error_and_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingFile(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 100_000:
                raise OSError(5, "Input/output error")
            return super().read(size)

    data = gzip.compress(response(0)) + gzip.compress(response(1, b"x" * 200_000), compresslevel=0)
    monkeypatch.setattr(Folder, "open", lambda self, name: FailingFile(data))
    with pytest.raises(OSError, match="Input/output error"):
        list(read_responses(Folder(tmp_path), "a.warc.gz"))


def test_an_empty_file_has_no_responses(tmp_path: Path) -> None:
    assert read(tmp_path, b"") == []


@pytest.mark.parametrize(
    "data", [b"<html>no archive</html>", b"\0" * 1000, gzip.compress(b"no archive", mtime=0), b"\x1f\x8b"]
)
def test_a_file_that_is_not_warc_is_an_error_with_a_remedy(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.warc\.gz' has no WARC or ARC record\nname a \.warc"):
        read(tmp_path, data)


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file '.*absent\.warc'"):
        list(read_responses(Folder(tmp_path), "absent.warc"))


@given(victim=st.integers(0, 3), place=st.integers(0, 1000), flip=st.integers(1, 255))
@example(
    victim=3, place=3, flip=4
)  # the flag of an extra field, which fastwarc then looks for past the end of the file
@example(victim=0, place=3, flip=4)  # the same flag in the first record, which loses every record
@example(victim=3, place=3, flip=8)  # the flag of a file name, which ends at the next zero byte
@settings(max_examples=80, deadline=None)
def test_no_damage_is_silent(tmp_path_factory: pytest.TempPathFactory, victim: int, place: int, flip: int) -> None:
    """If one byte of a gzip member changes, all other responses are read, and this one is read or counted."""
    members = [bytearray(gzip.compress(response(number))) for number in range(4)]
    members[victim][place % len(members[victim])] ^= flip
    found = numbers(read(tmp_path_factory.mktemp("warc"), b"".join(members)))
    others = [str(number) for number in range(4) if number != victim]
    assert [number for number in found if number.isdigit() and number != str(victim)] == others
    assert str(victim) in found or not all(number.isdigit() for number in found)


@given(st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    with contextlib.suppress(InputError):
        read(tmp_path_factory.mktemp("warc"), b"WARC/1.0\r\n" + data)


# Files that warcio 1.8 reads differently: it doesn't know LZ4, rejects records that share a gzip member, accepts a
# truncated body as complete, stops at bytes that aren't a record, finds nothing in broken chunks, and doesn't resolve
# revisits.
WARCIO_DIFFERS = {
    "fastwarc_block-sized-records.warc.lz4": (0, []),
    "fastwarc_clipped.warc.gz": (0, ["record_cut_short"]),
    "fastwarc_warcfile.warc.lz4": (16, []),
    "warcio_bad.arc": (0, ["damaged_record", "damaged_http", "damaged_record"]),
    "warcio_example-bad-non-chunked.warc.gz": (1, ["unchanged_revisit"]),
    "warcio_example-bad.warc.gz.bad": (2, ["unchanged_revisit"]),
    "warcio_example-space-in-url.arc": (0, ["record_cut_short"]),
    "warcio_example-trunc.warc": (1, ["damaged_record"]),
    "warcio_example-wrong-chunks.warc.gz": (1, []),
    "warcio_example.warc": (2, []),
    "warcio_example.warc.gz": (2, []),
}
VERDICTS = WARCIO_DIFFERS | {
    # file: number of responses with a readable body, damage
    "bubing_misc.warc": (3, []),
    "bubing_request.warc": (0, []),
    "bubing_response.warc": (1, []),
    "bubing_warcinfo.warc": (0, []),
    "fastwarc_block-sized-records.warc.gz": (0, []),
    "fastwarc_clueweb-quirk.warc.gz": (29, []),
    "fastwarc_warcfile.warc.gz": (16, []),
    "warcio_example-digest.warc": (0, []),
    "warcio_example-iana.org-chunked.warc": (1, []),
    "warcio_example-resource.warc.gz": (0, []),
    "warcio_example-space-in-target-uri.warc.gz": (0, []),
    "warcio_example-wget-bad-target-uri.warc.gz": (1, []),
    "warcio_example.arc": (1, []),
    "warcio_example.arc.gz": (1, []),
    "warcio_post-test.warc.gz": (3, []),
}


def bodies_by_warcio(path: Path) -> list[tuple[str, bytes]]:
    """Return URL and decoded body of each HTTP response."""
    with open(path, "rb") as file:
        return [
            (one.rec_headers.get_header("WARC-Target-URI"), one.content_stream().read())
            for one in ArchiveIterator(file, arc2warc=True)
            if one.rec_type == "response" and one.http_headers is not None
        ]


def test_every_sample_file_has_a_verdict(shared_data: Path) -> None:
    assert Folder(shared_data / "crawl" / "warc").names() == sorted(VERDICTS)


@pytest.mark.parametrize("name", VERDICTS)
def test_a_sample_file_is_read_as_warcio_reads_it(name: str, shared_data: Path) -> None:
    folder = Folder(shared_data / "crawl" / "warc")
    found = list(read_responses(folder, name))
    bodies = [(one.url, one.body(10 * MIB)) for one in found if not one.damage]
    assert (len(bodies), [one.damage for one in found if one.damage]) == VERDICTS[name]
    if name not in WARCIO_DIFFERS:
        assert bodies == bodies_by_warcio(folder.local_path(name))


CASES = {"lower": bytes.lower, "upper": bytes.upper, "first letter": bytes.capitalize}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("case", CASES)
def test_field_names_are_read_in_any_case(case: str, packing: str, tmp_path: Path) -> None:
    """ISO 28500 §4: names of fields are case-insensitive; here also types of media and of records."""

    def changed(written: bytes) -> bytes:
        head, end, block = written.partition(b"\r\n\r\n")
        version, *lines = head.replace(b"application/http", b"Application/HTTP").split(b"\r\n")
        named = [CASES[case](name) + b":" + value for name, _, value in (line.partition(b":") for line in lines)]
        return b"\r\n".join([version, *named]) + end + block

    bodies = [b"<p>WARC/1.0\r\ncontent-length: 3\r\n\r\n" * 3, b"", b"words " * 40_000]
    written = [THREE[0], *(response(number, body) for number, body in enumerate(bodies)), THREE[2], response(3)]
    for plan in ([0, 1, 2, 3, 4, 5], [1, 3], [0, 5]):  # the records whose names are changed
        found = read(tmp_path, PACKINGS[packing]([changed(w) if n in plan else w for n, w in enumerate(written)]))
        assert numbers(found) == ["0", "1", "2", "3"]
        assert [one.body(MIB) for one in found[:3]] == bodies
        for one in found if not packing.startswith("whole-file") else ():
            assert one.offset is not None
            assert one.length is not None
            assert read_response_at(Folder(tmp_path), "a.warc.gz", one.offset, one.length).raw == one.raw


def test_damage_after_a_field_name_in_another_case_is_counted(tmp_path: Path) -> None:
    lower = response(1).replace(b"Content-Length", b"content-length", 1)
    found = numbers(read(tmp_path, response(0) + lower + b"rubbish\r\n\r\n" + response(2)))
    assert found == ["0", "1", "damaged_record", "2"]
    for pack in (zstandard.ZstdCompressor(write_checksum=True).compress, lz4):
        first, second, third = map(pack, (response(0), lower, response(2)))
        found = numbers(read(tmp_path, first + second[:-40] + bytes(40) + third))
        assert [each for each in found if each != "1"] == ["0", "damaged_record", "2"]
        found = numbers(read(tmp_path, pack(response(0) + lower + response(2)) + third))
        assert found == ["0", "1", "2", "2"]
    packed = [gzip.compress(each) for each in (response(0), lower, response(2))]
    broken = packed[1][:-40] + bytes(32) + packed[1][-8:]
    assert numbers(read(tmp_path, packed[0] + broken + packed[2])) in (
        ["0", "damaged_record", "2"],
        ["0", "record_cut_short", "2"],
        ["0", "record_cut_short", "damaged_record", "2"],
    )


REVISIT = record("http://example.com/9", b"HTTP/1.1 200 OK\r\n\r\n", "revisit").replace(b"warc-fields", b"http; x=y")


@pytest.mark.parametrize("offset", [b"0", b"9" * 20, b"9" * 5000], ids=len)
@pytest.mark.parametrize("name", [b"", b"..", b"folder", b"x" * 300, b"a.warc.gz"])
def test_a_revisit_that_refers_to_no_record_costs_itself_alone(name: bytes, offset: bytes, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    place = b"http\r\nWARC-Refers-To-Filename: " + name + b"\r\nWARC-Refers-To-File-Offset: " + offset
    assert numbers(read(tmp_path, REVISIT.replace(b"http; x=y", place) + response(0))) == ["unchanged_revisit", "0"]


def test_a_revisit_that_names_only_its_original_s_id_gets_its_body(tmp_path: Path) -> None:
    ids = [b"<urn:uuid:00000000-0000-0000-0000-00000000000%d>" % number for number in range(4)]
    usual = b"<urn:uuid:12345678-1234-1234-1234-123456789abc>"
    originals = [response(number).replace(usual, ids[number]) for number in range(2)]
    of = [REVISIT.replace(usual, ids[2] + b"\r\nWARC-Refers-To: " + each) for each in (ids[1], ids[0].upper(), ids[3])]
    found = read(tmp_path, b"".join(map(gzip.compress, [*originals, *of])))[2:]
    assert found[0].body(MIB) == b"<p>page 1</p>" * 20
    assert [one.damage for one in found] == [None, "unchanged_revisit", "unchanged_revisit"]
