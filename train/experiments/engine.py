"""The engine of all experiments: a printed budget, a locked folder, trials in processes of their own, published results.

Several trials run at a time, each with a share of the machine: a GPU, or some cores. They follow the rules of `train
run`: a finished one is skipped, a killed one resumes from its last complete checkpoint, and a folder of other settings
or tokens is rejected before anything starts.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from webtext.base.errors import ConfigError, DryRun, Interrupted, MachineError, RunFailed, WebtextError
from webtext.base.run import Run
from webtext.base.storage import Folder, no_space_is_an_error
from webtext.base.workers.engine import available_cores
from webtext.train.data.sources import open_sources
from webtext.train.evaluate.page import Section, as_page
from webtext.train.experiments.trials import Trial
from webtext.train.metrics import steps_made
from webtext.train.model.flops import flops_per_token
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.plan.footprint import GIB
from webtext.train.resilience.termination import Termination
from webtext.train.run.loop import finished_result, train_model

START = "from webtext.train.experiments.engine import serve; serve()"
POLL_SECONDS = 0.1
PLAN, LOG = "plan.json", "log.txt"
CHECKPOINT_BYTES = 12
"""Bytes per parameter in a checkpoint: the parameter and AdamW's two moments, in float32."""

Slot = Mapping[str, str]
"""A share of the machine, as environment variables: CPU threads, or the visible GPU."""
Then = Callable[[Trial], None] | None
Trials = Sequence[Trial]


@contextlib.contextmanager
def experiment(
    verb: str, out: str, trials: Trials, plan: Mapping[str, Any], run: Run, side_by_side: int | None, share: float = 1.0
) -> Iterator[None]:
    """Print the budget of the trials, of which `share` of all steps will be made, and lock the folder `out`.

    Raises DryRun on a dry run, and ConfigError if the folder was made with another `plan`: what must be equal for its
    trials to be comparable, beyond what their checkpoints record. The plan is kept in plan.json. ConfigError also for two
    trials of one folder, and under torchrun, whose processes would each start all the trials.
    """
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError("an experiment starts its own processes", "give the command without torchrun")
    folder = Folder(out)
    theirs: Mapping[str, Any] = folder.read_object(PLAN, "choose another --out") if folder.exists(PLAN) else plan
    for name, value in plan.items():
        if theirs.get(name) != value:
            raise ConfigError(
                f"'{out}' was made with {name} {theirs.get(name)}, but here it is {value}",
                "choose another --out, or remove the folder to start again",
            )
    for i, trial in enumerate(trials):
        if any(trial.folder == other.folder for other in trials[:i]):
            raise ConfigError(f"two runs have the folder of '{trial.name}'", "give values and budgets that differ more")
    vocab_size = open_sources(trials[0].tokens)[0].train.vocab_size
    tokens, flops, disk = 0.0, 0.0, 0
    for trial in trials:
        config, n_tokens = trial.settings.config(vocab_size), total_tokens(trial.settings) * share
        tokens += n_tokens
        flops += n_tokens * flops_per_token(config)
        disk += config.n_parameters * CHECKPOINT_BYTES * ((trial.settings.checkpoint.keep_checkpoints or 1) + 1)
    n_slots = len(slots_for(trials, side_by_side))
    run.console.say(
        f"{verb}: {len(trials):,} runs, {n_slots:,} at a time, {round(tokens):,} tokens and {flops:.3g} FLOP in all; "
        f"at most {disk / GIB:,.2f} GiB of disk"
    )
    if run.dry_run:
        raise DryRun
    with folder.held():
        folder.write_object(PLAN, plan)
        yield


def run_trials(
    trials: Trials, run: Run, *, label: str, side_by_side: int | None = None, may_fail: bool = False, then: Then = None
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


def publish(out: str, verb: str, found: Mapping[str, Any], title: str, sections: Sequence[Section]) -> None:
    """Write VERB.json and VERB.html into the folder `out`."""
    Folder(out).write_object(f"{verb}.json", found)
    Folder(out).write_bytes(f"{verb}.html", as_page(title, sections).encode())


class Child:
    """A trial in its process, which appends what it prints to log.txt in the trial's folder."""

    def __init__(self, trial: Trial, then: Then, slot: Slot) -> None:
        self.trial, self.slot, self.log = trial, slot, Path(trial.folder) / LOG
        self._error = tempfile.TemporaryFile()  # noqa: SIM115  closed with the child
        with no_space_is_an_error(str(self.log)):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with open(self.log, "ab") as log:
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
        place = f"its log: {self.log}"
        with self._error, contextlib.suppress(EOFError):
            self._error.seek(0)
            error = pickle.load(self._error)
            raise type(error)(f"'{self.trial.name}': {error.lines[0]}", *error.lines[1:2], place)
        if status := self.process.returncode:
            cause = f"signal {-status}" if status < 0 else f"exit status {status}"
            said = self.log.read_text(errors="replace").strip().rpartition("\n")[2] or "its log is empty"
            raise MachineError(f"'{self.trial.name}': its process ended by {cause}: {said:.200}", place)


def serve() -> None:
    """Run the trial that comes through standard input; write its error into the file descriptor argv[1]."""
    trial, then = pickle.load(sys.stdin.buffer)

    def end_with_parent() -> None:
        os.read(0, 1)  # the parent writes nothing more, so this returns when it has ended
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        train_trial(trial, then)
    except WebtextError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        with open(int(sys.argv[1]), "wb") as file:
            pickle.dump(error, file)


def train_trial(trial: Trial, then: Then) -> None:
    """Run a trial in this process, and then `then`."""
    run = Run.quiet()
    run.console.mode = "human"  # for the log
    train_model(trial.tokens, trial.folder, trial.settings, run)
    if then is not None:
        then(trial)


def slots_for(trials: Trials, side_by_side: int | None) -> list[Slot]:
    """Return slots for these trials, at most one each; `side_by_side` overrides their number.

    If a run would use a GPU, there is one slot per GPU; more than that share them. On a CPU there are as many as cores,
    or fewer if a run asks for several `threads`. Cores are divided evenly.
    """
    settings, cores = [trial.settings for trial in trials], available_cores()
    gpus: list[str] = []
    if any(each.device != "cpu" for each in settings):
        import torch

        named, n = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()
        gpus = named.split(",")[:n] if named else [str(i) for i in range(n)]
    n = side_by_side or len(gpus) or cores // max(each.machine.threads or 1 for each in settings)
    n = max(1, min(n, len(settings)))
    if gpus:
        return [{"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} for i in range(n)]
    threads = str(max(1, cores // n))
    return [{"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}] * n
