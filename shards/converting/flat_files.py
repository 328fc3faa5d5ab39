"""Flat `.bin` files of tokens: nanoGPT's, which contain only tokens, and llm.c's, which also have a header.

nanoGPT   u16 little-endian, end-of-text after each document
llm.c     256 i32: magic, version, number of tokens, zeros; then u16 (magic 20240520, version 1) or u32 (20240801, 7);
          end-of-text before each document

Both layouts follow the projects' public READMEs and data scripts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.shards.converting.cutting import cut, mapped, write_closed
from webtext.shards.format import Tokens
from webtext.shards.reading.reader import TokenShards

LLM_C_HEADER_BYTES = 1024
LLM_C_KINDS = {2: (20240520, 1), 4: (20240801, 7)}
"""Bytes per token -> magic and version."""
SHORT_NAMES = {"train": "train", "validation": "val"}


def read_nanogpt(path: Path, vocab_size: int, eot_id: int) -> Iterator[tuple[str | None, Tokens]]:
    """Yield (None, tokens) for each document of a nanoGPT file."""
    for tokens in cut(mapped(path, "<u2"), eot_id):
        yield None, tokens


def write_nanogpt(shards: TokenShards, folder: Folder) -> list[str]:
    """Write train.bin or val.bin; return its name."""
    if shards.token_dtype.itemsize != 2:
        raise InputError(
            f"'{shards.set.folder.url}' has a vocabulary of {shards.vocab_size:,} tokens",
            "nanoGPT's files can only store ids below 65,536: convert to another format",
        )
    name = f"{SHORT_NAMES[shards.split]}.bin"
    with folder.scratch(name) as path, open(path, "wb") as file:
        for i in range(len(shards)):
            write_closed(shards.tokens(i), file)
    return [name]


def read_llm_c(path: Path, vocab_size: int, eot_id: int) -> Iterator[tuple[str | None, Tokens]]:
    """Yield (None, tokens) for each document of an llm.c file; a document that spans two files becomes two here."""
    with open(path, "rb") as file:
        header = file.read(LLM_C_HEADER_BYTES)
    magic, version, n_tokens = struct.unpack_from("<3i", header.ljust(12, b"\0"))
    sizes = [size for size, kind in LLM_C_KINDS.items() if kind == (magic, version)]
    if len(header) < LLM_C_HEADER_BYTES or not sizes:
        raise InputError(
            f"'{path}' is not a token file of llm.c: it starts with magic {magic}, version {version}",
            f"expected {' or '.join(f'{m}, {v}' for m, v in LLM_C_KINDS.values())}",
        )
    tokens = mapped(path, f"<u{sizes[0]}", LLM_C_HEADER_BYTES)
    if len(tokens) != n_tokens:
        raise InputError(f"'{path}' contains {len(tokens):,} tokens", f"its header says {n_tokens:,}: it is truncated")
    for document in cut(tokens, eot_id, opens=True):
        yield None, document


def write_llm_c(shards: TokenShards, folder: Folder) -> list[str]:
    """Write a file for each shard, train_000000.bin, … or val_000000.bin, …; return the names."""
    magic, version = LLM_C_KINDS[shards.token_dtype.itemsize]
    names = []
    for i in range(len(shards)):
        tokens = shards.tokens(i)
        if len(tokens) >= 1 << 31:
            raise InputError(
                f"'{shards.names[i]}' has {len(tokens):,} tokens",
                "a file of llm.c must have fewer than 2^31: pack with a smaller shard_tokens",
            )
        name = f"{SHORT_NAMES[shards.split]}_{i:06d}.bin"
        with folder.scratch(name) as path, open(path, "wb") as file:
            file.write(struct.pack("<3i", magic, version, len(tokens)).ljust(LLM_C_HEADER_BYTES, b"\0"))
            file.write(tokens.data)
        names.append(name)
    return names
