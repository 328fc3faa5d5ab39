"""Calls in processes of their own, several at a time, each on a place of its own: a GPU, or a share of the cores.

A worker of `base/engine.py` has one thread, seconds for a record and a limit of memory; a training run has none of these,
wants its share of the machine, and is asked to end, not killed. So this is another, smaller thing.
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

from webtext.base.errors import ConfigError, EnvironmentError_, Interrupted, WebtextError
from webtext.base.storage import no_space_is_an_error
from webtext.train.experiments.child import START
from webtext.train.termination import Termination

POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Call:
    """A function that is importable by name, its arguments, and the file that gets all that it prints."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    log: Path


@dataclass(frozen=True, slots=True)
class Place:
    """Where one call runs at a time, as a child's environment says it: threads of a CPU, the GPU that it may see."""

    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a call returned nothing, and where its log is."""

    error: WebtextError


class _Child:
    """The process of a place, and the call that it is making."""

    def __init__(self, place: Place) -> None:
        self.place = place
        ours, theirs = socket.socketpair()
        theirs_alive, self._alive = os.pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, str(theirs.fileno()), str(theirs_alive)],
                env=os.environ | dict(place.environment),
                pass_fds=(theirs.fileno(), theirs_alive),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        os.close(theirs_alive)
        self.connection = Connection(ours.detach())

    def give(self, number: int, call: Call) -> None:
        """Begin a call."""
        self.number, self.call = number, call
        with no_space_is_an_error(str(call.log)):
            call.log.parent.mkdir(parents=True, exist_ok=True)
            call.log.touch()
        # that it died is found when its answer is read
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(pickle.dumps((call.function, call.arguments, str(call.log))))

    def answer(self) -> tuple[str, Any]:
        """What the call returned or raised."""
        try:
            told: tuple[str, Any] = self.connection.recv()
        except (EOFError, ConnectionResetError):
            status = self.process.wait()
            cause = f"signal {-status}" if status < 0 else f"exit status {status}"
            lines = self.call.log.read_text(errors="replace").split("\n")
            said = next((line.strip()[:200] for line in reversed(lines) if line.strip()), "it said nothing")
            return "raised", EnvironmentError_(f"its process ended by {cause}: {said}")
        return told

    def end(self) -> None:
        """Wait for its end, after `process.terminate()` or when it has nothing to do."""
        self.connection.close()
        self.process.wait()
        os.close(self._alive)


def run_side_by_side(
    calls: Sequence[Call],
    places: Sequence[Place],
    *,
    on_tick: Callable[[], None] = lambda: None,
    is_fatal: Callable[[WebtextError], bool] = lambda error: True,
) -> list[Any]:
    """Make all calls, as many at a time as there are places; what they returned, in their order.

    `on_tick` is called a few times a second. The first fatal error ends the others by SIGTERM and is raised with the call's
    name and log; another one stands as `Failed` in its call's place. SIGTERM to this process is passed on, and raises
    Interrupted when all have ended; so does Ctrl-C, which goes on as KeyboardInterrupt.
    """
    refuse_torchrun()
    waiting = deque(enumerate(calls))
    free = deque(places)
    idle: list[_Child] = []
    running: list[_Child] = []
    results: list[Any] = [None] * len(calls)
    with Termination.noticed() as termination:
        try:
            while waiting or running:
                if termination.asked:
                    raise Interrupted("ended by SIGTERM; what ran has saved", "give the same command again to go on")
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
                        free.append(child.place)
                on_tick()
        finally:
            for child in running:
                child.process.terminate()
            for child in (*running, *idle):
                child.end()
    return results


def _settle(child: _Child, is_fatal: Callable[[WebtextError], bool]) -> Any:
    """What the child's call returned, or `Failed`; a fatal error is raised."""
    kind, value = child.answer()
    if kind == "returned":
        return value
    if is_fatal(value):
        raise named(child.call, value)
    return Failed(named(child.call, value))


def named(call: Call, error: WebtextError) -> WebtextError:
    """The error of a call, with its name and where its log is."""
    first, *rest = error.lines
    return type(error)(f"'{call.name}': {first}", *rest[:1], f"all it said: {call.log}")


def refuse_torchrun() -> None:
    """ConfigError where this process is one of several: each would start all the calls."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError("an experiment starts its own processes", "give the command without torchrun")
