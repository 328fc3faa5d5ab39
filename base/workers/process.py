"""A worker process as seen by the engine: starting it, sending orders, its memory use and how it ended."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import IO

from webtext.base.workers.attempt import Heartbeat
from webtext.base.workers.worker import START, Order

MEMORY_BACKSTOP_BYTES = 2 << 30
"""Added to twice the memory limit for the kernel's own limit: libraries reserve writable memory they never touch."""

WORKER_ENVIRONMENT = {
    # One thread per worker, so that workers = cores. Arrow takes its pool size from OMP_NUM_THREADS.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MIMALLOC_PURGE_DELAY": "0",  # Arrow's allocator returns what is freed, so that it doesn't count as memory used
    "PYTHONHASHSEED": "0",  # makes the order of a set of strings equal in every worker of every run
}

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker ended: at which record (None: outside any), why, and whether a signal from outside killed it."""

    position: int | None
    cause: str
    from_outside: bool = False


class WorkerProcess:
    """A running worker process and the engine's end of its socket."""

    def __init__(self, memory_bytes: int, *, quiet: bool) -> None:
        self.started = False  # set when its first message arrives
        self.n_tasks = 0
        self.memory_cause = f"memory above {memory_bytes / 2**20:,.0f} MiB"
        space = resource.getrlimit(resource.RLIMIT_AS)[0]
        self.is_confined = 0 <= space < memory_bytes  # to less address space than it may use memory
        if self.is_confined:
            self.memory_cause = f"address space above {space / 2**20:,.0f} MiB"
        ours, theirs = socket.socketpair()
        with theirs, _unnamed_file() as heartbeat_file:
            self.heartbeat = Heartbeat(heartbeat_file.fileno())
            self.heartbeat.reset()
            passed = (theirs.fileno(), heartbeat_file.fileno())
            arguments = [*passed, os.getpid(), 2 * memory_bytes + MEMORY_BACKSTOP_BYTES]
            with _sigint_held():
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", START, *map(str, arguments)],
                    env=os.environ | WORKER_ENVIRONMENT,
                    pass_fds=passed,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL if quiet else 2,  # what libraries print isn't data, so it goes to stderr
                    stderr=subprocess.DEVNULL if quiet else None,
                )
        self.connection = Connection(ours.detach())

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, order: Order) -> None:
        """Send a task. If the worker has died, that is noticed when its answer is read."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(pickle.dumps(order, protocol=pickle.HIGHEST_PROTOCOL))

    def private_bytes(self) -> int:
        """Return the process's private resident memory; 0 if the system doesn't report it or the process has ended."""
        try:
            with open(f"/proc/{self._process.pid}/statm", "rb") as file:
                _, resident, shared, *_ = file.read().split()
        except (OSError, ValueError):
            return 0
        return (int(resident) - int(shared)) * _PAGE_BYTES

    def death(self) -> Death:
        """Return how the process ended. Call this when its end of the socket is closed."""
        stuck = False
        try:
            status = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            stuck = True
            self._process.kill()
            status = self._process.wait()
        if self.heartbeat.out_of_memory:
            return Death(self.heartbeat.position, self.memory_cause)
        cause = f"signal {-status}" if status < 0 else f"exit status {status}"
        return Death(self.heartbeat.position, cause, not stuck and -status in (signal.SIGKILL, signal.SIGTERM))

    def kill(self) -> None:
        """Kill the process at once: between tasks it has no state that would be lost."""
        self._process.kill()
        self._process.wait()
        self.connection.close()


def _unnamed_file() -> IO[bytes]:
    """Open an unnamed file, in memory if the system supports it, so that a full disk doesn't matter."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("webtext-heartbeat"), "r+b")
    return tempfile.TemporaryFile()


@contextlib.contextmanager
def _sigint_held() -> Iterator[None]:
    """Block SIGINT: a child inherits the blocked signal, so Ctrl-C can't hit it before it ignores the signal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
