"""The worker process: reads tasks from a socket, runs them and sends back results. `base/workers/local_engine.py` starts it.

It is a plain `python -c` child instead of a multiprocessing one, so the user's main module isn't imported again: no
`if __name__ == "__main__"` guard is needed, and scripts from standard input or `python -c` work.

    engine -> worker    Order   one task
    worker -> engine    None    started and ready
                        Done    the function's result
                        Raised  the function's error
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from webtext.base.errors import WebtextError
from webtext.base.storage import stopping_error
from webtext.base.workers.attempt import Attempt, Heartbeat

START = "from webtext.base.workers.worker import main; main()"
MAX_ERROR_CHARACTERS = 500
_PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True, slots=True)
class Order:
    """One attempt at a task. `call` is the pickled (function, task), unpickled after `sys.path` is set to `path`.

    `writes` is a place that the task writes, for the error of a full disk.
    """

    path: list[str]
    call: bytes
    set_aside: Mapping[int, str]
    only: int | None
    writes: str | None


@dataclass(frozen=True, slots=True)
class Done:
    """The function returned."""

    result: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised an error; `stops` is set if the error must end the entire map."""

    error: str
    traceback: str
    stops: WebtextError | None


def main() -> None:
    """Serve orders until the engine closes its end of the socket.

    Arguments in `sys.argv`: file descriptors of socket and heartbeat, the parent's process id, RLIMIT_DATA in bytes.
    """
    socket, heartbeat_file, parent, data_bytes = map(int, sys.argv[1:5])
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the engine decides what it means
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # RLIMIT_DATA, and not RLIMIT_AS: mapped files and libraries aren't a record's fault, and need no memory of their own.
    with contextlib.suppress(ValueError):  # then the user's own limit is lower
        resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    page = Heartbeat(heartbeat_file)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), Connection(socket) as connection:
        connection.send(None)
        while True:
            order: Order = pickle.loads(connection.recv_bytes())
            answer = _answer(order, page)
            page.note(None)
            connection.send_bytes(answer)


def _die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent ends for any reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the line above
        os._exit(1)


def _answer(order: Order, page: Heartbeat) -> bytes:
    try:
        sys.path[:] = order.path
        function, task = pickle.loads(order.call)
        attempt = Attempt(page, set_aside=order.set_aside, only=order.only)
        return pickle.dumps(Done(function(attempt, task)), protocol=pickle.HIGHEST_PROTOCOL)
    except MemoryError:  # the kernel's limit was hit: reported like a limit that the engine sees exceeded
        page.note_out_of_memory()
        os._exit(1)
    except BaseException as error:  # the worker boundary; panics of Rust libraries are BaseExceptions
        stops = stopping_error(error, order.writes)
        return pickle.dumps(Raised(_one_line(error), "".join(traceback.format_exception(error)), stops))


def call_pickled(attempt: Attempt, call: bytes) -> bytes:
    """Run the pickled (function, task) and return its pickled result, for an engine that doesn't import the function."""
    function, task = pickle.loads(call)
    return pickle.dumps(function(attempt, task), protocol=pickle.HIGHEST_PROTOCOL)


def _one_line(error: BaseException) -> str:
    if isinstance(error, WebtextError):
        return "; ".join(error.lines)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_ERROR_CHARACTERS].removesuffix(": ")
