"""Find input files, and the link source that reads each.

An input names a file, a folder or a pattern, local or at an fsspec URL, or a dataset's column. A file's source is chosen
by its name, or by the setting `source` for all files at once.

    submissions    RS_*, *_submissions          Reddit's monthly dumps, or one subreddit's
    csv            *.csv, *.tsv                 a table whose first line names its columns
    jsonl          *.jsonl, *.ndjson, *.json    one object per line
    parquet        *.parquet
    urls           *.txt, *.urls                one URL per line
    harvest        *.harvest.jsonl.zst          answers of Reddit's API (crawl/links/reddit_api/harvest.py), whatever `source` is
    huggingface    huggingface:...              a dataset's column

Endings of compressed files (`.xz`, `.bz2`, `.zst`, `.gz`) are ignored: compression is detected from the content.
"""

from __future__ import annotations

import fnmatch
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from webtext.base.config import timestamp
from webtext.base.decompress import MAGIC_BYTES, Codec, compression_of
from webtext.base.errors import InputError
from webtext.base.inputs.files import files_of, short_names
from webtext.base.inputs.hugging_face import PREFIX, pin_revision
from webtext.base.storage import Folder
from webtext.crawl.links.settings import SOURCES, LinkSettings
from webtext.crawl.links.sources.submission import LinkSource

SUBMISSIONS, CSV, JSONL, PARQUET, URLS = SOURCES
HUGGING_FACE, HARVEST = "huggingface", "harvest"
PATTERNS: Mapping[str, tuple[str, ...]] = {
    HARVEST: ("*.harvest.jsonl",),
    SUBMISSIONS: ("RS_*", "*_submissions", "*_submissions.jsonl", "*_submissions.ndjson", "r_*_posts.jsonl"),
    CSV: ("*.csv", "*.tsv"),
    JSONL: ("*.jsonl", "*.ndjson", "*.json"),
    PARQUET: ("*.parquet",),
    URLS: ("*.txt", "*.urls"),
}
"""File name patterns by source; the first source that matches reads the file."""

_COMPRESSED = re.compile(r"\.(?:xz|bz2|zst|gz)$", re.IGNORECASE)
PARQUET_MAGIC = b"PAR1"
FOREIGN_MAGICS = {b"PK\x03\x04": "a ZIP archive", b"7z\xbc\xaf": "a 7z archive", b"Rar!": "a RAR archive"}
"""Archives that are easily passed by mistake: read as lines, they would only produce `invalid_json`."""


@dataclass(frozen=True, slots=True, order=True)
class LinkFile:
    """An input file, by folder and name, and its source. A dataset counts as a file that contains its reference."""

    folder: str
    name: str
    source: str = SUBMISSIONS
    sha256: str = ""  # until it is hashed
    label: str = field(default="", compare=False)  # its name, after some of its folders if another file has the same

    @property
    def location(self) -> str:
        return self.name if self.source == HUGGING_FACE else Folder(self.folder).location(self.name)

    @property
    def n_bytes(self) -> int:
        return len(self.name.encode()) if self.source == HUGGING_FACE else Folder(self.folder).size(self.name)

    @property
    def codec(self) -> Codec | None:
        """The format of its compression, by its first bytes."""
        with self.open() as file:
            return compression_of(file.read(MAGIC_BYTES))

    def open(self) -> BinaryIO:
        return io.BytesIO(self.name.encode()) if self.source == HUGGING_FACE else Folder(self.folder).open(self.name)


def find_files(inputs: Iterable[str], source: str | None = None, needed: Sequence[str] = ("url",)) -> list[LinkFile]:
    """Return the files that `inputs` name, sorted and without repeats, with labels: a list's posts are identified by them.

    Each is read by `source` if given, otherwise by the source that its name implies. A folder contributes the
    files of its tree whose names match `source` (submissions by default). Raises InputError if an input matches nothing, or if a
    file is empty, cannot be read by its source, or is a list in which no row has one of the `needed` columns.
    """
    found = sorted((file for name in inputs for file in _files_of(name, source)), reverse=True)
    files = sorted({os.path.realpath(file.location): file for file in found}.values())
    labels = [file.name for file in files]
    if len(set(labels)) < len(labels):
        labels = short_names([file.location for file in files])
    files = [replace(file, label=label) for file, label in zip(files, labels, strict=True)]
    if not files:
        raise InputError("no input file was given", "name RS_* files, a folder that contains some, or a list of links")
    for file in files:
        if file.n_bytes == 0:
            raise InputError(f"'{file.location}' is empty", "download it again, or leave it out")
        _check_content(file, needed)
    return files


def _check_content(file: LinkFile, needed: Sequence[str]) -> None:
    with file.open() as opened:
        head = opened.read(4)
        for magic, what in FOREIGN_MAGICS.items():
            if head.startswith(magic):
                raise InputError(
                    f"'{file.location}' is {what}, not a list of posts",
                    "extract it first: inputs are lines or tables, plain or compressed by xz, bzip2, Zstandard or gzip",
                )
        if head.startswith(PARQUET_MAGIC) != (file.source == PARQUET):
            is_it = "is" if file.source != PARQUET else "is not"
            raise InputError(
                f"'{file.location}' {is_it} Parquet, but would be read as {file.source}", "set --source to its format"
            )
        opened.seek(0)
        if file.source in (CSV, JSONL, PARQUET, URLS):
            from webtext.crawl.links.sources.lists import check_columns

            check_columns(file.source, opened, file.location, needed)


def _files_of(name: str, source: str | None) -> list[LinkFile]:
    if name.startswith(PREFIX):
        reference = pin_revision(name)
        return [LinkFile(reference.folder or "", str(reference), HUGGING_FACE)]
    of_folder = source or SUBMISSIONS
    found = files_of(name, "links", PATTERNS[of_folder][:2], takes=lambda file: source_by_name(file.name) == of_folder)
    return [LinkFile(each.folder.url, each.name, need_source(each.name, each.location, source)) for each in found]


def source_by_name(name: str) -> str | None:
    """Return the source that reads a file of this name; None if no pattern matches.

    >>> source_by_name("RS_2017-12.xz"), source_by_name("links.csv.gz"), source_by_name("notes")
    ('submissions', 'csv', None)
    """
    plain = _COMPRESSED.sub("", name.rpartition("/")[2])
    names = (plain, plain.lower())  # RS_ is always upper case, but .CSV occurs as well as .csv
    for source, patterns in PATTERNS.items():
        if any(fnmatch.fnmatchcase(each, pattern) for each in names for pattern in patterns):
            return source
    return None


def need_source(name: str, location: str, asked_for: str | None) -> str:
    """Return the source that reads a file of this name. Raises InputError, with the known names, if it is unclear."""
    source = source_by_name(name)
    if asked_for and source != HARVEST:
        return asked_for
    if source is None:
        known = "; ".join(f"{source}: {' '.join(PATTERNS[source][:2])}" for source in SOURCES)
        raise InputError(f"the name of '{location}' matches no source", f"set --source ({known})")
    return source


def link_source(file: LinkFile, settings: LinkSettings) -> LinkSource[Any]:
    """Return the reader for a file. Imports are local, since some readers load Arrow or a parser."""
    if file.source in (SUBMISSIONS, HARVEST):
        from webtext.crawl.links.sources.reddit import Harvested, RedditDump

        return RedditDump() if file.source == SUBMISSIONS else Harvested()
    from webtext.crawl.links.sources.lists import CsvFile, Defaults, HuggingFaceColumn, JsonLines, ParquetFile, UrlList

    moment = settings.default_created
    created = None if moment is None else timestamp(moment, "[crawl.links] default_created")
    defaults = Defaults(file=file.label, score=settings.default_score, created=created)
    if file.source == HUGGING_FACE:
        return HuggingFaceColumn(defaults, file.folder)
    readers: Mapping[str, Callable[[Defaults], LinkSource[Any]]]
    readers = {CSV: CsvFile, JSONL: JsonLines, PARQUET: ParquetFile, URLS: UrlList}
    return readers[file.source](defaults)
