"""SIGTERM, as a batch system or a cloud sends it before it takes the machine away: noticed, and left to the trainer."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Termination:
    """Whether this process was asked to end."""

    def __init__(self) -> None:
        self.asked = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    @classmethod
    @contextlib.contextmanager
    def noticed(cls) -> Iterator[Termination]:
        """SIGTERM sets `asked` until the block ends; outside the main thread, where no handler may be set, never."""
        termination = cls()
        if threading.current_thread() is not threading.main_thread():
            yield termination
            return
        before = signal.signal(signal.SIGTERM, termination._ask)
        try:
            yield termination
        finally:
            signal.signal(signal.SIGTERM, before)
