"""Reader for the token shards of one split, in corpus order: memory-mapped files on disk.

Shards of a set at a URL are copied to this machine before they are mapped, each when it is first used.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from webtext.base.console import counted
from webtext.base.errors import ConfigError, InputError, did_you_mean
from webtext.base.parts.partset import Attachment, PartSet
from webtext.base.storage import Folder, file_sha256
from webtext.shards.format import SPLITS, ShardHeader, Tokens, check_index, corrupt, shard_place, token_dtype
from webtext.shards.shardfile import ShardFile, verify_shard

COPY_BYTES = 8 << 20

if TYPE_CHECKING:
    import pyarrow as pa

    from webtext.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TokenDocument:
    """One document as tokens, including the end-of-text that opens it, and its origin."""

    tokens: Tokens
    id: str
    shard: str
    start: int
    source_part: str
    row: int


class TokenShards:
    """The shards of one split of a token set ("train" or "validation"), in the order of the corpus' parts.

    Opening reads only the manifest and, on disk, lists the folder, so it takes the same time for any number of shards.
    When a shard is first used in a process, its SHA-256 is compared with the manifest's, and its ids with the
    vocabulary; `verify` reads every byte. A split without documents has `len(shards) == 0`.
    """

    def __init__(self, folder: str | os.PathLike[str], split: str = "train") -> None:
        if split not in SPLITS:
            raise ConfigError(f"no split '{split}'", did_you_mean(split, SPLITS))
        self.set = PartSet.open(os.fspath(folder), "tokens", checks_sizes=False)
        self.split = split
        self.hash = self.set.hash
        self._attachments = _shards_of(self.set, split)
        self.names = [attachment.name for _, attachment in self._attachments]
        settings = self.set.recipe["settings"]
        try:
            self.vocab_size = int(settings["vocab_size"])
            self.eot_id = int(settings["eot_id"])
            self.tokenizer_hash = str(settings["tokenizer_hash"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"'{folder}' doesn't say which tokenizer made it", "pack the corpus again") from None
        common = (self.vocab_size, self.eot_id, self.tokenizer_hash)
        self.headers = [
            ShardHeader.from_manifest(each.about, common, self.set.folder.location(each.name), each.bytes)
            for _, each in self._attachments
        ]
        _allow_open_files()
        if self.set.folder.is_local:
            self.set.check_names([*self.names, *(part.name for part in self.set.parts)])
        self._opened: dict[int, ShardFile] = {}
        self._indexes: dict[int, npt.NDArray[np.uint64]] = {}
        self._rows: tuple[int, pa.Table] | None = None

    def __reduce__(self) -> tuple[type[TokenShards], tuple[str, str]]:
        """Pickle only the location: data-loader processes open the shards themselves, and no token is copied."""
        return type(self), (self.set.folder.url, self.split)

    def __len__(self) -> int:
        return len(self.headers)

    def __repr__(self) -> str:
        size = f"{counted(self.n_tokens, 'token')}, {counted(len(self), 'shard')}"
        return f"TokenShards({self.set.folder.url!r}, {self.split!r}): {size}"

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """Dtype of a token: u16 or u32."""
        return token_dtype(self.vocab_size)

    @cached_property
    def n_tokens(self) -> int:
        """Number of tokens in all shards of the split, including end-of-text."""
        return sum(header.n_tokens for header in self.headers)

    @cached_property
    def n_documents(self) -> int:
        """Number of documents in all shards of the split."""
        return sum(header.n_documents for header in self.headers)

    def tokens(self, i: int) -> Tokens:
        """Return the i-th shard's tokens, without header: u16 or u32 [n_tokens], memory-mapped, read-only."""
        return self.file(i).tokens

    def streams(self) -> list[Tokens]:
        """Return the tokens of each shard."""
        return [self.tokens(i) for i in range(len(self))]

    def file(self, i: int) -> ShardFile:
        """Return the i-th shard with its header and document index; raises InputError if it was altered."""
        if i not in self._opened:
            file = ShardFile(self._checked_path(i))
            if file.header != self.headers[i]:
                corrupt(file.location, "header", "not the manifest's", "the set's manifest says otherwise")
            file.check_ids()
            self._opened.setdefault(i, file)  # if two threads open it at once, both get the first one's object
        return self._opened[i]

    def index(self, i: int) -> npt.NDArray[np.uint64]:
        """Return the i-th shard's document starts, then its number of tokens: u64 [n_documents + 1]; checked once."""
        if i not in self._indexes:
            file = self.file(i)
            check_index(file.index, file.header, file.location)
            self._indexes[i] = file.index
        return self._indexes[i]

    @cached_property
    def document_bounds(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Document starts as positions in the entire split, then the number of tokens: int64 [n_documents + 1]."""
        starts = [self.index(i)[:-1].astype(np.int64) + self.shard_starts[i] for i in range(len(self))]
        return np.concatenate([*starts, [self.n_tokens]])

    @cached_property
    def shard_starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Shard starts as positions in the entire split, then the number of tokens: int64 [shards + 1]."""
        return np.cumsum([0, *(header.n_tokens for header in self.headers)], dtype=np.int64)

    def place(self, position: int) -> tuple[int, int]:
        """Convert a position in the entire split to a shard's number and the offset in it."""
        i = int(np.searchsorted(self.shard_starts, position, side="right")) - 1
        return i, position - int(self.shard_starts[i])

    def pieces(self, start: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Yield the (shard, start, stop) that make up a range of the split; past the end it continues at the start."""
        shard, at = self.place(start % self.n_tokens)
        while length > 0:
            n = min(length, self.headers[shard].n_tokens - at)
            if n:
                yield shard, at, at + n
            length -= n
            shard, at = (shard + 1) % len(self), 0

    def read(self, start: int, length: int) -> Tokens:
        """Return tokens start … start+length-1 of the split as if it were one ring: the start follows the end.

        The result is u16 or u32 [length], a view of the memory map if the range is inside one shard, otherwise a copy.
        """
        found = [self.tokens(shard)[begin:end] for shard, begin, end in self.pieces(start, length)]
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0, self.token_dtype), *found])

    def document(self, i: int) -> TokenDocument:
        """Return the i-th document of the split."""
        if not 0 <= i < self.n_documents:
            place = f"'{self.set.folder.url}' has no {self.split} document"
            raise InputError(f"{place} {i}", f"it has {self.n_documents:,}")
        shard = int(np.searchsorted(self._document_ends, i, side="right"))
        within = i - int(self._document_ends[shard] - self.headers[shard].n_documents)
        return self.document_of(shard, within)

    def document_of(self, shard: int, i: int) -> TokenDocument:
        """Return the i-th document of a shard."""
        start, stop = self.index(shard)[i : i + 2].tolist()
        tokens = self.read(int(self.shard_starts[shard]) + start, stop - start)
        row = self._index_rows(shard).slice(i, 1).to_pylist()[0]
        return TokenDocument(tokens, row["id"], self.names[shard], row["start"], row["source_part"], row["row"])

    def documents(self) -> Iterator[TokenDocument]:
        """Yield all documents of the split, in order."""
        return map(self.document, range(self.n_documents))

    def document_ids(self, shard: int) -> pa.ChunkedArray:
        """Return the ids of a shard's documents, in order (strings)."""
        return self._index_rows(shard).column("id")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise InputError unless the set was packed with this tokenizer."""
        if tokenizer.hash != self.tokenizer_hash:
            raise InputError(
                f"'{self.set.folder.url}' was packed with tokenizer {self.tokenizer_hash[:12]}…, not {tokenizer.hash[:12]}…",
                "use the tokenizer that packed it, or pack the corpus again with this one",
            )

    def verify(self) -> None:
        """Check every byte: the manifest's hashes, ids, counts and the document index.

        Raises ShardCorrupt or InputError with the first file and place that is wrong.
        """
        for i in range(len(self)):
            file = self.file(i)
            verify_shard(file)
            rows = self._index_rows(i)
            starts, lengths = (rows.column(name).to_numpy() for name in ("start", "length"))
            if not (np.array_equal(starts, file.index[:-1]) and np.array_equal(starts + lengths, file.index[1:])):
                corrupt(file.location, "document index", "not the set's", "the rows of the set's part say otherwise")
        self.set.verify()

    @cached_property
    def _document_ends(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.cumsum([header.n_documents for header in self.headers], dtype=np.int64)

    def _checked_path(self, i: int) -> Path:
        number, attachment = self._attachments[i]
        if not self.set.folder.is_local:
            return local_copy(self.set.folder, attachment)
        return self.set.folder.local_path(self.set.attachment(number, attachment.name))

    def _index_rows(self, shard: int) -> pa.Table:
        """Return the rows of the set's document index for one shard; the last result is cached."""
        if self._rows is None or self._rows[0] != shard:
            import pyarrow.compute as pc

            name = self.names[shard]
            table = self.set.table(self._attachments[shard][0])
            self._rows = (shard, table.filter(pc.equal(table.column("shard"), name)))
        return self._rows[1]


def local_copy(folder: Folder, file: Attachment) -> Path:
    """Return the path of this machine's copy of a file in a store, which is copied first unless it is there.

    Copies are named by their SHA-256, so sets share them. Processes that need the same file wait for the one that copies
    it. Raises InputError if the file doesn't have the SHA-256 that the manifest states.
    """
    cache = Folder(cache_folder())
    path = cache.local_path(Path(f"{file.sha256}.tok").name)  # the manifest may be anyone's
    if not _is_intact(path, file):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_intact(path, file):
                with cache.scratch(path.name) as temporary:
                    with folder.open(file.name) as source, open(temporary, "wb") as target:
                        shutil.copyfileobj(source, target, COPY_BYTES)
                    if not _is_intact(temporary, file):
                        raise InputError(
                            f"'{folder.location(file.name)}' was altered, in the store or on its way: "
                            f"its SHA-256 isn't {file.sha256[:12]}…, which the manifest states",
                            "rerun the command; if that doesn't help, copy the file to the store again",
                        )
    return path


def _allow_open_files() -> None:
    """Raise this process' limit on open files as far as it may: each memory map holds one, and a set may have thousands."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # some systems don't allow their own "unlimited"
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def cache_folder() -> str:
    """Return WEBTEXT_CACHE, or the platform's usual folder for caches."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return os.environ.get("WEBTEXT_CACHE") or str(usual / "webtext")


def _is_intact(path: Path, file: Attachment) -> bool:
    if not path.is_file() or path.stat().st_size != file.bytes:
        return False
    with open(path, "rb") as copy:
        return file_sha256(copy) == file.sha256


def _shards_of(tokens: PartSet, split: str) -> list[tuple[int, Attachment]]:
    """Return the split's token files with the places of their parts among the set's, in the corpus' order."""
    found = {shard_place(each.name): (i, each) for i, part in enumerate(tokens.parts) for each in part.attachments}
    return [found[place] for place in sorted(place for place in found if place is not None and place[0] == split)]
