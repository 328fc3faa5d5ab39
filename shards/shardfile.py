"""One token file: writer, document by document, memory-mapped reader, and verification. `format.py` has the layout."""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from webtext.base.errors import InputError
from webtext.shards.format import HEADER_BYTES, INDEX_BYTES, ShardHeader, Tokens, check_index, check_index_ends, corrupt

PIECE = 1 << 20
"""Tokens written or verified per step, which bounds memory."""


class ShardWriter:
    """Writer for one token file, document by document, in memory that doesn't grow with its tokens.

    The header is written last: a file whose writing was interrupted starts with zeros and isn't a valid shard.
    """

    def __init__(self, path: Path, *, vocab_size: int, eot_id: int, tokenizer_hash: str) -> None:
        self.n_tokens = 0
        self._header = ShardHeader(
            vocab_size=vocab_size, eot_id=eot_id, tokenizer_hash=tokenizer_hash, n_tokens=0, n_documents=0
        )
        self._dtype = self._header.dtype
        self._eot = np.array([eot_id], self._dtype).tobytes()
        self._starts = array("Q")
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 - closed by __exit__
        self._file.write(bytes(HEADER_BYTES))

    def append(self, tokens: Tokens) -> int:
        """Append an end-of-text token and then one document; return the position of the end-of-text token.

        Raises InputError, and writes nothing of the document, if an id isn't in the vocabulary.
        """
        largest = max((int(piece.max()) for _, piece in pieces(tokens)), default=0)
        if largest >= self._header.vocab_size:
            raise InputError(f"token id {largest} is not in the vocabulary of {self._header.vocab_size:,} tokens")
        start = self.n_tokens
        self._starts.append(start)
        self._file.write(self._eot)
        for _, piece in pieces(tokens):
            self._file.write(piece.astype(self._dtype, copy=False).tobytes())
        self.n_tokens += len(tokens) + 1
        return start

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(finish=kind is None)

    def close(self, *, finish: bool = True) -> None:
        """Complete the file and close it; without `finish` it has no header and isn't a valid shard."""
        with self._file as file:
            if finish:
                file.write(bytes(-self.n_tokens * self._dtype.itemsize % INDEX_BYTES))
                file.write(np.append(np.asarray(self._starts, "<u8"), np.uint64(self.n_tokens)).astype("<u8").tobytes())
                file.seek(0)
                self._header = replace(self._header, n_tokens=self.n_tokens, n_documents=len(self._starts))
                file.write(self._header.to_bytes())

    def in_manifest(self) -> dict[str, Any]:
        """Return the finished file's description in the set's manifest (`PartWriter.describe`)."""
        return self._header.in_manifest()


class ShardFile:
    """One token file, memory-mapped read-only. Opening checks the header; `TokenShards` compares the file's SHA-256."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.location = str(path)
        with open(path, "rb") as file:
            n_bytes = os.fstat(file.fileno()).st_size
            self.header = ShardHeader.from_bytes(file.read(HEADER_BYTES), self.location, n_bytes)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.tokens: Tokens = self._view(self.header.dtype, HEADER_BYTES, self.header.n_tokens)
        self.index: npt.NDArray[np.uint64] = self._view("<u8", self.header.index_offset, self.header.n_documents + 1)
        check_index_ends(self.index, self.header, self.location)

    def read_ahead(self, start: int, stop: int) -> None:
        """Ask the kernel to read tokens start … stop-1 into its page cache in one sweep."""
        first = (HEADER_BYTES + start * self.tokens.itemsize) // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(mmap.MADV_WILLNEED, first, HEADER_BYTES + stop * self.tokens.itemsize - first)

    def check_ids(self) -> None:
        """Raise ShardCorrupt, with the first wrong id, unless all ids are in the vocabulary; a model would crash on it."""
        for start, piece in pieces(self.tokens):
            if int(piece.max()) >= self.header.vocab_size:
                at = int(np.argmax(piece >= self.header.vocab_size))
                limit = f"the vocabulary has {self.header.vocab_size:,} tokens"
                corrupt(self.location, f"token {start + at:,}", int(piece[at]), limit)

    def _view(self, dtype: npt.DTypeLike, offset: int, n: int) -> npt.NDArray[Any]:
        return np.frombuffer(self._map, dtype, n, offset)


def verify_shard(shard: ShardFile) -> None:
    """Check the index, the ids, and that end-of-text is at each document's start and nowhere else.

    Raises ShardCorrupt with the file and the first document or token that is wrong.
    """
    header = shard.header
    check_index(shard.index, header, shard.location)
    shard.check_ids()
    token_bytes = header.n_tokens * header.dtype.itemsize
    if shard._view("u1", HEADER_BYTES + token_bytes, header.tokens_bytes - token_bytes).any():
        corrupt(shard.location, "padding after the tokens", "not zero", "it must be zero")
    first = shard.tokens[shard.index[:-1].astype(np.int64)]
    for at in np.flatnonzero(first != header.eot_id):
        corrupt(shard.location, f"first token of document {at:,}", first[at], f"expected end-of-text, {header.eot_id}")
    n_eots = sum(int(np.count_nonzero(piece == header.eot_id)) for _, piece in pieces(shard.tokens))
    if n_eots != header.n_documents:
        corrupt(shard.location, "number of end-of-text tokens", n_eots, f"there are {header.n_documents:,} documents")


def pieces(tokens: Tokens) -> Iterator[tuple[int, Tokens]]:
    """Yield windows of a flat array with their starts; memory maps don't stay in memory."""
    for start in range(0, len(tokens), PIECE):
        yield start, tokens[start : start + PIECE]
        if len(tokens) > PIECE:
            release(tokens)


def release(tokens: Tokens) -> None:
    """Release the memory of a read-only map that was read; reading it again is slower, not different."""
    base: Any = tokens
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and not tokens.flags.writeable:
        base.madvise(mmap.MADV_DONTNEED)
