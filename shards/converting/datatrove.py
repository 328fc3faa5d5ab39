"""datatrove's token files: `.ds` with the tokens, `.ds.index` with document ends, `.ds.metadata` with the token size.

    .ds            u16 or u32 little-endian
    .ds.index      u64 for each document: the number of tokens up to its end
    .ds.metadata   three lines: tokenizer|bytes per token, number of tokens, the same number for people

The layout follows datatrove's public class `TokenizedFile`. Loss masks (`.ds.loss`) are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.shards.converting.cutting import NO_ENDS, cut, mapped, write_closed
from webtext.shards.format import Tokens, token_dtype
from webtext.shards.reading.reader import TokenShards


def read_datatrove(path: Path, vocab_size: int, eot_id: int) -> Iterator[tuple[str | None, Tokens]]:
    """Yield (None, tokens) for each document of a .ds file; uses its index if it has one."""
    token_bytes = _token_bytes(path) or token_dtype(vocab_size).itemsize
    tokens = mapped(path, f"<u{token_bytes}")
    index = path.with_name(path.name + ".index")
    ends = NO_ENDS
    if index.exists():
        stored = mapped(index, "<u8")
        rises = bool((stored[1:] >= stored[:-1]).all())
        if not rises or int(stored[-1] if len(stored) else 0) != len(tokens):
            raise InputError(f"'{index}' doesn't match '{path.name}': {len(tokens):,} tokens", "make both again")
        ends = stored.astype(np.int64)
    for document in cut(tokens, eot_id, ends):
        yield None, document


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


def _token_bytes(path: Path) -> int | None:
    metadata = path.with_name(path.name + ".metadata")
    if not metadata.exists():
        return None
    with open(metadata, "rb") as file:
        size = file.read(1 << 16).split(b"\n", 1)[0].rpartition(b"|")[2].strip()
    if size not in (b"2", b"4"):
        raise InputError(
            f"'{metadata}' says {size!r} bytes per token", "expected 2 or 4 after the tokenizer's name and |"
        )
    return int(size)
