"""Token shards of one split, read where they lie: memory-mapped, read-only, in corpus order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import ConfigError, InputError, did_you_mean
from webtext.base.partset import PartSet
from webtext.shards.format import SPLITS, Tokens, corrupt, shard_place
from webtext.shards.shardfile import ShardFile
from webtext.shards.verify import verify_shard


class KnowsItsHash(Protocol):
    """What of a tokenizer is needed to recognise it."""

    @property
    def hash(self) -> str: ...


@dataclass(frozen=True, slots=True)
class TokenDocument:
    """One document as tokens (the closing end-of-text included), and where it came from."""

    tokens: Tokens
    id: str
    shard: str
    start: int
    source_part: str
    row: int


class TokenShards:
    """The shards of one split of a token set ("train" or "validation").

    Opening checks the manifest, sizes and headers, not the tokens: `verify` reads every byte. A split without documents
    opens with `len(shards) == 0`. Shards follow each other as the parts of the corpus did.
    """

    def __init__(self, folder: str | os.PathLike[str], split: str = "train") -> None:
        if split not in SPLITS:
            raise ConfigError(f"no split '{split}'", did_you_mean(split, SPLITS))
        self.set = PartSet.open(os.fspath(folder), "tokens")
        self.split = split
        self.hash = self.set.hash
        self.names = _shard_names(self.set, split)
        self._files = [ShardFile(self.set.folder.local_path(name)) for name in self.names]
        settings = self.set.recipe["settings"]
        try:
            self.vocab_size = int(settings["vocab_size"])
            self.eot_id = int(settings["eot_id"])
            self.tokenizer_hash = str(settings["tokenizer_hash"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"'{folder}' does not say which tokenizer made it", "pack the corpus again") from None
        for file in self._files:
            self._check_agrees(file)
        self._rows: tuple[int, pa.Table] | None = None

    def __reduce__(self) -> tuple[type[TokenShards], tuple[str, str]]:
        """Data-loader processes open the shards anew: no token is copied to them."""
        return type(self), (self.set.folder.url, self.split)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"TokenShards({self.set.folder.url!r}, {self.split!r}): {self.n_tokens:,} tokens, {len(self):,} shards"

    @cached_property
    def n_tokens(self) -> int:
        """Tokens in all shards of the split, end-of-text included."""
        return sum(file.header.n_tokens for file in self._files)

    @cached_property
    def n_documents(self) -> int:
        """Documents in all shards of the split."""
        return sum(file.header.n_documents for file in self._files)

    def tokens(self, i: int) -> Tokens:
        """The i-th shard of the split without its header: u16 or u32, memory-mapped, read-only."""
        return self._files[i].tokens

    def file(self, i: int) -> ShardFile:
        """The i-th shard with its header and document index."""
        return self._files[i]

    def place(self, position: int) -> tuple[int, int]:
        """The shard and the offset in it of a position in the whole split."""
        i = int(np.searchsorted(self._ends, position, side="right"))
        return i, position - int(self._ends[i] - self._files[i].header.n_tokens)

    def read(self, start: int, length: int) -> Tokens:
        """Tokens start … start+length of the whole split, as if its shards were one; past the end it goes on at the start.

        A view of the map when they lie in one shard, else a copy.
        """
        i, at = self.place(start)
        piece = self._files[i].tokens[at : at + length]
        if len(piece) == length:
            return piece
        pieces = [piece]
        missing = length - len(piece)
        while missing:
            i = (i + 1) % len(self._files)
            pieces.append(self._files[i].tokens[:missing])
            missing -= len(pieces[-1])
        return np.concatenate(pieces)

    def document(self, i: int) -> TokenDocument:
        """The i-th document of the split."""
        if not 0 <= i < self.n_documents:
            raise InputError(
                f"'{self.set.folder.url}' has no {self.split} document {i}", f"it has {self.n_documents:,}"
            )
        shard = int(np.searchsorted(self._document_ends, i, side="right"))
        within = i - int(self._document_ends[shard] - self._files[shard].header.n_documents)
        return self.document_of(shard, within)

    def document_of(self, shard: int, i: int) -> TokenDocument:
        """The i-th document of a shard."""
        tokens = self._files[shard].document(i)
        row = self._index_rows(shard).slice(i, 1).to_pylist()[0]
        return TokenDocument(tokens, row["id"], self.names[shard], row["start"], row["source_part"], row["row"])

    def documents(self) -> Iterator[TokenDocument]:
        """All documents of the split, in order."""
        for shard, file in enumerate(self._files):
            for i in range(file.header.n_documents):
                yield self.document_of(shard, i)

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
        for i, file in enumerate(self._files):
            verify_shard(file)
            rows = self._index_rows(i)
            starts, lengths = (rows.column(name).to_numpy() for name in ("start", "length"))
            if not (np.array_equal(starts, file.index[:-1]) and np.array_equal(starts + lengths, file.index[1:])):
                corrupt(
                    str(file.path), "document index", "not that of the set", "the rows of the set's part say otherwise"
                )
        self.set.verify()

    @cached_property
    def _ends(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.cumsum([file.header.n_tokens for file in self._files], dtype=np.int64)

    @cached_property
    def _document_ends(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.cumsum([file.header.n_documents for file in self._files], dtype=np.int64)

    def _index_rows(self, shard: int) -> pa.Table:
        """The rows of the set's document index that describe one shard; the last one asked for is kept."""
        if self._rows is None or self._rows[0] != shard:
            name = self.names[shard]
            place = shard_place(name)
            part = next(part for part in self.set.parts if place is not None and part.index == place[1])
            table = self.set.table(part)
            self._rows = (shard, table.filter(pc.equal(table.column("shard"), name)))
        return self._rows[1]

    def _check_agrees(self, file: ShardFile) -> None:
        for field in ("vocab_size", "eot_id", "tokenizer_hash"):
            value, expected = getattr(file.header, field), getattr(self, field)
            if value != expected:
                corrupt(str(file.path), field, value, f"the manifest says {expected}")


def _shard_names(tokens: PartSet, split: str) -> list[str]:
    names = [attachment.name for part in tokens.parts for attachment in part.attachments]
    places = sorted((place, name) for name in names if (place := shard_place(name)) is not None)
    return [name for place, name in places if place[0] == split]
