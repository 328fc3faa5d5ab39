"""Reader for the token shards of one split, in corpus order: memory-mapped on disk, by ranges of bytes at a URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from webtext.base.errors import ConfigError, InputError, did_you_mean
from webtext.base.parts.partset import Attachment, PartSet
from webtext.shards.format import SPLITS, ShardHeader, Tokens, check_index, corrupt, shard_place, token_dtype
from webtext.shards.reading.remote import RemoteShards
from webtext.shards.reading.shard_tokens import Read, ShardTokens, keeping_blocks
from webtext.shards.shardfile import ShardFile, verify_shard

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
    A shard is compared with the manifest when it is first read, and each block with its checksum; `verify` reads every
    byte. A split without documents has `len(shards) == 0`. For a set at a URL, `read` and samplers fetch the ranges
    that they need; `tokens` and `file` fetch complete shards and keep them in memory.
    """

    def __init__(self, folder: str | os.PathLike[str], split: str = "train") -> None:
        if split not in SPLITS:
            raise ConfigError(f"no split '{split}'", did_you_mean(split, SPLITS))
        self.set = PartSet.open(os.fspath(folder), "tokens", checks_sizes=False)
        self.split = split
        self.hash = self.set.hash
        attachments = _shards_of(self.set, split)
        self.names = [attachment.name for attachment in attachments]
        settings = self.set.recipe["settings"]
        try:
            self.vocab_size = int(settings["vocab_size"])
            self.eot_id = int(settings["eot_id"])
            self.tokenizer_hash = str(settings["tokenizer_hash"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"'{folder}' doesn't say which tokenizer made it", "pack the corpus again") from None
        self.headers = [
            ShardHeader.from_manifest(each.about, settings, self.set.folder.location(each.name), each.bytes)
            for each in attachments
        ]
        self.remote: RemoteShards | None = None
        if self.set.folder.is_local:
            self.set.check_names([*self.names, *(part.name for part in self.set.parts)])
        else:
            self.remote = RemoteShards(self.set.folder.url, self.names, self.headers)
        self._opened: dict[int, ShardFile] = {}
        self._indexes: dict[int, npt.NDArray[np.uint64]] = {}
        self._rows: tuple[int, pa.Table] | None = None

    def __reduce__(self) -> tuple[type[TokenShards], tuple[str, str]]:
        """Pickle only the location: data-loader processes open the shards themselves, and no token is copied."""
        return type(self), (self.set.folder.url, self.split)

    def __len__(self) -> int:
        return len(self.headers)

    def __repr__(self) -> str:
        return f"TokenShards({self.set.folder.url!r}, {self.split!r}): {self.n_tokens:,} tokens, {len(self):,} shards"

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
        """Return the i-th shard's tokens, without header: u16 or u32 [n_tokens], memory-mapped, read-only.

        Unlike `read`, this doesn't check them.
        """
        return self.file(i).tokens

    def streams(self) -> list[ShardTokens]:
        """Return each shard as a sequence that reads its tokens when it is sliced, in bounded memory, also at a URL."""
        read: Read = self.read
        if self.remote is not None:
            read = keeping_blocks(self.read, self.n_tokens, self.token_dtype.itemsize)
        starts = self.shard_starts.tolist()
        return [ShardTokens(read, start, header.n_tokens) for start, header in zip(starts, self.headers, strict=False)]

    def file(self, i: int) -> ShardFile:
        """Return the i-th shard with its header and document index."""
        if i not in self._opened:
            self._opened.setdefault(i, self._open(i))  # if two threads open it at once, both get the first one's object
        return self._opened[i]

    def index(self, i: int) -> npt.NDArray[np.uint64]:
        """Return the i-th shard's document starts, then its number of tokens: u64 [n_documents + 1]; checked once."""
        if i not in self._indexes:
            index = self._read_index(i)
            check_index(index, self.headers[i], self.set.folder.location(self.names[i]))
            self._indexes[i] = index
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
        while length:
            n = min(length, self.headers[shard].n_tokens - at)
            if n:
                yield shard, at, at + n
            length -= n
            shard, at = (shard + 1) % len(self), 0

    def read(self, start: int, length: int) -> Tokens:
        """Return tokens start … start+length-1 of the split as if it were one ring: the start follows the end.

        The result is u16 or u32 [length], a view of the memory map if the range is inside one shard on disk, otherwise
        a copy. Raises ShardCorrupt if a block doesn't match its checksum.
        """
        if self.remote is not None:
            found = [self.remote.tokens(*piece) for piece in self.pieces(start, length)]
        else:
            found = [self.file(shard).read(begin, end) for shard, begin, end in self.pieces(start, length)]
        if not found:
            return np.empty(0, self.token_dtype)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def document(self, i: int) -> TokenDocument:
        """Return the i-th document of the split."""
        if not 0 <= i < self.n_documents:
            raise InputError(
                f"'{self.set.folder.url}' has no {self.split} document {i}", f"it has {self.n_documents:,}"
            )
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
        for shard, header in enumerate(self.headers):
            for i in range(header.n_documents):
                yield self.document_of(shard, i)

    def document_ids(self, shard: int) -> pa.Array:
        """Return the ids of a shard's documents, in order (strings)."""
        return self._index_rows(shard).column("id").combine_chunks()

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise InputError unless the set was packed with this tokenizer."""
        if tokenizer.hash != self.tokenizer_hash:
            raise InputError(
                f"'{self.set.folder.url}' was packed with tokenizer {self.tokenizer_hash[:12]}…, not {tokenizer.hash[:12]}…",
                "use the tokenizer that packed it, or pack the corpus again with this one",
            )

    def verify(self) -> None:
        """Check every byte: checksums, ids, counts, the document index and the manifest's hashes.

        Raises ShardCorrupt or InputError with the first file and place that is wrong.
        """
        for i in range(len(self)):
            file = self._opened.get(i) or self._open(i)
            verify_shard(file)
            rows = self._index_rows(i)
            starts, lengths = (rows.column(name).to_numpy() for name in ("start", "length"))
            if not (np.array_equal(starts, file.index[:-1]) and np.array_equal(starts + lengths, file.index[1:])):
                corrupt(file.location, "document index", "not the set's", "the rows of the set's part say otherwise")
        self.set.verify()

    @cached_property
    def _document_ends(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.cumsum([header.n_documents for header in self.headers], dtype=np.int64)

    def _read_index(self, i: int) -> npt.NDArray[np.uint64]:
        if self.remote is not None:
            return self.remote.index(i)
        file = self.file(i)
        file.checks.check(file.header.index_offset, file.header.checksums_offset)
        return file.index

    def _open(self, i: int) -> ShardFile:
        if self.remote is not None:
            return ShardFile.from_bytes(self.remote.whole(i), self.set.folder.location(self.names[i]), self.headers[i])
        return ShardFile(self.set.folder.local_path(self.names[i]), self.headers[i])

    def _index_rows(self, shard: int) -> pa.Table:
        """Return the rows of the set's document index for one shard; the last result is cached."""
        if self._rows is None or self._rows[0] != shard:
            import pyarrow.compute as pc

            name = self.names[shard]
            place = shard_place(name)
            part = next(part for part in self.set.parts if place is not None and part.index == place[1])
            table = self.set.table(part)
            self._rows = (shard, table.filter(pc.equal(table.column("shard"), name)))
        return self._rows[1]


def _shards_of(tokens: PartSet, split: str) -> list[Attachment]:
    """Return the split's token files, in the corpus' order."""
    found = {shard_place(each.name): each for part in tokens.parts for each in part.attachments}
    return [found[place] for place in sorted(place for place in found if place is not None and place[0] == split)]
