"""Repeated bodies: stored once, referred to by a revisit record, and read by all our readers."""

from __future__ import annotations

import gzip
import io
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from warc_exchanges import exchange
from warcio.archiveiterator import ArchiveIterator

from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.warc.reader import read_response_at, read_responses
from webtext.base.web.content_coding import BodyError
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.extract.pages import extract_documents
from webtext.crawl.pages.warc_writer import IDENTICAL_PAYLOAD, Stored, WarcWriter

MIB = 1 << 20
A, B, C = (f"http://{name}.example/" for name in "abc")
TEXT = b"<html><p>" + b"the same words, " * 200
WIRE = gzip.compress(TEXT, mtime=0)
CODED = (b"Content-Encoding", b"gzip")


def write(path: Path, urls: tuple[str, ...] = (A, B), name: str = "a.warc.gz") -> list[Stored]:
    with closing(WarcWriter(path, name, {"software": "test"})) as writer:
        return [writer.write(exchange(WIRE, CODED, url=url)) for url in urls]


def records(path: Path) -> list[Any]:
    with open(path, "rb") as file:
        return [(one, one.content_stream().read()) for one in ArchiveIterator(file, check_digests="raise")]


def test_a_repeated_body_is_stored_once_with_a_second_head(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.warc.gz")
    found = records(tmp_path / "a.warc.gz")
    assert [one.rec_type for one, _ in found] == ["warcinfo", "response", "request", "revisit", "request"]
    response, revisit = found[1][0].rec_headers.get_header, found[3][0].rec_headers.get_header
    assert revisit("WARC-Profile") == IDENTICAL_PAYLOAD
    assert revisit("WARC-Truncated") == "length"  # WARC 1.1 §6.7.2: the block ends with the head
    assert (revisit("WARC-Refers-To"), revisit("WARC-Refers-To-Target-URI")) == (response("WARC-Record-ID"), A)
    assert revisit("WARC-Refers-To-Date") == response("WARC-Date")
    assert revisit("WARC-Refers-To-Filename") == "a.warc.gz"
    assert revisit("WARC-Refers-To-File-Offset") == str(first.offset)
    assert revisit("WARC-Payload-Digest") == response("WARC-Payload-Digest")
    assert (found[3][0].http_headers.get_header("Content-Encoding"), found[3][1]) == ("gzip", b"")
    assert second.length < 1000


def test_readers_of_ours_get_the_body_of_both(tmp_path: Path) -> None:
    stored = write(tmp_path / "a.warc.gz", (A, B, C))
    found = list(read_responses(Folder(tmp_path), "a.warc.gz"))
    assert [(one.url, one.is_revisit, one.status) for one in found] == [(A, False, 200), (B, True, 200), (C, True, 200)]
    assert [one.body(MIB) for one in found] == [TEXT] * 3
    assert [(one.offset, one.length) for one in found] == [(one.offset, one.length) for one in stored]
    alone = [read_response_at(Folder(tmp_path), "a.warc.gz", one.offset, one.length) for one in stored]
    assert [(one.url, one.body(MIB)) for one in alone] == [(A, TEXT), (B, TEXT), (C, TEXT)]


def test_the_index_finds_a_revisit_like_any_record(tmp_path: Path) -> None:
    _, stored = write(tmp_path / "a.warc.gz")
    fields = json.loads(stored.index_line.split(" ", 2)[2])
    assert (fields["url"], fields["mime"], fields["status"]) == (B, "warc/revisit", "200")
    start, length = int(fields["offset"]), int(fields["length"])
    [record] = ArchiveIterator(io.BytesIO((tmp_path / "a.warc.gz").read_bytes()[start : start + length]))
    assert (record.rec_type, record.rec_headers.get_header("WARC-Target-URI")) == ("revisit", B)


def test_a_renamed_file_still_answers_its_own_revisits(tmp_path: Path) -> None:
    write(tmp_path / "renamed.warc.gz")
    assert [one.body(MIB) for one in read_responses(Folder(tmp_path), "renamed.warc.gz")] == [TEXT] * 2


def test_an_original_may_be_in_another_file_of_the_folder(tmp_path: Path) -> None:
    stored = write(tmp_path / "a.warc.gz")
    data = (tmp_path / "a.warc.gz").read_bytes()
    (tmp_path / "b.warc.gz").write_bytes(data[stored[1].offset :])
    assert [(one.url, one.body(MIB)) for one in read_responses(Folder(tmp_path), "b.warc.gz")] == [(B, TEXT)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Filename: a.warc.gz", b"Filename: ../a.warc.gz"),
        (b"Filename: a.warc.gz", b"Filename: absent.warc.gz"),
        (b"WARC-Refers-To-File-Offset: ", b"WARC-Refers-To-File-Offset: 1"),
        (b"WARC-Refers-To-File-Offset: ", b"WARC-Refers-To-File-Offset: -"),
        (b"WARC-Refers-To-File-Offset: ", b"X-Offset: "),
        (b"Refers-To-Target-URI: http://a", b"Refers-To-Target-URI: http://x"),
        (b"Refers-To-Date: 2", b"Refers-To-Date: 1"),
        (b"Payload-Digest: sha1:", b"Payload-Digest: sha1:A"),
    ],
)
def test_a_revisit_without_its_original_is_a_counted_failure(old: bytes, new: bytes, tmp_path: Path) -> None:
    """The original is one folder up, or doesn't match the revisit. Another page's body is never returned."""
    stored = write(tmp_path / "a.warc.gz")
    member = gzip.decompress((tmp_path / "a.warc.gz").read_bytes()[stored[1].offset :])
    assert old in member
    (tmp_path / "in").mkdir()
    (tmp_path / "in/b.warc").write_bytes(member.replace(old, new, 1))
    if b"Filename" not in old:
        (tmp_path / "in/a.warc.gz").write_bytes((tmp_path / "a.warc.gz").read_bytes())
    [found] = read_responses(Folder(tmp_path / "in"), "b.warc")
    with pytest.raises(BodyError, match="original_not_found"):
        found.body(MIB)


def test_a_revisit_that_refers_to_itself_ends(tmp_path: Path) -> None:
    stored = write(tmp_path / "a.warc.gz")
    member = gzip.decompress((tmp_path / "a.warc.gz").read_bytes()[stored[1].offset :])
    itself = member.replace(b"File-Offset: %d" % stored[0].offset, b"File-Offset: 0")
    (tmp_path / "b.warc").write_bytes(itself.replace(b"Filename: a.warc.gz", b"Filename: b.warc"))
    assert [one.damage for one in read_responses(Folder(tmp_path), "b.warc")] == ["original_not_found"]


def as_others_write_it(member: bytes, url: str = B) -> bytes:
    """Return the revisit as most crawlers write it: of the same URL, without the position of its original."""
    lines = [line for line in member.split(b"\r\n") if not line.startswith(b"WARC-Refers-To-File")]
    same = b"\r\n".join(lines).replace(b"Refers-To-Target-URI: " + A.encode(), b"Refers-To-Target-URI: " + url.encode())
    return same.replace(b"WARC-Target-URI: " + B.encode(), b"WARC-Target-URI: " + url.encode())


def split_members(path: Path, stored: list[Stored]) -> tuple[bytes, bytes]:
    data = path.read_bytes()
    return data[: stored[1].offset], gzip.decompress(data[stored[1].offset :])


def test_a_revisit_of_the_same_url_gets_the_body_of_its_original_earlier_in_the_file(tmp_path: Path) -> None:
    before, revisit = split_members(tmp_path / "a.warc.gz", write(tmp_path / "a.warc.gz"))
    (tmp_path / "b.warc.gz").write_bytes(before + gzip.compress(as_others_write_it(revisit, A)))
    found = list(read_responses(Folder(tmp_path), "b.warc.gz"))
    assert [(one.url, one.is_revisit, one.damage) for one in found] == [(A, False, None), (A, True, None)]
    assert [one.body(MIB) for one in found] == [TEXT] * 2


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 304 Not Modified\r\nServer: x\r\n\r\n"])
def test_a_revisit_that_was_not_modified_has_the_head_of_its_original(head: bytes, tmp_path: Path) -> None:
    before, revisit = split_members(tmp_path / "a.warc.gz", write(tmp_path / "a.warc.gz"))
    fields, _, _ = as_others_write_it(revisit, A).partition(b"\r\n\r\n")
    fields = re.sub(rb"(\r\nContent-Length: )\d+", b"\\g<1>%d" % len(head), fields)
    (tmp_path / "b.warc.gz").write_bytes(before + gzip.compress(fields + b"\r\n\r\n" + head + b"\r\n\r\n"))
    _, found = read_responses(Folder(tmp_path), "b.warc.gz")
    assert (found.status, found.http_headers.get("Content-Encoding"), found.body(MIB)) == (200, "gzip", TEXT)


def test_a_page_that_had_not_changed_is_counted_where_its_original_is_missing(run: Run, tmp_path: Path) -> None:
    _, revisit = split_members(tmp_path / "a.warc.gz", write(tmp_path / "a.warc.gz"))
    (tmp_path / "b.warc").write_bytes(as_others_write_it(revisit, A) * 2)
    (tmp_path / "a.warc.gz").unlink()
    assert [one.damage for one in read_responses(Folder(tmp_path), "b.warc")] == ["unchanged_revisit"] * 2
    documents = extract_documents([str(tmp_path / "b.warc")], str(tmp_path / "documents"), ExtractSettings(), run)
    assert (documents.counts.kept, documents.counts.dropped) == (0, {"unchanged_revisit": 2})


def test_a_revisit_never_gets_the_body_of_a_capture_with_another_digest(tmp_path: Path) -> None:
    before, revisit = split_members(tmp_path / "a.warc.gz", write(tmp_path / "a.warc.gz"))
    other = as_others_write_it(revisit, A).replace(b"Payload-Digest: sha1:", b"Payload-Digest: sha1:A")
    (tmp_path / "b.warc.gz").write_bytes(before + gzip.compress(other))
    assert [one.damage for one in read_responses(Folder(tmp_path), "b.warc.gz")] == [None, "unchanged_revisit"]


def test_a_resumed_file_finds_its_originals(tmp_path: Path) -> None:
    [first] = write(tmp_path / "a.warc.gz", (A,))
    with closing(WarcWriter(tmp_path / "a.warc.gz", "a.warc.gz", {}, first.end, [first.index_line])) as writer:
        writer.write(exchange(WIRE, CODED, url=B))
    assert [one.body(MIB) for one in read_responses(Folder(tmp_path), "a.warc.gz")] == [TEXT] * 2
    one, other = (records(path) for path in (tmp_path / "a.warc.gz", whole(tmp_path)))
    assert [record.rec_headers.headers for record, _ in one[1:]] == [
        record.rec_headers.headers for record, _ in other[1:]
    ]


def whole(tmp_path: Path) -> Path:
    (tmp_path / "whole").mkdir()
    write(tmp_path / "whole/a.warc.gz")
    return tmp_path / "whole/a.warc.gz"


def test_no_page_is_lost_because_another_link_has_the_same_body(crawl: Any, run: Run, web: Any, tmp_path: Path) -> None:
    words = " ".join(f"In the harbour number {i} there was a lantern that nobody had seen before." for i in range(40))
    body = f"<html><head><title>t</title></head><body><article><p>{words}</p></article></body></html>"
    urls = [web.page(f"/{i}", body, host=i) for i in (1, 2, 3)]
    rows = crawl(urls, part_pages=2)
    assert {row["outcome"] for row in rows.values()} == {"fetched"}
    pages = PartSet.open(str(tmp_path / "pages"), "pages")
    kinds = [
        [one.is_revisit for one in read_responses(pages.folder, pages.attachment(part, ".warc.gz"))]
        for part in pages.parts
    ]
    assert kinds == [[False, True], [False]], "each part's file answers for itself"
    documents = extract_documents([pages.folder.url], str(tmp_path / "documents"), ExtractSettings(), run)
    found = documents.table(0).to_pylist() + documents.table(1).to_pylist()
    assert sorted(document["url"] for document in found) == urls
    assert {document["text"] for document in found} == {found[0]["text"]}
    assert sorted(document["link_ids"] for document in found) == sorted([row["link_id"]] for row in rows.values())
