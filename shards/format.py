"""The token file `.tok`: one shard of tokens with its own header and document index.

    header      256 bytes, little-endian; `ShardHeader` (byte by byte in docs/formats.md)
    tokens      n_tokens of 2 or 4 bytes each, every document after its end-of-text; then zeros up to a multiple of 8
    index       n_documents + 1 positions of 8 bytes: where each document starts, then n_tokens

The dtype follows from the vocabulary: 2 bytes if it has at most 65,536 tokens, otherwise 4. The file's size follows
from the header's counts, so a truncated or padded file is rejected before a token is read. The set's manifest has the
file's SHA-256, and repeats the counts, so that opening a set reads no token file.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from webtext.base.errors import InputError, ShardCorrupt

MAGIC = b"\x89TOKENS\n"  # not text, and a transfer that rewrites line ends breaks it
FORMAT_VERSION = 4
HEADER_BYTES = 256
MAX_U16_VOCABULARY = 1 << 16
INDEX_BYTES = 8
SPLITS = ("train", "validation")

# magic, version, bytes per token, vocab_size, eot_id, tokenizer hash, n_tokens, n_documents
_FIELDS = struct.Struct("<8s I I Q Q 32s Q Q")
_HEADER_CHECKSUM = struct.Struct("<I")
_SHARD_NAME = re.compile(r"(train|validation)-([0-9]{5,})(?:-([1-9][0-9]*))?\.tok")
_CHECKSUM_AT = HEADER_BYTES - _HEADER_CHECKSUM.size

Tokens = npt.NDArray[Any]
"""A flat array of token ids, u16 or u32."""


@dataclass(frozen=True, slots=True)
class ShardHeader:
    """The header of a shard, which determines the layout of its file."""

    vocab_size: int
    eot_id: int
    tokenizer_hash: str  # SHA-256 in hex, `Tokenizer.hash`
    n_tokens: int
    n_documents: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return token_dtype(self.vocab_size)

    @property
    def tokens_bytes(self) -> int:
        """Bytes of the tokens, including their padding to a multiple of 8."""
        return -(-self.n_tokens * self.dtype.itemsize // INDEX_BYTES) * INDEX_BYTES

    @property
    def index_offset(self) -> int:
        """Offset of the document index."""
        return HEADER_BYTES + self.tokens_bytes

    @property
    def file_bytes(self) -> int:
        return self.index_offset + (self.n_documents + 1) * INDEX_BYTES

    def to_bytes(self) -> bytes:
        """Return the 256 bytes at the start of the file."""
        fields = _FIELDS.pack(
            MAGIC,
            FORMAT_VERSION,
            self.dtype.itemsize,
            self.vocab_size,
            self.eot_id,
            bytes.fromhex(self.tokenizer_hash),
            self.n_tokens,
            self.n_documents,
        ).ljust(_CHECKSUM_AT, b"\0")
        return fields + _HEADER_CHECKSUM.pack(zlib.crc32(fields))

    @classmethod
    def from_bytes(cls, data: bytes, location: str, file_bytes: int) -> ShardHeader:
        """Parse a header and check that its fields agree with each other and with the file's size.

        Raises ShardCorrupt with the file, the field and its value.
        """
        if len(data) < HEADER_BYTES:
            corrupt(
                location, "header", f"{len(data)} bytes", f"a token file starts with {HEADER_BYTES} bytes of header"
            )
        magic, version, token_bytes, vocab_size, eot_id, digest, n_tokens, n_documents = _FIELDS.unpack_from(data)
        if magic != MAGIC:
            corrupt(location, "magic", repr(magic), f"this is not a token file: it does not start with {MAGIC!r}")
        if version != FORMAT_VERSION:
            corrupt(location, "version", version, f"this version of webtext reads version {FORMAT_VERSION}")
        (checksum,) = _HEADER_CHECKSUM.unpack_from(data, _CHECKSUM_AT)
        if checksum != zlib.crc32(data[:_CHECKSUM_AT]):
            corrupt(
                location, "header checksum", f"{checksum:08x}", f"its bytes have {zlib.crc32(data[:_CHECKSUM_AT]):08x}"
            )
        if any(data[_FIELDS.size : _CHECKSUM_AT]):
            corrupt(location, "reserved bytes", "not zero", "they must be zero in this version")
        header = cls(vocab_size, eot_id, digest.hex(), n_tokens, n_documents)
        header._check(location, token_bytes, file_bytes)
        return header

    def in_manifest(self) -> dict[str, Any]:
        """Return the fields that the set's manifest stores for this shard; the recipe has the common ones."""
        return {"n_tokens": self.n_tokens, "n_documents": self.n_documents}

    @classmethod
    def from_manifest(
        cls, about: Mapping[str, Any], common: tuple[int, int, str], location: str, file_bytes: int
    ) -> ShardHeader:
        """Rebuild a shard's header from the manifest (`in_manifest`), the fields common to all, and the file's size.

        Raises InputError if a field is missing, ShardCorrupt if the fields contradict each other.
        """
        try:
            header = cls(*common, int(about["n_tokens"]), int(about["n_documents"]))
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"the manifest doesn't describe '{location}'",
                "another version of webtext wrote it: pack or convert again",
            ) from None
        header._check(
            f"{location}' in the manifest of '{location.rpartition('/')[0]}", header.dtype.itemsize, file_bytes
        )
        return header

    def _check(self, location: str, token_bytes: int, file_bytes: int) -> None:
        if not 1 <= self.vocab_size <= 1 << 32:
            corrupt(location, "vocab_size", self.vocab_size, "expected 1 to 2^32")
        if token_bytes != self.dtype.itemsize:
            corrupt(location, "bytes per token", token_bytes, f"{self.vocab_size:,} tokens take {self.dtype.itemsize}")
        if self.eot_id >= self.vocab_size:
            corrupt(location, "eot_id", self.eot_id, f"the vocabulary has {self.vocab_size:,} tokens")
        if self.n_documents > self.n_tokens:
            corrupt(location, "n_documents", self.n_documents, f"there are only {self.n_tokens:,} tokens")
        if self.file_bytes != file_bytes:
            counts = f"n_tokens {self.n_tokens:,} and n_documents {self.n_documents:,}"
            corrupt(location, "file size", f"{file_bytes:,} bytes", f"{counts} need {self.file_bytes:,} bytes")


def check_index(index: npt.NDArray[np.uint64], header: ShardHeader, location: str) -> None:
    """Raise ShardCorrupt unless the index (u64) rises from 0 to n_tokens, so that every document has a token."""
    check_index_ends(index, header, location)
    lengths = np.diff(index.astype(np.int64))
    for at in np.flatnonzero(lengths < 1):  # raises for the first
        corrupt(location, f"length of document {at:,}", lengths[at], "a document has at least one token")


def check_index_ends(index: npt.NDArray[np.uint64], header: ShardHeader, location: str) -> None:
    """Raise ShardCorrupt unless the index starts with 0 and ends with n_tokens; takes the same time for any length."""
    if index[0] != 0 or index[-1] != header.n_tokens:
        bounds = f"{index[0]} to {index[-1]}"
        corrupt(location, "range of the document index", bounds, f"expected 0 to {header.n_tokens}")


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return u16 for a vocabulary of at most 65,536 tokens, otherwise u32; little-endian.

    >>> token_dtype(65_536).name, token_dtype(65_537).name
    ('uint16', 'uint32')
    """
    return np.dtype("<u2" if vocab_size <= MAX_U16_VOCABULARY else "<u4")


def corrupt(location: str, field: str, value: object, why: str) -> NoReturn:
    """Raise ShardCorrupt for a shard whose `field` has an invalid `value`."""
    raise ShardCorrupt(f"'{location}': {field} is {value}", why, "make the token set again with 'webtext shards pack'")


def shard_name(split: str, part: int, number: int = 0) -> str:
    """Return the name of shard `number` of one corpus part and split.

    >>> shard_name("train", 7), shard_name("train", 7, 1)
    ('train-00007.tok', 'train-00007-1.tok')
    """
    return f"{split}-{part:05d}-{number}.tok" if number else f"{split}-{part:05d}.tok"


def shard_place(name: str) -> tuple[str, int, int] | None:
    """Invert `shard_name`: return (split, part, number), which sorts shards in corpus order; None for any other name.

    >>> shard_place("train-00007-1.tok"), shard_place("part-00007.parquet")
    (('train', 7, 1), None)
    """
    match = _SHARD_NAME.fullmatch(name)
    return (match[1], int(match[2]), int(match[3] or 0)) if match else None
