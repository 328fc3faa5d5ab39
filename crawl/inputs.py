"""Finding input files: a name may be a file, a folder or a pattern, on disk or at any fsspec URL."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.crawl.dumps import PREFIX

FOREIGN_MAGICS = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "a ZIP archive",
    b"PAR1": "Parquet",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a RAR archive",
}
"""What is easily given by mistake: read as lines, it would be one `not_json` after the other."""


@dataclass(frozen=True, slots=True, order=True)
class InputFile:
    """One file, by its folder and name."""

    folder: str
    name: str

    @property
    def location(self) -> str:
        """Path or URL, for messages."""
        return Folder(self.folder).location(self.name)


def find_files(inputs: Iterable[str]) -> list[InputFile]:
    """The files that `inputs` name, each once, sorted. InputError when one names nothing, or an empty file."""
    files = sorted({file for name in inputs for file in _files_of(name)})
    if not files:
        raise InputError("no dump file is given", "name RS_* files, or a folder that holds some")
    for file in files:
        folder = Folder(file.folder)
        if folder.size(file.name) == 0:
            raise InputError(f"'{file.location}' is empty", "download it again, or leave it out")
        with folder.open(file.name) as opened:
            head = opened.read(max(map(len, FOREIGN_MAGICS)))
        for magic, what in FOREIGN_MAGICS.items():
            if head.startswith(magic):
                raise InputError(
                    f"'{file.location}' is {what}, no submission dump",
                    "name lines of JSON: plain, or compressed by xz, bzip2 or Zstandard",
                )
    return files


def _files_of(name: str) -> list[InputFile]:
    """A wildcard stands in the last part of a name only: the shell expands all others."""
    parent, _, last = name.rstrip("/").rpartition("/")
    parent = parent or ("/" if name.startswith("/") else ".")
    names = Folder(parent).names()
    if last in names:
        return [InputFile(parent, last)]
    if any(character in last for character in "*?["):
        found = [InputFile(parent, each) for each in names if fnmatch.fnmatchcase(each, last)]
        if not found:
            raise InputError(
                f"no file is called '{name}'", "check the pattern: a wildcard may stand after the last '/' only"
            )
        return found
    folder = Folder(name)
    if not folder.exists(""):
        raise InputError(f"no file '{name}'", "check the path")
    found = [InputFile(folder.url, each) for each in folder.names() if each.startswith(PREFIX)]
    if not found:
        raise InputError(f"no {PREFIX}* file in the folder '{name}'", "name the files themselves, or another folder")
    return found
