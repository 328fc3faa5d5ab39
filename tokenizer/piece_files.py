"""Tables of pieces with their tokens, beside a tokenizer's file: a text is encoded the first time nearly as fast as later.

`tokenizer.json` has `tokenizer.pieces` beside it, `gpt2.tiktoken` has `gpt2.pieces`, and a folder holds
`tokenizer.pieces`. Processes and threads share one by mapping it. It holds the most frequent pieces of the texts that were
counted when the tokenizer was trained, or else the tokens that are pieces themselves; never what is encoded later. It
changes no id: a table made for another tokenizer, or a damaged one, is not used, and a warning says so.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webtext.tokenizer import _bpe

MOST_PIECES = 1 << 17
"""As many of the counted pieces as are worth their memory: 8 MiB, with 97 of 100 pieces of English prose among them."""

_SUFFIX = ".pieces"


def path_beside(tokenizer: str | os.PathLike[str]) -> str:
    """Where the table of a tokenizer's file or folder lies.

    >>> path_beside("build/tokenizer.json"), path_beside("gpt2.tiktoken"), path_beside("gpt2")
    ('build/tokenizer.pieces', 'gpt2.pieces', 'gpt2/tokenizer.pieces')
    """
    path = os.fspath(tokenizer).rstrip("/")
    stem, dot, suffix = path.rpartition(".")
    if dot and suffix in ("json", "tiktoken"):
        return stem + _SUFFIX
    return f"{path}/tokenizer{_SUFFIX}"


def write(native: _bpe.Bpe, salt: str, path: str, pieces: Iterable[bytes] | None = None) -> None:
    """Write the table: of `pieces`, the first most welcome, or of the vocabulary's own."""
    from webtext.base.storage import Folder

    folder, _, name = path.rpartition("/")
    Folder(folder or ".").write_bytes(name, native.piece_file(salt, None if pieces is None else list(pieces)))


def remove(path: str) -> None:
    """Remove the table at `path`, if there is one."""
    with contextlib.suppress(OSError):
        os.remove(path)


def use(native: _bpe.Bpe, salt: str, path: str) -> bool:
    """Map the table at `path` if there is one; whether it is used."""
    import numpy as np

    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # none, or empty
        return False
    try:
        native.use_piece_file(np.frombuffer(mapped, np.uint8), salt)
    except ValueError as error:
        warnings.warn(f"'{path}' is not used: {error}; save the tokenizer with pieces=True again", stacklevel=3)
        return False
    return True
