"""Shares of a stage: several runs of one command with --share K/N, on one machine or many, make a set together.

Each makes its own parts under the lease of its share, then waits while others are at work. When none is, one of them
locks the folder and seals the set, and all begin the verb's next stage. If parts are missing, they end instead: the
share that died, or never began, is named.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from webtext.base.errors import InputError
from webtext.base.run import Share
from webtext.base.storage import Folder

POLL_SECONDS = 1.0
GRACE_SECONDS = 10.0
"""Shares end that long after the last sign of another one, because others may be between two stages."""
SEALING_SECONDS = 120.0
"""A share waits that long for a folder that is locked as a whole: another one may be sealing it."""


T = TypeVar("T", bound=Any)  # a task or a part


def of_share(share: Share, parts: Iterable[T]) -> list[T]:
    """Return the share's parts, in their order: every N-th by the hash of their numbers, so that shares are equal.

    >>> from types import SimpleNamespace
    >>> parts = [SimpleNamespace(index=i) for i in range(9)]
    >>> [[part.index for part in of_share(Share(number, 2), parts)] for number in (1, 2)]
    [[1, 2, 3, 5, 8], [0, 4, 6, 7]]
    """
    ordered = sorted(parts, key=lambda part: hashlib.sha256(str(part.index).encode()).digest())
    return sorted(ordered[share.number - 1 :: share.of], key=lambda part: part.index)


@contextlib.contextmanager
def at_work(folder: Folder, share: Share) -> Iterator[None]:
    """Hold the lease of a share; InputError if another process has it, or if shares of another N are at work."""
    name, until = f"{share.number}-of-{share.of}", time.monotonic() + SEALING_SECONDS
    with contextlib.ExitStack() as held:
        while True:
            others = folder.held_shares()
            if foreign := [other for other in others if not other.endswith(f"-of-{share.of}")]:
                what = f"another run is writing '{folder.url}' ({foreign[0]})"
                raise InputError(what, f"wait for it, or run one of {share.of} shares when no others are at work")
            try:
                held.enter_context(folder.held(name))
                break
            except InputError:
                if name in others or time.monotonic() > until:
                    raise
            time.sleep(POLL_SECONDS)
        yield


@contextlib.contextmanager
def turn(folder: Folder, share: Share) -> Iterator[None]:
    """Let one share at a time change the files that they have in common; a run of all parts has the folder anyway."""
    with contextlib.ExitStack() as held:
        while share.of > 1:
            try:
                held.enter_context(folder.held(f"turn-of-{share.of}"))
                break
            except InputError:
                time.sleep(POLL_SECONDS / 10)
        yield
