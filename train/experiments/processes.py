"""Make calls in processes of their own, several at a time, each with a share of the machine: a GPU, or some cores.

A worker of `base/workers/engine.py` has one thread, a time limit per record and a memory limit; a training run has none.

A child reads (function, arguments) from its standard input, and writes what the function returned, or the WebtextError
that it raised, into a temporary file, both pickled. It has its own session, so Ctrl-C reaches only the parent, which ends
its children by SIGTERM. If the parent dies, the child's standard input is closed, and it sends SIGTERM to itself: so a
run saves and ends in any case.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webtext.base.errors import ConfigError, Interrupted, MachineError, WebtextError
from webtext.base.storage import no_space_is_an_error
from webtext.base.workers.engine import available_cores
from webtext.train.mesh import MeshShape
from webtext.train.plan.footprint import memory_on
from webtext.train.resilience.termination import Termination
from webtext.train.settings import TrainSettings

START = "from webtext.train.experiments.processes import serve; serve()"
POLL_SECONDS = 0.1
MEMORY_RATIO = 0.8
"""Share of the machine's memory that runs may take by plan; plans don't count the libraries."""
PROCESS_BYTES = 400 << 20
"""Memory of a process that has loaded torch, before it has a model (about this with torch 2.13 on Linux)."""

Slot = Mapping[str, str]
"""A share of the machine, as environment variables: CPU threads, or the visible GPU."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function that is importable by name, its arguments, and the log file of everything that it prints."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    log: Path


class _Child:
    def __init__(self, number: int, call: Call, slot: Slot) -> None:
        self.number, self.call, self.slot = number, call, slot
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115  closed with the child
        with no_space_is_an_error(str(call.log)):
            call.log.parent.mkdir(parents=True, exist_ok=True)
            with open(call.log, "ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", START, str(self._answer.fileno())],
                    env=os.environ | dict(slot),
                    pass_fds=[self._answer.fileno()],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # if the child has died, `result` finds out
            pickle.dump((call.function, call.arguments), self.process.stdin)
            self.process.stdin.flush()

    def result(self) -> Any:
        """Return what the child returned; raise what it raised, with the call's name and log. Waits for its end."""
        status = self.process.wait()
        with self._answer, contextlib.suppress(EOFError):
            self._answer.seek(0)
            answer = pickle.load(self._answer)
            if not isinstance(answer, WebtextError):
                return answer
            first, *rest = answer.lines
            raise type(answer)(f"'{self.call.name}': {first}", *rest[:1], f"its log: {self.call.log}")
        last_line = [
            "its log is empty",
            *filter(None, map(str.strip, self.call.log.read_text(errors="replace").split("\n"))),
        ][-1]
        cause = f"signal {-status}" if status < 0 else f"exit status {status}"
        raise MachineError(
            f"'{self.call.name}': its process ended by {cause}: {last_line:.200}", f"its log: {self.call.log}"
        )


def run_side_by_side(
    calls: Sequence[Call],
    slots: Sequence[Slot],
    *,
    on_tick: Callable[[], None] = lambda: None,
    allowed: tuple[type[WebtextError], ...] = (),
) -> list[Any]:
    """Make all calls, as many at a time as there are slots; return their results in order.

    `on_tick` is called a few times per second. The first error ends the others by SIGTERM and is raised with the call's
    name and log; an error of an `allowed` kind is a result instead. SIGTERM to this process is passed on, and Interrupted
    is raised when all children have ended. Ctrl-C does the same with KeyboardInterrupt.
    """
    refuse_torchrun()
    waiting, free = deque(enumerate(calls)), deque(slots)
    running: list[_Child] = []
    results: list[Any] = [None] * len(calls)
    with Termination.noticed() as termination:
        try:
            while waiting or running:
                if termination.asked:
                    raise Interrupted("ended by SIGTERM; running trials have saved", "rerun the same command to resume")
                while waiting and free:
                    running.append(_Child(*waiting.popleft(), free.popleft()))
                time.sleep(POLL_SECONDS)
                for child in [child for child in running if child.process.poll() is not None]:
                    running.remove(child)
                    free.append(child.slot)
                    try:
                        results[child.number] = child.result()
                    except allowed as error:
                        results[child.number] = error
                on_tick()
        finally:
            for child in running:
                child.process.terminate()
            for child in running:
                child.process.wait()
    return results


def serve() -> None:
    """Make the call that comes through standard input; write its answer into the file descriptor argv[1]."""
    function, arguments = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer = function(*arguments)
    except WebtextError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        answer = error
    with open(int(sys.argv[1]), "wb") as file:
        pickle.dump(answer, file)


def _end_with_parent() -> None:
    """Wait for the end of the parent: it writes nothing more, so a read returns when standard input is closed."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def slots_for(settings: Sequence[TrainSettings], vocab_size: int, side_by_side: int | None = None) -> list[Slot]:
    """Return slots for runs with these settings, at most one for each run; `side_by_side` overrides their number.

    If a run would use a GPU, there is one slot per GPU; more than that share them. On a CPU there are as many as
    cores, but fewer if the largest run doesn't fit into memory that often or asks for several `threads`. Cores are
    divided evenly.
    """
    gpus = _gpus() if any(each.device != "cpu" for each in settings) else []
    if gpus:
        n = min(side_by_side or len(gpus), len(settings))
        return [{"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} for i in range(n)]
    cores = available_cores()
    largest = max(
        memory_on(each.config(vocab_size), each, MeshShape(), each.accumulation(1)[0]).total for each in settings
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MEMORY_RATIO
    fitting = min(cores // max(each.machine.threads or 1 for each in settings), int(memory / (largest + PROCESS_BYTES)))
    n = max(1, min(side_by_side or fitting, len(settings)))
    threads = str(max(1, cores // n))
    return [{"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}] * n


def _gpus() -> list[str]:
    """Return the GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES."""
    import torch

    if not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


def refuse_torchrun() -> None:
    """Raise ConfigError under torchrun: each of its processes would start all the calls."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError("an experiment starts its own processes", "give the command without torchrun")
