"""Input files: found by name, folder or pattern, on disk or at any fsspec URL. Files themselves need no Arrow.

    *.parquet                  a record per row
    *.jsonl *.ndjson *.json    a record per line
    any other file             text

Files of the last two kinds may be compressed: .gz, .bz2, .xz or .zst.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from webtext.base.decompress import SUFFIXES as COMPRESSED
from webtext.base.decompress import StreamBroken, decompressed
from webtext.base.errors import InputError
from webtext.base.storage import Folder

if TYPE_CHECKING:
    from webtext.base.parts.partset import PartSet
    from webtext.base.run import Run
    from webtext.base.workers.journal import Journal

T = TypeVar("T")

PARQUET, JSON_LINES, TEXT = "parquet", "json lines", "text"
DOCUMENTS = ("corpus", "documents")  # kinds of part sets
FILE = "file"  # a part's kind of source
RECORD_SUFFIXES = (".parquet", ".jsonl", ".ndjson")
DOCUMENT_SUFFIXES = (*RECORD_SUFFIXES, ".txt")
_NOT_TEXT = (".warc", ".zip", ".tar", ".npy", ".tok", ".bin", ".pdf")


@dataclass(frozen=True, slots=True)
class Refused:
    """A body or record that could not be processed; it is counted as failed with this reason."""

    reason: str
    cause: str


class BrokenFile(InputError):
    """A file that can't be read to its end; `reason` is `truncated_stream` or `damaged_stream`."""

    reason = "damaged_stream"


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input file, by folder and name."""

    folder: Folder
    name: str

    @property
    def location(self) -> str:
        """Path or URL, for messages."""
        return self.folder.location(self.name)

    @property
    def plain_name(self) -> str:
        """The name without the suffix of its compression."""
        return self.name.removesuffix(next(filter(self.name.endswith, COMPRESSED), ""))

    @property
    def kind(self) -> str:
        """PARQUET, JSON_LINES or TEXT, by the name's suffix. Raises InputError for a suffix of another kind of file."""
        if self.plain_name.endswith(_NOT_TEXT):
            raise InputError(
                f"'{self.location}' is not a text file", "expected a part set, text, JSON lines or Parquet"
            )
        if self.plain_name.endswith(".parquet"):
            return PARQUET
        return JSON_LINES if self.plain_name.endswith((".jsonl", ".ndjson", ".json")) else TEXT

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file; it is decompressed while it is read, which raises BrokenFile where it breaks off."""
        with self.folder.open(self.name) as file:
            try:
                yield decompressed(file, self.name)
            except StreamBroken as error:
                broken = self.broken(error.cause)
                broken.reason = error.reason
                raise broken from None

    def broken(self, cause: str) -> BrokenFile:
        """Return the error for a damaged file."""
        return BrokenFile(f"'{self.location}' cannot be read: {cause}", "write or download it again")

    def sha256(self) -> str:
        """SHA-256 of the file's bytes, in hex."""
        with self.folder.open(self.name) as file:
            return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def find_inputs(
    names: Iterable[str], kind: str | tuple[str, ...], suffixes: Sequence[str], *, may_be_empty: bool = False
) -> tuple[list[PartSet], list[InputFile]]:
    """Return the part sets of `kind` and the files with one of `suffixes` that `names` refer to, in the order given.

    Raises InputError for a name without a match, a file name that is not UTF-8 and, unless `may_be_empty`, an empty file.
    """
    what = kind if isinstance(kind, str) else " or ".join(kind)
    sets: list[PartSet] = []
    files: list[InputFile] = []
    for name in names:
        folder = Folder(name)
        if not (folder.is_local and folder.local_path().is_file()):
            from webtext.base.parts.partset import ENTRIES, MANIFEST, PartSet

            if folder.exists(MANIFEST) or folder.exists(ENTRIES):
                sets.append(PartSet.open(name, kind))
                continue
        files += files_of(name, what, suffixes)
    if not sets and not files:
        raise InputError(f"no {what} given", "name a part set or files")
    for file in files:
        if file.location.encode(errors="replace").decode() != file.location:
            raise InputError(f"the file name {file.location!r} is not valid UTF-8", "rename the file")
        if not may_be_empty and file.folder.size(file.name) == 0:
            raise InputError(f"'{file.location}' is empty", "write or download it again, or leave it out")
    return sets, files


def groups_of(items: Iterable[T], size: Callable[[T], int], n_bytes: int) -> list[list[T]]:
    """Return consecutive items in groups of at most `n_bytes`; a larger item is a group of its own."""
    groups: list[list[T]] = []
    left = -1
    for item in items:
        if size(item) > left:
            groups.append([])
            left = n_bytes
        groups[-1].append(item)
        left -= size(item)
    return groups


def hash_files(files: Sequence[InputFile], run: Run) -> list[str]:
    """Return the SHA-256 of each file in hex, computed by the run's workers."""
    names = [file.location for file in files]
    return run.map(_sha256, files, "hash files", unit="file", names=names) if files else []


def _sha256(_: Journal, file: InputFile) -> str:
    return file.sha256()


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the file names, each preceded by as many of its folders as all need to be unique.

    >>> short_names(["data/a/x.txt", "data/b/x.txt"]), short_names(["data/x.txt"])
    (['a/x.txt', 'b/x.txt'], ['x.txt'])
    """
    split = [path.split("/") for path in paths]
    for depth in range(1, max(map(len, split), default=0) + 1):
        names = ["/".join(each[-depth:]) for each in split]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def files_of(name: str, what: str, suffixes: Sequence[str]) -> list[InputFile]:
    """Return the file of this name, those that match it, or those of a folder with one of `suffixes`, sorted.

    Raises InputError if there is none.
    """
    folder, last = Folder.split(name)
    if folder.is_file(last):
        return [InputFile(folder, last)]
    if any(character in last for character in "*?["):
        found = [InputFile(folder, each) for each in folder.names() if fnmatch.fnmatchcase(each, last)]
        if not found:
            raise InputError(f"no file matches '{name}'", "wildcards are allowed only after the last '/'")
        return found
    folder = Folder(name)
    if not folder.exists(""):
        raise InputError(f"'{name}' does not exist", "check the path")
    files = [InputFile(folder, each) for each in folder.names() if not each.startswith(".")]
    found = [file for file in files if file.plain_name.endswith(tuple(suffixes))]
    if not found:
        raise InputError(
            f"'{name}' is not a part set of {what} and contains no {', '.join(suffixes)} file",
            "name a folder that a webtext verb wrote, or files",
        )
    return found
