"""One token file: writer, document by document, memory-mapped reader, and verification. `format.py` has the layout."""

from __future__ import annotations

import hashlib
import os
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from webtext.base.errors import InputError
from webtext.shards.checksums import BlockChecks, compare_block, compare_table
from webtext.shards.format import (
    BLOCK_BYTES,
    HEADER_BYTES,
    INDEX_BYTES,
    ShardHeader,
    Tokens,
    check_index,
    check_index_ends,
    corrupt,
    token_dtype,
)

PIECE = 1 << 20
"""Tokens verified per step, which bounds memory."""


class ShardWriter:
    """Writer for one token file, document by document, in memory that doesn't grow with its tokens.

    The header is written last: a file whose writing was interrupted starts with zeros and isn't a valid shard.
    """

    def __init__(
        self, path: Path, *, vocab_size: int, eot_id: int, tokenizer_hash: str, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self.n_tokens = 0
        self._header: ShardHeader | None = None
        self._vocab_size = vocab_size
        self._eot_id = eot_id
        self._tokenizer_hash = tokenizer_hash
        self._block_bytes = block_bytes
        self._dtype = token_dtype(vocab_size)
        self._eot = np.array([eot_id], self._dtype).tobytes()
        self._starts = array("Q")
        self._checksums = array("I")
        self._in_block = 0
        self._checksum = 0
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 - closed by __exit__
        self._file.write(bytes(HEADER_BYTES))

    def append(self, tokens: Tokens) -> int:
        """Append an end-of-text token and then one document; return the position of the end-of-text token.

        Raises InputError, and writes nothing of the document, if an id isn't in the vocabulary.
        """
        if len(tokens) and int(tokens.max()) >= self._vocab_size:
            raise InputError(f"token id {int(tokens.max())} is not in the vocabulary of {self._vocab_size:,} tokens")
        start = self.n_tokens
        self._starts.append(start)
        self._write(self._eot + tokens.astype(self._dtype, copy=False).tobytes())
        self.n_tokens += len(tokens) + 1
        return start

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(finish=kind is None)

    def close(self, *, finish: bool = True) -> None:
        """Complete the file and close it; without `finish` it has no header and isn't a valid shard."""
        with self._file:
            if finish:
                self._finish()

    def in_manifest(self) -> dict[str, Any]:
        """Return what the set's manifest stores about the finished file (`PartWriter.describe`)."""
        assert self._header is not None
        return self._header.in_manifest()

    def _finish(self) -> None:
        self._write(bytes(-self.n_tokens * self._dtype.itemsize % INDEX_BYTES))
        self._write(np.append(np.asarray(self._starts, "<u8"), np.uint64(self.n_tokens)).astype("<u8").tobytes())
        if self._in_block:
            self._checksums.append(self._checksum)
        table = np.asarray(self._checksums, "<u4").tobytes()
        self._file.write(table)
        self._file.seek(0)
        header = ShardHeader(
            vocab_size=self._vocab_size,
            eot_id=self._eot_id,
            tokenizer_hash=self._tokenizer_hash,
            n_tokens=self.n_tokens,
            n_documents=len(self._starts),
            block_bytes=self._block_bytes,
            checksums_hash=hashlib.sha256(table).hexdigest(),
        )
        self._file.write(header.to_bytes())
        self._header = header

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        view = memoryview(data)
        while view:
            piece = view[: self._block_bytes - self._in_block]
            self._checksum = zlib.crc32(piece, self._checksum)
            self._in_block += len(piece)
            if self._in_block == self._block_bytes:
                self._checksums.append(self._checksum)
                self._in_block = self._checksum = 0
            view = view[len(piece) :]


class ShardFile:
    """One token file: memory-mapped read-only, or in memory.

    Opening checks the header, also against the `expected` one, and the table of checksums. `read` checks blocks when
    they are first read. `tokens` and `index` aren't checked: use `checks` before you read them directly.
    """

    def __init__(self, path: str | os.PathLike[str], expected: ShardHeader | None = None) -> None:
        try:
            with open(path, "rb") as file:
                header = ShardHeader.from_bytes(file.read(HEADER_BYTES), str(path), os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            raise InputError(f"no file '{path}'", "check the path") from None
        if expected is not None:
            header.check_is(expected, str(path))
        # A plain view, because slicing np.memmap itself takes nine times as long (1.1 instead of 0.12 us).
        self._open(str(path), header, np.memmap(path, np.uint8, "r").view(np.ndarray))

    @classmethod
    def from_bytes(cls, data: bytes, location: str, expected: ShardHeader) -> ShardFile:
        shard, header = cls.__new__(cls), ShardHeader.from_bytes(data, location, len(data))
        header.check_is(expected, location)
        shard._open(location, header, np.frombuffer(data, np.uint8))
        return shard

    def _open(self, location: str, header: ShardHeader, data: npt.NDArray[np.uint8]) -> None:
        self.location = location
        self.header = header
        self._bytes = data
        self.tokens: Tokens = self.map(self.header.dtype, HEADER_BYTES, self.header.n_tokens)
        self.index: npt.NDArray[np.uint64] = self.map(
            np.dtype("<u8"), self.header.index_offset, self.header.n_documents + 1
        )
        check_index_ends(self.index, header, location)
        written = self.map(np.dtype("<u4"), self.header.checksums_offset, self.header.n_blocks)
        compare_table(location, header, written.tobytes())
        self.checks = BlockChecks(location, header, data, written)

    def read(self, start: int, stop: int) -> Tokens:
        """Return a view of tokens start … stop-1 after checking their blocks; raises ShardCorrupt."""
        size = self.header.dtype.itemsize
        self.checks.check(HEADER_BYTES + start * size, HEADER_BYTES + stop * size)
        return self.tokens[start:stop]

    def are_due(self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each i whether tokens starts[i] … stops[i]-1 overlap a block that wasn't checked yet."""
        size = self.header.dtype.itemsize
        return self.checks.are_due(HEADER_BYTES + starts * size, HEADER_BYTES + stops * size)

    def document(self, i: int) -> Tokens:
        """Return the tokens of the shard's i-th document, including the end-of-text that opens it; not checked."""
        if not 0 <= i < self.header.n_documents:
            raise InputError(
                f"'{self.location}' has no document {i}", f"it has documents 0 to {self.header.n_documents - 1}"
            )
        return self.tokens[int(self.index[i]) : int(self.index[i + 1])]

    def map(self, dtype: np.dtype[Any], offset: int, n: int) -> npt.NDArray[Any]:
        """Return a read-only view of n values at a byte offset."""
        return self._bytes[offset : offset + n * dtype.itemsize].view(dtype)


def verify_shard(shard: ShardFile) -> None:
    """Check the checksums, the index, the ids, and that end-of-text is at each document's start and nowhere else.

    Raises ShardCorrupt with the file and the first block, document or token that is wrong.
    """
    _verify_blocks(shard)
    check_index(shard.index, shard.header, shard.location)
    _verify_tokens(shard)
    _verify_starts(shard)


def _verify_blocks(shard: ShardFile) -> None:
    header = shard.header
    written = shard.map(np.dtype("<u4"), header.checksums_offset, header.n_blocks)
    for block in range(header.n_blocks):
        at = HEADER_BYTES + block * header.block_bytes
        data = shard.map(np.dtype("u1"), at, min(header.block_bytes, header.checksums_offset - at))
        compare_block(shard.location, header, block, data.data, written)


def _verify_tokens(shard: ShardFile) -> None:
    header = shard.header
    for start, piece in _pieces(shard.tokens):
        if int(piece.max()) >= header.vocab_size:
            at = int(np.argmax(piece >= header.vocab_size))
            limit = f"the vocabulary has {header.vocab_size:,} tokens"
            corrupt(shard.location, f"token {start + at:,}", int(piece[at]), limit)
    token_bytes = header.n_tokens * header.dtype.itemsize
    if shard.map(np.dtype("u1"), HEADER_BYTES + token_bytes, header.tokens_bytes - token_bytes).any():
        corrupt(shard.location, "padding after the tokens", "not zero", "it must be zero")


def _verify_starts(shard: ShardFile) -> None:
    header = shard.header
    first = shard.tokens[shard.index[:-1].astype(np.int64)]
    if (first != header.eot_id).any():
        at = int(np.argmax(first != header.eot_id))
        corrupt(shard.location, f"first token of document {at:,}", first[at], f"expected end-of-text, {header.eot_id}")
    n_eots = sum(int(np.count_nonzero(piece == header.eot_id)) for _, piece in _pieces(shard.tokens))
    if n_eots != header.n_documents:
        corrupt(shard.location, "number of end-of-text tokens", n_eots, f"there are {header.n_documents:,} documents")


def _pieces(tokens: Tokens) -> Iterator[tuple[int, Tokens]]:
    for start in range(0, len(tokens), PIECE):
        yield start, tokens[start : start + PIECE]
