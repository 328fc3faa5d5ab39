"""Run trials in processes of their own, several at a time, each with a share of the machine: a GPU, or some cores.

Trials follow the rules of `train run`: a finished one is skipped, a killed one resumes from its last complete
checkpoint, and a folder of other settings or tokens is rejected before anything starts.

A child reads (trial, then) from its standard input, and writes the WebtextError that it raised, if any, into a temporary
file, both pickled. It has its own session, so Ctrl-C reaches only the parent, which ends its children by SIGTERM. If the
parent dies, the child's standard input is closed, and it sends SIGTERM to itself: so a run saves and ends in any case.
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
from dataclasses import replace
from pathlib import Path

from webtext.base.errors import Interrupted, MachineError, RunFailed, WebtextError
from webtext.base.run import Run
from webtext.base.storage import no_space_is_an_error
from webtext.base.workers.engine import available_cores
from webtext.train.data.sources import open_sources
from webtext.train.experiments.trials import Trial
from webtext.train.mesh import MeshShape
from webtext.train.metrics import steps_made
from webtext.train.plan.footprint import memory_on
from webtext.train.resilience.termination import Termination
from webtext.train.run.loop import finished_result, train_model

START = "from webtext.train.experiments.processes import serve; serve()"
POLL_SECONDS = 0.1
MEMORY_RATIO = 0.8
"""Share of the machine's memory that runs may take by plan; plans don't count the libraries."""
PROCESS_BYTES = 400 << 20
"""Memory of a process that has loaded torch, before it has a model (about this with torch 2.13 on Linux)."""

Slot = Mapping[str, str]
"""A share of the machine, as environment variables: CPU threads, or the visible GPU."""
Then = Callable[[Trial], None]


def run_trials(
    trials: Sequence[Trial],
    run: Run,
    *,
    label: str,
    side_by_side: int | None = None,
    may_fail: bool = False,
    then: Then | None = None,
) -> list[Trial]:
    """Run all trials to their ends (or their `stop_at_step`), as many at a time as fit; return those that didn't fail.

    The first trial that fails ends the others by SIGTERM, so that they save, and is raised with its name and log. With
    `may_fail`, a run that stops by itself (RunFailed: its loss isn't finite, or it spiked) is only left out; errors of
    settings, input and machine are still raised. `then`, which must be picklable, is called with each finished trial in
    its process, also for trials that were finished before. SIGTERM raises Interrupted when all children have ended;
    Ctrl-C does the same with KeyboardInterrupt. The same call resumes.
    """
    left = [each for each in trials if not finished_result(each.tokens, each.folder, each.settings) or then is not None]
    if not left:
        return list(trials)
    slots = slots_for(trials, side_by_side)  # of finished ones too, so a resumed run gets the same threads as before
    skipped = f", {len(trials) - len(left):,} are done" if len(left) < len(trials) else ""
    run.console.say(f"{label}: {len(trials):,} runs, {len(slots):,} at a time{skipped}")
    waiting, free = deque(left), deque(slots)
    running: list[Child] = []
    failed: list[str] = []
    total = sum(trial.settings.last_step for trial in trials)
    with run.console.progress(total, label, "steps") as progress, Termination.noticed() as termination:
        try:
            while waiting or running:
                if termination.asked:
                    raise Interrupted("ended by SIGTERM; running trials have saved", "rerun the same command to resume")
                while waiting and free:
                    running.append(Child(waiting.popleft(), then, free.popleft()))
                time.sleep(POLL_SECONDS)
                for child in [child for child in running if child.process.poll() is not None]:
                    running.remove(child)
                    free.append(child.slot)
                    try:
                        child.check()
                    except RunFailed as error:
                        if not may_fail:
                            raise
                        run.console.say(f"{error.lines[0]}: it has lost")
                        failed.append(child.trial.folder)
                steps = sum(min(steps_made(Path(each.folder)), each.settings.last_step) for each in trials)
                progress.advance(max(0, steps - progress.done))
        finally:
            for child in running:
                child.process.terminate()
            for child in running:
                child.process.wait()
    return [trial for trial in trials if trial.folder not in failed]


def held_out_losses(trials: Sequence[Trial], run: Run, label: str, side_by_side: int | None) -> list[float | None]:
    """Run all trials; return their losses in order (`Trial.loss`), None for those that failed."""
    ended = [trial.folder for trial in run_trials(trials, run, label=label, side_by_side=side_by_side, may_fail=True)]
    return [trial.loss() if trial.folder in ended else None for trial in trials]


class Child:
    """A trial in its process, which prints into the trial's log."""

    def __init__(self, trial: Trial, then: Then | None, slot: Slot) -> None:
        self.trial, self.slot = trial, slot
        self._error = tempfile.TemporaryFile()  # noqa: SIM115  closed with the child
        with no_space_is_an_error(str(trial.log)):
            trial.log.parent.mkdir(parents=True, exist_ok=True)
            with open(trial.log, "ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", START, str(self._error.fileno())],
                    env=os.environ | dict(slot),
                    pass_fds=[self._error.fileno()],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # if the child has died, `check` finds out
            pickle.dump((trial, then), self.process.stdin)
            self.process.stdin.flush()

    def check(self) -> None:
        """Raise what the ended child raised, with the trial's name and log; MachineError if it ended in another way."""
        place = f"its log: {self.trial.log}"
        with self._error, contextlib.suppress(EOFError):
            self._error.seek(0)
            error = pickle.load(self._error)
            raise type(error)(f"'{self.trial.name}': {error.lines[0]}", *error.lines[1:2], place)
        if status := self.process.returncode:
            cause = f"signal {-status}" if status < 0 else f"exit status {status}"
            said = self.trial.log.read_text(errors="replace").strip().rpartition("\n")[2] or "its log is empty"
            raise MachineError(f"'{self.trial.name}': its process ended by {cause}: {said:.200}", place)


def serve() -> None:
    """Run the trial that comes through standard input; write its error into the file descriptor argv[1]."""
    trial, then = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        train_trial(trial, then)
    except WebtextError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        with open(int(sys.argv[1]), "wb") as file:
            pickle.dump(error, file)


def train_trial(trial: Trial, then: Then | None) -> None:
    """Run a trial in this process, and then `then`."""
    run = Run.quiet()
    run.console.mode = "human"  # for the log
    train_model(trial.tokens, trial.folder, trial.settings, run)
    if then is not None:
        then(trial)


def _end_with_parent() -> None:
    """Wait for the end of the parent: it writes nothing more, so a read returns when standard input is closed."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def slots_for(trials: Sequence[Trial], side_by_side: int | None) -> list[Slot]:
    """Return slots for these trials, which share a vocabulary; at most one each. `side_by_side` overrides their number.

    If a run would use a GPU, there is one slot per GPU; more than that share them. On a CPU there are as many as
    cores, but fewer if the largest run doesn't fit into memory that often or asks for several `threads`. Cores are
    divided evenly.
    """
    settings = [trial.settings for trial in trials]
    gpus = _gpus() if any(each.device != "cpu" for each in settings) else []
    if gpus:
        n = min(side_by_side or len(gpus), len(settings))
        return [{"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} for i in range(n)]
    cores, vocab_size = available_cores(), open_sources(trials[0].tokens)[0].train.vocab_size
    on_cpu = [replace(each, device="cpu") for each in settings]
    largest = max(
        memory_on(each.config(vocab_size), each, MeshShape(), each.accumulation(1)[0]).total for each in on_cpu
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MEMORY_RATIO
    fitting = min(cores // max(each.machine.threads or 1 for each in settings), int(memory / (largest + PROCESS_BYTES)))
    n = max(1, min(side_by_side or fitting, len(settings)))
    threads = str(max(1, cores // n))
    return [{"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}] * n


def _gpus() -> list[str]:
    """Return the GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES."""
    import torch

    named, n = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()
    return named.split(",")[:n] if named else [str(i) for i in range(n)]
