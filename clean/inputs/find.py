"""The inputs of clean's verbs: part sets, and files by name, folder or pattern, on disk or at any fsspec URL."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from webtext.base.errors import InputError
from webtext.base.parts.digest import file_sha256
from webtext.base.parts.partset import ENTRIES, MANIFEST, PartSet
from webtext.base.storage import Folder


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input file, by folder and name."""

    folder: Folder
    name: str

    @property
    def location(self) -> str:
        """Path or URL, for messages."""
        return self.folder.location(self.name)

    def sha256(self) -> str:
        """SHA-256 of the file's bytes, in hex."""
        with self.folder.open(self.name) as file:
            return file_sha256(file)


def find_inputs(
    names: Iterable[str], kind: str | tuple[str, ...], suffixes: Sequence[str]
) -> tuple[list[PartSet], list[InputFile]]:
    """Return the part sets of `kind` and the files with one of `suffixes` that `names` refer to, in the order given.

    Raises InputError for a name without a match and for an empty file.
    """
    what = kind if isinstance(kind, str) else " or ".join(kind)
    sets: list[PartSet] = []
    files: list[InputFile] = []
    for name in names:
        folder = Folder(name)
        if folder.exists(MANIFEST) or folder.exists(ENTRIES):
            sets.append(PartSet.open(name, kind))
        else:
            files += _files_of(name, what, suffixes)
    if not sets and not files:
        raise InputError(f"no {what} given", "name a part set or files")
    for file in files:
        if file.folder.size(file.name) == 0:
            raise InputError(f"'{file.location}' is empty", "write or download it again, or leave it out")
    return sets, files


def _files_of(name: str, what: str, suffixes: Sequence[str]) -> list[InputFile]:
    parent, _, last = name.rstrip("/").rpartition("/")
    folder = Folder(parent or ("/" if name.startswith("/") else "."))
    known = folder.names()
    if last in known:
        return [InputFile(folder, last)]
    if any(character in last for character in "*?["):
        found = [InputFile(folder, each) for each in known if fnmatch.fnmatchcase(each, last)]
        if not found:
            raise InputError(f"no file matches '{name}'", "wildcards are allowed only after the last '/'")
        return found
    folder = Folder(name)
    if not folder.exists(""):
        raise InputError(f"'{name}' does not exist", "check the path")
    found = [InputFile(folder, each) for each in folder.names() if each.endswith(tuple(suffixes))]
    if not found:
        raise InputError(
            f"'{name}' is not a part set of {what} and contains no {', '.join(suffixes)} file",
            "name a folder that a webtext verb wrote, or files",
        )
    return found
