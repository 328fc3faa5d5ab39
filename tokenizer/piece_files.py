"""Tables of pieces with their tokens, beside a tokenizer's file: a text is encoded the first time nearly as fast as later.

`tokenizer.json` has `tokenizer.pieces` beside it, `gpt2.tiktoken` has `gpt2.pieces`, and a folder holds
`tokenizer.pieces`. Processes and threads share one by mapping it. It holds the most frequent pieces of the texts that were
counted when the tokenizer was trained, or else the tokens that are pieces themselves; never what is encoded later. It
changes no id: a table made for another tokenizer, or a damaged one, is not used, and a warning says so.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from webtext.base.errors import WebtextError
from webtext.base.storage import Folder

if TYPE_CHECKING:
    from webtext.tokenizer import _bpe

MOST_PIECES = 1 << 17
"""As many of the counted pieces as are worth their memory, 8 MiB."""

_SUFFIX = ".pieces"

logger = logging.getLogger(__name__)


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
    folder, name = _split(path)
    folder.write_bytes(name, native.piece_file(salt, None if pieces is None else list(pieces)))


def remove(path: str) -> None:
    """Remove the table at `path`, if there is one."""
    folder, name = _split(path)
    folder.remove(name)


def use(native: _bpe.Bpe, salt: str, path: str) -> bool:
    """Map the table at `path` if there is one (from a URL it is read); whether it is used."""
    try:
        table = _mapped(path)
        if table is not None:
            native.use_piece_file(table, salt)
    except (WebtextError, OSError, ValueError) as error:
        reason = error.lines[0] if isinstance(error, WebtextError) else str(error)
        logger.warning("'%s' is not used: %s; save the tokenizer with pieces=True again", path, reason)
        return False
    return table is not None


def _mapped(path: str) -> mmap.mmap | bytes | None:
    """The table's bytes; None when there is none, or an empty one."""
    folder, name = _split(path)
    if not folder.exists(name):
        return None
    if not folder.is_local:
        return folder.read_bytes(name) or None
    with open(folder.local_path(name), "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return None
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _split(path: str) -> tuple[Folder, str]:
    parent, slash, name = path.rpartition("/")
    return Folder(parent or slash or "."), name
