"""Tables of pieces and their tokens, stored next to a tokenizer's file, so that the first text is encoded fast, too.

`tokenizer.json` has `tokenizer.pieces` next to it, `gpt2.tiktoken` has `gpt2.pieces`, and a folder contains
`tokenizer.pieces`. Processes and threads share a table by mapping it. It contains the most frequent pieces of the texts
that the tokenizer was trained on, or else the tokens that are pieces themselves; texts encoded later add nothing to it.
A table changes no ids. One that is damaged or was made for another tokenizer is ignored with a warning.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from webtext.base.errors import WebtextError
from webtext.tokenizer.arguments import split_path

if TYPE_CHECKING:
    from webtext.tokenizer import _bpe

MOST_PIECES = 1 << 17
"""Pieces per table, which then takes 8 MiB; more aren't worth their memory."""

_SUFFIX = ".pieces"

logger = logging.getLogger(__name__)


def path_beside(tokenizer: str | os.PathLike[str]) -> str:
    """Return the path of the table that belongs to a tokenizer's file or folder.

    >>> path_beside("build/tokenizer.json"), path_beside("gpt2.tiktoken"), path_beside("gpt2")
    ('build/tokenizer.pieces', 'gpt2.pieces', 'gpt2/tokenizer.pieces')
    """
    path = os.fspath(tokenizer).rstrip("/")
    stem, dot, suffix = path.rpartition(".")
    if dot and suffix in ("json", "tiktoken"):
        return stem + _SUFFIX
    return f"{path}/tokenizer{_SUFFIX}"


def write(native: _bpe.Bpe, salt: str, path: str, pieces: Iterable[bytes] | None = None) -> None:
    """Write a table of `pieces` (most important first), or of the vocabulary's own pieces."""
    folder, name = split_path(path)
    folder.write_bytes(name, native.piece_file(salt, None if pieces is None else list(pieces)))


def remove(path: str) -> None:
    """Remove the table at `path`, if there is one."""
    folder, name = split_path(path)
    folder.remove(name)


def use(native: _bpe.Bpe, salt: str, path: str) -> bool:
    """Map the table at `path` if there is one (a URL is read instead); return whether it is used."""
    try:
        table = _mapped(path)
        if table is not None:
            native.use_piece_file(table, salt)
    except (WebtextError, OSError, ValueError) as error:
        reason = error.lines[0] if isinstance(error, WebtextError) else str(error)
        logger.warning("'%s' is not used: %s; save the tokenizer again with pieces=True", path, reason)
        return False
    return table is not None


def _mapped(path: str) -> mmap.mmap | bytes | None:
    """Return the table's bytes; None if the file is missing or empty."""
    folder, name = split_path(path)
    if not folder.exists(name):
        return None
    if not folder.is_local:
        return folder.read_bytes(name) or None
    with open(folder.local_path(name), "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return None
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
