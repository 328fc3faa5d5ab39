"""Input files: found by name, folder or pattern, on disk or at any fsspec URL. Files themselves need no Arrow.

    *.parquet            a record per row
    *.jsonl *.ndjson     a record per line
    *.json               a record per line or per element of one array; or one record
    *.csv                a record per row; the first row has the names
    *.txt *.md           text; so is any other file that is named itself

All but Parquet may be compressed: .gz, .bz2, .xz or .zst. Folders are trees, the case of suffixes doesn't matter, and
every verb reads the same files of a folder. Whatever it ignores there is counted and printed.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from webtext.base.console import Console, counted
from webtext.base.decompress import SUFFIXES as COMPRESSED
from webtext.base.decompress import StreamBroken, decompressed
from webtext.base.errors import InputError
from webtext.base.inputs.encodings import AUTO, HEAD_BYTES, UTF_8, check_encoding, detected, in_utf8
from webtext.base.storage import Folder, file_sha256
from webtext.base.workers.attempt import KILLED_WORKER

if TYPE_CHECKING:
    from webtext.base.parts.partset import PartSet
    from webtext.base.run import Run
    from webtext.base.workers.attempt import Attempt

T = TypeVar("T")

PARQUET, JSON_LINES, JSON, CSV, TEXT = "parquet", "json lines", "json", "csv", "text"
DOCUMENTS = ("corpus", "documents")  # kinds of part sets
_KINDS = {".parquet": PARQUET, ".jsonl": JSON_LINES, ".ndjson": JSON_LINES, ".json": JSON, ".csv": CSV}
RECORD_SUFFIXES = tuple(_KINDS)
DOCUMENT_SUFFIXES = (*RECORD_SUFFIXES, ".txt", ".md")
_NOT_TEXT = (".warc", ".zip", ".tar", ".npy", ".tok", ".bin", ".pdf")
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".tif", ".tiff", ".ico")


@dataclass(frozen=True, slots=True)
class Refused:
    """A body or record that could not be processed; it is counted as failed with this reason."""

    reason: str
    cause: str


lost = functools.partial(Refused, KILLED_WORKER)
"""The only record of a file whose reading kills workers, with the cause."""


class BrokenFile(InputError):
    """A file that can't be read to its end; `reason` is `truncated_stream` or `damaged_stream`."""

    reason = "damaged_stream"


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input file, by folder and name."""

    folder: Folder
    name: str
    encoding: str = UTF_8  # of all but Parquet; AUTO detects it

    @property
    def location(self) -> str:
        return self.folder.location(self.name)

    @property
    def plain_name(self) -> str:
        """The name in lower case, without the suffix of its compression."""
        name = self.name.lower()
        return name.removesuffix(next(filter(name.endswith, COMPRESSED), ""))

    @property
    def suffix(self) -> str:
        """The name's suffix in lower case, with the compression's: `.txt.gz`; empty if it has none."""
        plain = self.plain_name
        return PurePath(plain).suffix + self.name.lower()[len(plain) :]

    @property
    def kind(self) -> str:
        """PARQUET, JSON_LINES, JSON, CSV or TEXT, by the suffix. Raises InputError for any other suffix."""
        if self.plain_name.endswith(_NOT_TEXT):
            raise InputError(f"'{self.location}' is not a text file", "expected a part set, text, JSON, CSV or Parquet")
        return _KINDS.get(PurePath(self.plain_name).suffix, TEXT)

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file; it is decompressed while it is read, which raises BrokenFile where it breaks off.

        Texts, and files in another encoding, are read as UTF-8 by `in_utf8`.
        """
        with self.folder.open(self.name) as file:
            try:
                stream, encoding = decompressed(file, self.name.lower()), self.encoding
                if encoding == AUTO:
                    with self.folder.open(self.name) as again:
                        encoding = detected(decompressed(again, self.name.lower()).read(HEAD_BYTES))
                is_text = self.kind == TEXT
                yield in_utf8(stream, encoding, is_text=is_text) if is_text or encoding != UTF_8 else stream
            except StreamBroken as error:
                broken = self.broken(error.cause)
                broken.reason = error.reason
                raise broken from None

    def check_column(self, name: str, names: Sequence[str]) -> None:
        """Raise InputError unless exactly one of the file's columns has this name."""
        if (n := names.count(name)) != 1:
            raise InputError(
                f"'{self.location}' has {f'{n} columns' if n else 'no column'} '{name}'",
                f"its columns: {', '.join(names[:9])[:900]}",
                "shards pack and tokenizer train take the column of --text-field; for other verbs, rename it",
            )

    def broken(self, cause: str) -> BrokenFile:
        return BrokenFile(f"'{self.location}' cannot be read: {cause}", "write or download it again")

    def sha256(self) -> str:
        """SHA-256 of the file's bytes, in hex."""
        with self.folder.open(self.name) as file:
            return file_sha256(file)

    @property
    def version(self) -> str:
        return self.folder.version(self.name)

    def check_unchanged(self, version: str, sha256: str) -> None:
        """Raise InputError if the file has changed since it had this version and then this SHA-256."""
        if self.version != version and self.sha256() != sha256:
            raise InputError(f"'{self.location}' changed while it was read", "rerun the same command")


def find_inputs(
    names: Iterable[str],
    kind: str | tuple[str, ...],
    suffixes: Sequence[str],
    *,
    may_be_empty: bool = False,
    encoding: str = UTF_8,
) -> tuple[list[PartSet], list[InputFile]]:
    """Return the part sets of `kind` and the files with one of `suffixes` that `names` refer to, in the order given.

    The files are read in `encoding`. Raises InputError for a name without a match and, unless `may_be_empty`, an empty
    file; ConfigError for an unknown encoding.
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
        files += files_of(name, what, suffixes, encoding)
    if not sets and not files:
        raise InputError(f"no {what} given", "name a part set or files")
    for file in files:
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


def _sha256(_: Attempt, file: InputFile) -> str:
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


def files_of(
    name: str,
    what: str,
    suffixes: Sequence[str],
    encoding: str = UTF_8,
    takes: Callable[[InputFile], bool] | None = None,
) -> list[InputFile]:
    """Return the file of this name, the files that match it, or a folder's files with one of `suffixes`, sorted.

    If `takes` is given, it decides instead of `suffixes`. Hidden files and part sets inside a folder are ignored, and
    whatever is ignored is printed. Raises InputError if no file is left, or if a file's name is not UTF-8.
    """
    check_encoding(encoding)
    for file in (found := _found(name, what, suffixes, encoding, takes)):
        if file.location.encode(errors="replace").decode() != file.location:
            raise InputError(f"the file name {file.location!r} is not valid UTF-8", "rename the file")
    return found


def _found(
    name: str, what: str, suffixes: Sequence[str], encoding: str, takes: Callable[[InputFile], bool] | None
) -> list[InputFile]:
    folder, last = Folder.split(name)
    if folder.is_file(last):
        return [InputFile(folder, last, encoding)]
    if set(last) & set("*?[") and not Folder(name).exists(""):
        found = [InputFile(folder, each, encoding) for each in fnmatch.filter(folder.names(), last)]
        if not found:
            raise InputError(f"no file matches '{name}'", "wildcards are allowed only after the last '/'")
        return found
    folder = Folder(name)
    if not folder.exists(""):
        raise InputError(f"'{name}' does not exist", "check the path")
    within = folder.names_within()
    sets = {each.partition("/_parts/")[0] + "/" for each in within if "/_parts/" in each}
    if inside := sets & {f"{kind}/" for kind in what.split(" or ")}:
        raise InputError(f"'{name}' is not a part set, but contains {', '.join(sorted(inside))}", "name a part set")
    found, ignored = [], Counter({"part set": len(sets)})
    for file in (InputFile(folder, each, encoding) for each in within if not each.startswith(tuple(sets))):
        is_hidden = "/." in f"/{file.name}"
        if not is_hidden and (takes(file) if takes else file.plain_name.endswith(tuple(suffixes))):
            found.append(file)
        else:
            kind = "image" if file.suffix in _IMAGES else file.suffix or "without suffix"
            ignored["hidden" if is_hidden else kind] += 1
    nouns = ("image", "part set")  # the other kinds have no plural
    said = ", ".join(counted(n, kind, None if kind in nouns else kind) for kind, n in (+ignored).most_common())
    if not found:
        known = f"; it contains {said}" if said else ""
        raise InputError(
            f"'{name}' is not a part set of {what} and contains no {', '.join(suffixes)} file{known}",
            "name a folder that a webtext verb wrote, or files",
        )
    if said:
        _warn_once(f"ignored: {said} (in '{name}')")
    return found


_warn_once = functools.cache(Console.warn)  # a verb may look at a folder more than once
