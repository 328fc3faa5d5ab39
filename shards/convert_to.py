"""Conversion to the token files of other trainers; `convert_from.py` has their layouts.

Tokens are written with end-of-text after each document (llm.c: before it), and document ends if the format has a place
for them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import BinaryIO

import numpy as np

from webtext.base.console import counted
from webtext.base.errors import DryRun, InputError
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.shards.convert_from import LLM_C_HEADER_BYTES, LLM_C_KINDS, MEGATRON_HEADER, MEGATRON_MAGIC
from webtext.shards.format import SPLITS, Tokens
from webtext.shards.reader import TokenShards

SHORT_NAMES = {"train": "train", "validation": "val"}
_NAME = re.compile(r"(train|val|validation)(?:[_/](\d{5,6}))?(?:_tokens)?\.(?:bin|idx|ds)")
"""Matches the names that are written in any format: split, and number of the shard."""


def convert_to(tokens: str, form: str, out: str, run: Run) -> list[str]:
    """Write both splits of a token set in a format of WRITERS and return the file names; each file appears complete."""
    splits = [TokenShards(tokens, split) for split in SPLITS]
    folder = Folder(out)
    if folder.exists("manifest.json"):
        raise InputError(f"'{out}' contains a part set", "choose another --out")
    if run.dry_run:
        n_tokens = sum(shards.n_tokens for shards in splits)
        run.console.say(f"would write {counted(n_tokens, 'token')} in the format {form}")
        raise DryRun
    with folder.held():
        for name in folder.names_within():
            if (found := _NAME.fullmatch(name)) and int(found[2] or 0) >= len(splits[found[1] != "train"]):
                stale = folder.location(name)
                raise InputError(f"'{stale}' is of a larger token set", "remove it, or choose another --out")
        return [name for shards in splits if len(shards) for name in WRITERS[form](shards, folder)]


def write_nanogpt(shards: TokenShards, folder: Folder) -> list[str]:
    """Write train.bin or val.bin; return its name."""
    if shards.token_dtype.itemsize != 2:
        raise InputError(
            f"'{shards.set.folder.url}' has a vocabulary of {shards.vocab_size:,} tokens",
            "nanoGPT's files can only store ids below 65,536: convert to another format",
        )
    name = f"{SHORT_NAMES[shards.split]}.bin"
    with folder.scratch(name) as path, open(path, "wb") as file:
        for tokens in shards.streams():
            write_closed(tokens, file)
    return [name]


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


def write_megatron(shards: TokenShards, folder: Folder) -> list[str]:
    """Write train.bin and train.idx, or validation.bin and validation.idx; return the names.

    Tokens are u16, or i32 for a vocabulary above 65,536.
    """
    wide = shards.token_dtype.itemsize == 4
    bin_name, idx_name = f"{shards.split}.bin", f"{shards.split}.idx"
    with folder.scratch(bin_name) as path, open(path, "wb") as file:
        for tokens in shards.streams():
            write_closed(tokens, file)  # ids are below 2^31, so u32 and i32 have the same bytes
    lengths = np.diff(shards.document_bounds)
    if wide and shards.vocab_size > 1 << 31 or lengths.max(initial=0) >= 1 << 31:
        raise InputError(
            f"'{shards.set.folder.url}' has ids or a document of 2^31 or more", "Megatron's files don't support them"
        )
    with folder.scratch(idx_name) as path, open(path, "wb") as file:
        file.write(MEGATRON_HEADER.pack(MEGATRON_MAGIC, 1, 4 if wide else 8, len(lengths), len(lengths) + 1))
        file.write(lengths.astype("<i4").tobytes())
        file.write((shards.document_bounds[:-1] * shards.token_dtype.itemsize).astype("<i8").tobytes())
        file.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())
    return [bin_name, idx_name]


def write_datatrove(shards: TokenShards, folder: Folder) -> list[str]:
    """Write train/00000_tokens.ds, … (or validation/…), each with its index and metadata; return the names."""
    target, names = folder.child(shards.split), []
    for i in range(len(shards)):
        name, tokens = f"{i:05d}_tokens.ds", shards.tokens(i)
        with target.scratch(name) as path, open(path, "wb") as file:
            write_closed(tokens, file)
        target.write_bytes(f"{name}.index", shards.file(i).index[1:].astype("<u8").tobytes())
        lines = [f"{shards.tokenizer_hash}|{tokens.itemsize}", str(len(tokens)), f"{len(tokens) / 1e9:.3g} GT"]
        target.write_bytes(f"{name}.metadata", "\n".join(lines).encode())
        names += [f"{shards.split}/{name}{suffix}" for suffix in ("", ".index", ".metadata")]
    return names


def write_closed(tokens: Tokens, file: BinaryIO) -> None:
    """Write a shard's tokens with end-of-text after each document instead of before it; its index remains valid."""
    file.write(tokens[1:].data)
    file.write(tokens[:1].data)


WRITERS: dict[str, Callable[[TokenShards, Folder], list[str]]] = {
    "nanogpt": write_nanogpt,
    "llm.c": write_llm_c,
    "megatron": write_megatron,
    "datatrove": write_datatrove,
}
