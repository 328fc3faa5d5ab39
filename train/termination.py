"""SIGTERM, as a batch system or a cloud sends it before it takes the machine away: noticed, and left to the trainer."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from webtext.base.errors import Interrupted

UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID"
"""In the environment of what torchrun started."""


class Termination:
    """Whether this process was asked to end."""

    def __init__(self) -> None:
        self.asked = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    @classmethod
    @contextlib.contextmanager
    def noticed(cls) -> Iterator[Termination]:
        """SIGTERM sets `asked` until the block ends; outside the main thread, where no handler may be set, never.

        Under torchrun a process that ends by Interrupted ignores it from then on: as soon as one has ended, torchrun sends it
        to the others, which are about to say the same.
        """
        termination = cls()
        if threading.current_thread() is not threading.main_thread():
            yield termination
            return
        after = signal.signal(signal.SIGTERM, termination._ask)
        try:
            yield termination
        except Interrupted:
            if UNDER_TORCHRUN in os.environ:
                after = signal.SIG_IGN
            raise
        finally:
            signal.signal(signal.SIGTERM, after)
