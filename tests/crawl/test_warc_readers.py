"""The crawl's WARC files in other readers: fastwarc, warcio and datatrove's reader return the same bytes as ours."""

from __future__ import annotations

import gzip
import sys
import types
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard
from warc_exchanges import bodies_by_fastwarc, bodies_by_warcio

from webtext.base.parts.partset import PartSet
from webtext.base.warc.reader import read_response_at, read_responses

MIB = 1 << 20
TEXT = ("<html><head><title>déjà vu</title></head><body>" + "<p>many words ćžš</p>" * 3000 + "</body></html>").encode()


def marked(name: str) -> bytes:
    """Return a unique page. An equal one would be stored as a revisit."""
    return TEXT + f"<!-- {name} -->".encode()


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", lambda data: gzip.compress(data, mtime=0)),
    "two gzip members": ("gzip", lambda data: gzip.compress(data[:999], mtime=0) + gzip.compress(data[999:], mtime=0)),
    "x-gzip": ("x-gzip", lambda data: gzip.compress(data, mtime=0)),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", raw_deflate),
    "Brotli unasked": ("br", brotli.compress),
    "Zstandard unasked": ("zstd", zstandard.ZstdCompressor().compress),
    "identity": ("identity", bytes),
    "none": ("", bytes),
    "deflate that is none": ("deflate", bytes),
    "gzip that is none": ("gzip", bytes),
}
CHUNKED = ("gzip", "none", "Brotli unasked", "deflate that is none")
NOT_BY_WARCIO = {"two gzip members", "x-gzip", "Brotli unasked", "Zstandard unasked"}
NOT_BY_FASTWARC = {"x-gzip", "bare deflate", "deflate that is none", "gzip that is none"}
READ_BY_WARCIO = [name for name in CODINGS if name not in NOT_BY_WARCIO]
READ_BY_FASTWARC = [name for name in CODINGS if name not in NOT_BY_FASTWARC]


def answer(body: bytes, coding: str, *, is_chunked: bool) -> bytes:
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/html; charset=utf-8"]
    lines += [f"Content-Encoding: {coding}"] if coding else []
    lines.append("Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}")
    if is_chunked:
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:5], body[5:])) + b"0\r\n\r\n"
    return "\r\n".join([*lines, "", ""]).encode() + body


Store = Callable[[Sequence[str]], tuple[PartSet, dict[str, str]]]


@pytest.fixture
def store(crawl: Any, web: Any, tmp_path: Path) -> Store:
    """Crawl a page in each of these codings. Returns the set, and the URLs by coding."""

    def run(codings: Sequence[str]) -> tuple[PartSet, dict[str, str]]:
        names: dict[str, str] = {}
        for name in codings:
            coding, pack = CODINGS[name]
            for is_chunked in (False, True) if name in CHUNKED else (False,):
                label = f"{name}, chunked" if is_chunked else name
                names[web.plant(f"/{len(names)}", answer(pack(marked(label)), coding, is_chunked=is_chunked))] = label
        crawl(list(names), max_bytes=MIB)
        return PartSet.open(str(tmp_path / "pages"), "pages"), names

    return run


def test_every_coding_is_decoded(store: Store) -> None:
    pages, names = store(list(CODINGS))
    ours = {names[one.url]: one.body(MIB) for one in read_responses(pages.folder, "part-00000.warc.gz")}
    assert ours == {name: marked(name) for name in names.values()}


@pytest.mark.parametrize(
    ("read", "codings"), [(bodies_by_warcio, READ_BY_WARCIO), (bodies_by_fastwarc, READ_BY_FASTWARC)]
)
def test_other_readers_get_the_bytes_that_we_get(
    read: Callable[[Path], list[bytes]], codings: Sequence[str], store: Store
) -> None:
    """warcio 1.8 stops after a gzip member, fails on Brotli (with brotli 1.2) and doesn't decode x-gzip and zstd.
    fastwarc 2.0 rejects x-gzip and raw deflate, and trusts every label."""
    pages, _ = store(codings)
    ours = [one.body(MIB) for one in read_responses(pages.folder, "part-00000.warc.gz")]
    assert read(Path(pages.folder.url, "part-00000.warc.gz")) == ours


def test_datatrove_reads_the_pages_that_we_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads with warcio. Its guessers of types and charsets aren't needed: records state the type, and are UTF-8."""
    for guesser in ("magic", "cchardet"):
        monkeypatch.setitem(sys.modules, guesser, types.ModuleType(guesser))
    from datatrove.pipeline.readers.warc import WarcReader

    monkeypatch.setattr(WarcReader, "_requires_dependencies", ["warcio"])
    pages, names = store(["gzip", "identity", "none"])
    ours = {one.url: one.body(MIB).decode() for one in read_responses(pages.folder, "part-00000.warc.gz")}
    reader = WarcReader(pages.folder.url, glob_pattern="*.warc.gz")
    assert {document.metadata["url"]: document.text for document in reader.run()} == ours
    assert len(ours) == len(names)


def test_each_page_row_locates_its_body(store: Store) -> None:
    pages, names = store(list(CODINGS))
    for row in pages.table(0).to_pylist():
        found = read_response_at(pages.folder, row["warc_file"], row["warc_offset"], row["warc_length"])
        assert (found.url, found.body(MIB)) == (row["url"], marked(names[row["url"]]))
