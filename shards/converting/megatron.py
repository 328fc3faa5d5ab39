"""Megatron's indexed datasets: tokens in `.bin`, positions of documents in `.idx`.

    .idx   "MMIDIDX\\0\\0", u64 version 1, u8 code of the token's type, u64 sequences S, u64 documents D + 1;
           i32 lengths [S], i64 byte offsets [S] into .bin, i64 [D + 1]: the sequence each document begins with, then S

The layout follows Megatron's public class `IndexedDataset`. Numbers are little-endian. We write each document as one
sequence that ends with end-of-text, like `preprocess_data.py --append-eod`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.shards.converting.cutting import cut, mapped, write_closed
from webtext.shards.format import Tokens
from webtext.shards.reading.reader import TokenShards

MAGIC = b"MMIDIDX\0\0"
_HEADER = struct.Struct("<9s Q B Q Q")
TYPE_CODES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Type codes of integers; 6 and 7 are floats."""


def read_megatron(path: Path, vocab_size: int, eot_id: int) -> Iterator[tuple[str | None, Tokens]]:
    """Yield (None, tokens) for each document of the .bin beside an .idx; the sequences of a document are joined."""
    with open(path, "rb") as file:
        head = file.read(_HEADER.size).ljust(_HEADER.size, b"\0")
    magic, version, code, n_sequences, n_bounds = _HEADER.unpack(head)
    if magic != MAGIC or version != 1 or code not in TYPE_CODES:
        raise InputError(
            f"'{path}' is not a Megatron index of tokens: magic {magic!r}, version {version}, type {code}",
            f"expected {MAGIC!r}, 1, and one of {', '.join(map(str, TYPE_CODES))}",
        )
    expected = _HEADER.size + 12 * n_sequences + 8 * n_bounds
    if path.stat().st_size != expected:
        raise InputError(f"'{path}' has {path.stat().st_size:,} bytes", f"its header needs {expected:,}: truncated")
    data = mapped(path, "u1")[_HEADER.size :]
    lengths = data[: 4 * n_sequences].view("<i4").astype(np.int64)
    offsets = data[4 * n_sequences : 12 * n_sequences].view("<i8")
    bounds = data[12 * n_sequences :].view("<i8")
    tokens = mapped(path.with_suffix(".bin"), TYPE_CODES[code])
    ends = np.cumsum(lengths)
    if not (
        (lengths >= 0).all()
        and np.array_equal(offsets, (ends - lengths) * tokens.itemsize)
        and (n_sequences == 0 or int(ends[-1]) == len(tokens))
        and n_bounds
        and bounds[0] == 0
        and bounds[-1] == n_sequences
        and (np.diff(bounds) >= 0).all()
    ):
        raise InputError(
            f"'{path}' doesn't match '{path.with_suffix('.bin').name}' beside it",
            "sequences must follow each other without gaps: make both again",
        )
    for document in cut(tokens, eot_id, np.append(0, ends)[bounds[1:]]):
        yield None, document


def write_megatron(shards: TokenShards, folder: Folder) -> list[str]:
    """Write train.bin and train.idx, or validation.bin and validation.idx; return the names.

    Tokens are u16, or i32 for a vocabulary above 65,536.
    """
    wide = shards.token_dtype.itemsize == 4
    bin_name, idx_name = f"{shards.split}.bin", f"{shards.split}.idx"
    with folder.scratch(bin_name) as path, open(path, "wb") as file:
        for i in range(len(shards)):
            write_closed(shards.tokens(i), file)  # ids are below 2^31, so u32 and i32 have the same bytes
    lengths = np.diff(shards.document_bounds)
    if wide and shards.vocab_size > 1 << 31 or (len(lengths) and int(lengths.max()) >= 1 << 31):
        raise InputError(
            f"'{shards.set.folder.url}' has ids or a document of 2^31 or more", "Megatron's files don't support them"
        )
    with folder.scratch(idx_name) as path, open(path, "wb") as file:
        file.write(_HEADER.pack(MAGIC, 1, 4 if wide else 8, len(lengths), len(lengths) + 1))
        file.write(lengths.astype("<i4").tobytes())
        file.write((shards.document_bounds[:-1] * shards.token_dtype.itemsize).astype("<i8").tobytes())
        file.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())
    return [bin_name, idx_name]
