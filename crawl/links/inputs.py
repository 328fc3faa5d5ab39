"""Find input files: an input names a file, a folder or a pattern, local or at an fsspec URL, or a dataset's column."""

from __future__ import annotations

import fnmatch
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from webtext.base.errors import InputError
from webtext.base.hugging_face import PREFIX, pinned
from webtext.base.storage import Folder
from webtext.crawl.links.sources import (
    HUGGING_FACE,
    PARQUET,
    PATTERNS,
    SUBMISSIONS,
    check_source,
    need_source,
    source_by_name,
)

PARQUET_MAGIC = b"PAR1"
FOREIGN_MAGICS = {
    b"PK\x03\x04": "a ZIP archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a RAR archive",
}
"""Archives that are easily passed by mistake: read as lines, they would only produce `invalid_json`."""


@dataclass(frozen=True, slots=True, order=True)
class InputFile:
    """An input file, by folder and name, and its source. A dataset counts as a file that contains its reference."""

    folder: str
    name: str
    source: str = SUBMISSIONS

    @property
    def location(self) -> str:
        """The path or URL, for messages."""
        return self.name if self.source == HUGGING_FACE else Folder(self.folder).location(self.name)

    @property
    def n_bytes(self) -> int:
        """The size of the file."""
        return len(self.name.encode()) if self.source == HUGGING_FACE else Folder(self.folder).size(self.name)

    def open(self) -> BinaryIO:
        """Open the file for reading; it is seekable."""
        return io.BytesIO(self.name.encode()) if self.source == HUGGING_FACE else Folder(self.folder).open(self.name)


def find_files(inputs: Iterable[str], source: str | None = None) -> list[InputFile]:
    """Return the files that `inputs` name, sorted and without repeats.

    Each is read by `source` if given, otherwise by the source that its name implies. A folder contributes the
    files whose names match `source` (submissions by default). Raises InputError if an input matches nothing, or if a
    file is empty or cannot be read by its source.
    """
    files = sorted({file for name in inputs for file in _files_of(name, source)})
    if not files:
        raise InputError("no input file was given", "name RS_* files, a folder that contains some, or a list of links")
    for file in files:
        if file.n_bytes == 0:
            raise InputError(f"'{file.location}' is empty", "download it again, or leave it out")
        _check_content(file)
    return files


def _check_content(file: InputFile) -> None:
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
        check_source(file.source, opened, file.location)


def _files_of(name: str, source: str | None) -> list[InputFile]:
    """Return the files that an input names. Wildcards work only in its last component: the shell expands others."""
    if name.startswith(PREFIX):
        reference = pinned(name)
        return [InputFile(reference.folder or "", str(reference), HUGGING_FACE)]
    parent, _, last = name.rstrip("/").rpartition("/")
    parent = parent or ("/" if name.startswith("/") else ".")
    names = Folder(parent).names()
    found = [last] if last in names else []
    if not found and any(character in last for character in "*?["):
        found = [each for each in names if fnmatch.fnmatchcase(each, last)]
        if not found:
            raise InputError(
                f"no file is called '{name}'", "check the pattern: a wildcard is allowed only after the last '/'"
            )
    if found:
        location = Folder(parent).location
        return [InputFile(parent, each, need_source(each, location(each), source)) for each in found]
    return _files_in(name, source or SUBMISSIONS)


def _files_in(name: str, source: str) -> list[InputFile]:
    folder = Folder(name)
    if not folder.exists(""):
        raise InputError(f"no file '{name}'", "check the path")
    found = [InputFile(folder.url, each, source) for each in folder.names() if source_by_name(each) == source]
    if not found:
        patterns = " or ".join(PATTERNS[source][:2])
        raise InputError(
            f"no {source} ({patterns}) in the folder '{name}'", "name the files themselves, or set --source"
        )
    return found
