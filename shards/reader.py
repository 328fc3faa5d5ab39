"""Token shards of one split, read where they lie, in corpus order: memory-mapped here, by ranges of bytes at a URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import ConfigError, InputError, did_you_mean
from webtext.base.partset import Attachment, PartSet
from webtext.shards.format import SPLITS, ShardHeader, Tokens, check_index, corrupt, shard_place, token_dtype
from webtext.shards.remote import RemoteShards
from webtext.shards.shard_tokens import Read, ShardTokens, keeping_blocks
from webtext.shards.shardfile import ShardFile
from webtext.shards.verify import verify_shard


class KnowsItsHash(Protocol):
    """What of a tokenizer is needed to recognise it."""

    @property
    def hash(self) -> str: ...


@dataclass(frozen=True, slots=True)
class TokenDocument:
    """One document as tokens (the end-of-text that opens it included), and where it came from."""

    tokens: Tokens
    id: str
    shard: str
    start: int
    source_part: str
    row: int


class TokenShards:
    """The shards of one split of a token set ("train" or "validation").

    Opening reads the manifest alone, and locally the names in the folder: it costs the same for any number of shards. A
    shard is held to the manifest when it is first read, its blocks to their checksums when they are, and `verify` reads
    every byte. A split without documents opens with `len(shards) == 0`. Shards follow each other as the parts of the
    corpus did. Of a set at a URL, `read` and a sampler fetch the ranges they need; `tokens` and `file` fetch whole shards
    and keep them in memory.
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
            raise InputError(f"'{folder}' does not say which tokenizer made it", "pack the corpus again") from None
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
        """Data-loader processes open the shards anew: no token is copied to them."""
        return type(self), (self.set.folder.url, self.split)

    def __len__(self) -> int:
        return len(self.headers)

    def __repr__(self) -> str:
        return f"TokenShards({self.set.folder.url!r}, {self.split!r}): {self.n_tokens:,} tokens, {len(self):,} shards"

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """Type of a token: u16 or u32."""
        return token_dtype(self.vocab_size)

    @cached_property
    def n_tokens(self) -> int:
        """Tokens in all shards of the split, end-of-text included."""
        return sum(header.n_tokens for header in self.headers)

    @cached_property
    def n_documents(self) -> int:
        """Documents in all shards of the split."""
        return sum(header.n_documents for header in self.headers)

    def tokens(self, i: int) -> Tokens:
        """The i-th shard of the split without its header: u16 or u32, memory-mapped, read-only; not checked, unlike `read`."""
        return self.file(i).tokens

    def streams(self) -> list[ShardTokens]:
        """Each shard as a sequence of tokens that are read as they are sliced: memory stays bounded, at a URL as well."""
        read: Read = self.read
        if self.remote is not None:
            read = keeping_blocks(self.read, self.n_tokens, self.token_dtype.itemsize)
        starts = self.shard_starts.tolist()
        return [ShardTokens(read, start, header.n_tokens) for start, header in zip(starts, self.headers, strict=False)]

    def file(self, i: int) -> ShardFile:
        """The i-th shard with its header and document index."""
        if i not in self._opened:
            self._opened.setdefault(i, self._open(i))  # of two threads that ask at once, both get the first one's
        return self._opened[i]

    def index(self, i: int) -> npt.NDArray[np.uint64]:
        """Where the documents of the i-th shard start in it, then its number of tokens; read and checked once."""
        if i not in self._indexes:
            index = self._read_index(i)
            check_index(index, self.headers[i], self.set.folder.location(self.names[i]))
            self._indexes[i] = index
        return self._indexes[i]

    @cached_property
    def document_bounds(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Positions in the whole split where its documents start, then the number of tokens."""
        starts = [self.index(i)[:-1].astype(np.int64) + self.shard_starts[i] for i in range(len(self))]
        return np.concatenate([*starts, [self.n_tokens]])

    @cached_property
    def shard_starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Positions in the whole split where its shards start, then the number of tokens."""
        return np.cumsum([0, *(header.n_tokens for header in self.headers)], dtype=np.int64)

    def place(self, position: int) -> tuple[int, int]:
        """The shard and the offset in it of a position in the whole split."""
        i = int(np.searchsorted(self.shard_starts, position, side="right")) - 1
        return i, position - int(self.shard_starts[i])

    def pieces(self, start: int, length: int) -> Iterator[tuple[int, int, int]]:
        """The (shard, start, stop) that make up a range of the whole split; past its end it goes on at its start."""
        shard, at = self.place(start % self.n_tokens)
        while length:
            n = min(length, self.headers[shard].n_tokens - at)
            if n:
                yield shard, at, at + n
            length -= n
            shard, at = (shard + 1) % len(self), 0

    def read(self, start: int, length: int) -> Tokens:
        """Tokens start … start+length of the whole split, as if its shards were one; past the end it goes on at the start.

        A view of the map when they lie in one shard of a local set, else a copy; of blocks that are whole, else ShardCorrupt.
        """
        if self.remote is not None:
            found = [self.remote.tokens(*piece) for piece in self.pieces(start, length)]
        else:
            found = [self.file(shard).read(begin, end) for shard, begin, end in self.pieces(start, length)]
        if not found:
            return np.empty(0, self.token_dtype)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def document(self, i: int) -> TokenDocument:
        """The i-th document of the split."""
        if not 0 <= i < self.n_documents:
            raise InputError(
                f"'{self.set.folder.url}' has no {self.split} document {i}", f"it has {self.n_documents:,}"
            )
        shard = int(np.searchsorted(self._document_ends, i, side="right"))
        within = i - int(self._document_ends[shard] - self.headers[shard].n_documents)
        return self.document_of(shard, within)

    def document_of(self, shard: int, i: int) -> TokenDocument:
        """The i-th document of a shard."""
        start, stop = self.index(shard)[i : i + 2].tolist()
        tokens = self.read(int(self.shard_starts[shard]) + start, stop - start)
        row = self._index_rows(shard).slice(i, 1).to_pylist()[0]
        return TokenDocument(tokens, row["id"], self.names[shard], row["start"], row["source_part"], row["row"])

    def documents(self) -> Iterator[TokenDocument]:
        """All documents of the split, in order."""
        for shard, header in enumerate(self.headers):
            for i in range(header.n_documents):
                yield self.document_of(shard, i)

    def document_ids(self, shard: int) -> pa.Array:
        """The ids of a shard's documents, in order."""
        return self._index_rows(shard).column("id").combine_chunks()

    def check_tokenizer(self, tokenizer: KnowsItsHash) -> None:
        """InputError unless this is the tokenizer that the set was packed with."""
        if tokenizer.hash != self.tokenizer_hash:
            raise InputError(
                f"'{self.set.folder.url}' was packed with tokenizer {self.tokenizer_hash[:12]}…, not {tokenizer.hash[:12]}…",
                "name the tokenizer that packed it, or pack the corpus again with this one",
            )

    def verify(self) -> None:
        """Read every byte: checksums, ids below the vocabulary, counts, the document index, the manifest's hashes.

        ShardCorrupt or InputError names the first file and place that is wrong.
        """
        for i in range(len(self)):
            file = self._opened.get(i) or self._open(i)
            verify_shard(file)
            rows = self._index_rows(i)
            starts, lengths = (rows.column(name).to_numpy() for name in ("start", "length"))
            if not (np.array_equal(starts, file.index[:-1]) and np.array_equal(starts + lengths, file.index[1:])):
                corrupt(
                    file.location, "document index", "not that of the set", "the rows of the set's part say otherwise"
                )
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
        """The rows of the set's document index that describe one shard; the last one asked for is kept."""
        if self._rows is None or self._rows[0] != shard:
            name = self.names[shard]
            place = shard_place(name)
            part = next(part for part in self.set.parts if place is not None and part.index == place[1])
            table = self.set.table(part)
            self._rows = (shard, table.filter(pc.equal(table.column("shard"), name)))
        return self._rows[1]


def _shards_of(tokens: PartSet, split: str) -> list[Attachment]:
    """The split's token files, in the corpus' order."""
    found = {shard_place(each.name): each for part in tokens.parts for each in part.attachments}
    return [found[place] for place in sorted(place for place in found if place is not None and place[0] == split)]
