"""Make calls in separate processes, several at a time, each with its own slot: a GPU, or a share of the cores.

A worker of `base/workers/engine.py` has one thread, a time limit per record and a memory limit. A training run has none of
these, needs its share of the machine, and is asked to end instead of being killed. So this module doesn't use that
engine.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from webtext.base.errors import ConfigError, Interrupted, MachineError, WebtextError
from webtext.base.storage import no_space_is_an_error
from webtext.train.experiments.child import START
from webtext.train.resilience.termination import Termination

POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Call:
    """A function that is importable by name, its arguments, and the log file of everything that it prints."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    log: Path


@dataclass(frozen=True, slots=True)
class Slot:
    """A share of the machine for one call at a time, as environment variables: CPU threads, or the visible GPU."""

    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Failed:
    """The error of a call that isn't fatal, with its log's path."""

    error: WebtextError


class _Child:
    """The process of a slot, and its current call."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        ours, theirs = socket.socketpair()
        theirs_alive, self._alive = os.pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, str(theirs.fileno()), str(theirs_alive)],
                env=os.environ | dict(slot.environment),
                pass_fds=(theirs.fileno(), theirs_alive),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        os.close(theirs_alive)
        self.connection = Connection(ours.detach())

    def give(self, number: int, call: Call) -> None:
        """Start a call."""
        self.number, self.call = number, call
        with no_space_is_an_error(str(call.log)):
            call.log.parent.mkdir(parents=True, exist_ok=True)
            call.log.touch()
        # if the child has died, `answer` finds out
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(pickle.dumps((call.function, call.arguments, str(call.log))))

    def answer(self) -> tuple[str, Any]:
        """Return ("returned", value) or ("raised", error)."""
        try:
            answer: tuple[str, Any] = self.connection.recv()
        except (EOFError, ConnectionResetError):
            status = self.process.wait()
            cause = f"signal {-status}" if status < 0 else f"exit status {status}"
            lines = self.call.log.read_text(errors="replace").split("\n")
            last_line = next((line.strip()[:200] for line in reversed(lines) if line.strip()), "its log is empty")
            return "raised", MachineError(f"its process ended by {cause}: {last_line}")
        return answer

    def end(self) -> None:
        """Wait for the child's end, after `process.terminate()` or when it is idle."""
        self.connection.close()
        self.process.wait()
        os.close(self._alive)


def run_side_by_side(
    calls: Sequence[Call],
    slots: Sequence[Slot],
    *,
    on_tick: Callable[[], None] = lambda: None,
    is_fatal: Callable[[WebtextError], bool] = lambda error: True,
) -> list[Any]:
    """Make all calls, as many at a time as there are slots; return their results in order.

    `on_tick` is called a few times per second. The first fatal error ends the others by SIGTERM and is raised with the
    call's name and log; the result of a call with another error is `Failed`. SIGTERM to this process is passed on, and
    Interrupted is raised when all children have ended. Ctrl-C does the same with KeyboardInterrupt.
    """
    refuse_torchrun()
    waiting = deque(enumerate(calls))
    free = deque(slots)
    idle: list[_Child] = []
    running: list[_Child] = []
    results: list[Any] = [None] * len(calls)
    with Termination.noticed() as termination:
        try:
            while waiting or running:
                if termination.asked:
                    raise Interrupted("ended by SIGTERM; running trials have saved", "rerun the same command to resume")
                while waiting and (idle or free):
                    running.append(idle.pop() if idle else _Child(free.popleft()))
                    running[-1].give(*waiting.popleft())
                ready = wait([child.connection for child in running], POLL_SECONDS)
                for child in [child for child in running if child.connection in ready]:
                    results[child.number] = _settle(child, is_fatal)
                    running.remove(child)
                    if child.process.poll() is None:
                        idle.append(child)
                    else:
                        child.end()
                        free.append(child.slot)
                on_tick()
        finally:
            for child in running:
                child.process.terminate()
            for child in (*running, *idle):
                child.end()
    return results


def _settle(child: _Child, is_fatal: Callable[[WebtextError], bool]) -> Any:
    """Return the result of the child's call, or `Failed`; raise a fatal error."""
    kind, value = child.answer()
    if kind == "returned":
        return value
    if is_fatal(value):
        raise named(child.call, value)
    return Failed(named(child.call, value))


def named(call: Call, error: WebtextError) -> WebtextError:
    """Return the error of a call, with the call's name and its log's path."""
    first, *rest = error.lines
    return type(error)(f"'{call.name}': {first}", *rest[:1], f"its log: {call.log}")


def refuse_torchrun() -> None:
    """Raise ConfigError under torchrun: each of its processes would start all the calls."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError("an experiment starts its own processes", "give the command without torchrun")
