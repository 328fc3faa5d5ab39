"""SIGTERM, which batch systems and clouds send before they take a machine away: recorded for the trainer to act on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

from webtext.base.errors import Interrupted

UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID"  # an environment variable of the processes that torchrun starts


class Termination:
    """Whether this process was asked to end."""

    asked = False

    def _ask(self, *_: object) -> None:
        self.asked = True

    @classmethod
    @contextlib.contextmanager
    def noticed(cls) -> Iterator[Termination]:
        """Make SIGTERM set `asked` until the block ends, except outside the main thread, where no handler can be set.

        Under torchrun a process that ends with Interrupted ignores SIGTERM from then on: as soon as one process has
        ended, torchrun sends SIGTERM to the others, which are about to end in the same way.
        """
        termination, after = cls(), signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is not threading.main_thread():
            yield termination
            return
        signal.signal(signal.SIGTERM, termination._ask)
        try:
            yield termination
        except Interrupted:
            after = signal.SIG_IGN if UNDER_TORCHRUN in os.environ else after
            raise
        finally:
            signal.signal(signal.SIGTERM, after)
