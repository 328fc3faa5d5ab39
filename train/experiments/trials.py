"""The trials of an experiment: one table that `train compare`, `sweep` and `scale` fill, run and judge.

A trial is a run like any other: a finished one is skipped, a killed one resumes from its last complete checkpoint, and the
folder of another recipe is rejected before anything starts.

Several run at a time, each in a process and session of its own, with a share of the machine: a GPU, or some cores. Ctrl-C
reaches only the parent, which ends them by SIGTERM. If the parent dies, their standard input is closed, and they send
SIGTERM to themselves: so a run saves and ends in any case.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from webtext.base.config import changed
from webtext.base.errors import ConfigError, DryRun, InputError, Interrupted, MachineError, RunFailed, WebtextError
from webtext.base.html_pages.rendering import Section, sections_page
from webtext.base.run import Run
from webtext.base.storage import Folder, no_space_is_an_error
from webtext.base.workers.local_engine import available_cores
from webtext.train.checkpoint.checkpoint import checkpoint_of
from webtext.train.data.sources import Source, open_sources
from webtext.train.distributed import Termination
from webtext.train.metrics import steps_made
from webtext.train.run.loop import finished_result, train_model
from webtext.train.settings import TrainSettings

LOSS = "held-out loss, nats per token"
START = "from webtext.train.experiments.trials import serve; serve()"
POLL_SECONDS = 0.1
PLAN, LOG = "plan.json", "log.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: the token sets that it mixes, its model folder, and its name in messages."""

    name: str
    tokens: tuple[str, ...]
    settings: TrainSettings
    folder: str

    def train(self) -> None:
        run = Run.quiet()
        run.console.mode = "human"  # for the log
        train_model(self.tokens, self.folder, self.settings, run)

    def loss(self) -> float:
        """Return the held-out loss after the last step in nats per token; InputError if it isn't a number."""
        found = checkpoint_of(self.folder, verify=False)
        if found is None or not isinstance(loss := found.state["validation_loss"], float):
            raise InputError(f"'{self.folder}' has no finite held-out loss", "train with other settings")
        return loss


Trials = Sequence[Trial]
Row = tuple[dict[str, Any], Trials]
"""A row of the result as far as it is known before its trials, and these: one per seed."""


def seeded(name: str, tokens: Sequence[str], settings: TrainSettings, n: int, folder: Path) -> list[Trial]:
    """Return a complete run for each of n seeds, from the settings' own on."""
    runs = [changed(settings, stop_at_step=None, seed=settings.seed + i) for i in range(n)]
    return [
        Trial(name=f"{name}, seed {of.seed}", tokens=tuple(tokens), settings=of, folder=f"{folder}/seed-{of.seed}")
        for of in runs
    ]


def with_tokens(settings: TrainSettings, n_tokens: float) -> TrainSettings:
    """Return the settings with the fewest steps that have at least `n_tokens`; the warm-up keeps its steps.

    ConfigError if they end within the warm-up.
    """
    per_step = settings.batch_size * settings.context
    steps = math.ceil(n_tokens / per_step - 1e-9)
    if steps <= settings.warmup_steps:
        raise ConfigError(
            f"{n_tokens:,} tokens are {max(0, steps):,} steps of {per_step:,}, and the warm-up is {settings.warmup_steps:,}",
            "give more --tokens, fewer --warmup-steps, or a smaller --batch-size",
        )
    return replace(settings, steps=steps)


def held_out_sources(tokens: str | Sequence[str]) -> list[Source]:
    """Open token sets. InputError if none has held-out tokens, since held-out loss decides."""
    sources = open_sources(tokens)
    if not any(source.validation.n_tokens for source in sources):
        names = ", ".join(f"'{source.name}'" for source in sources)
        raise InputError(f"{names} has no held-out tokens, and held-out loss decides", "pack with a validation split")
    return sources


def run_experiment(
    verb: str, out: str, rows: Sequence[Row], plan: Mapping[str, Any], run: Run,
    judge: Callable[[list[dict[str, Any]]], Result], *, measure: Callable[[Trial], Any] = Trial.loss, may_fail: bool = False,
) -> Result:  # fmt: skip
    """Make the trials of all rows in the locked folder `out`, measure them, and write the result of `judge`.

    `judge` gets the rows with their "losses", None for a trial that failed. The result is VERB.json and VERB.html. `plan`
    must be equal for all trials of the folder, beyond what their checkpoints record. ConfigError if it isn't, for two
    trials of one folder, and under torchrun, whose processes would each start all the trials.
    """
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError("an experiment starts its own processes", "give the command without torchrun")
    folder = Folder(out)
    theirs: Mapping[str, Any] = folder.read_object(PLAN, "choose another --out") if folder.exists(PLAN) else plan
    for name, value in plan.items():
        if theirs.get(name) != value:
            was = f"'{out}' was made with {name} {theirs.get(name)}, but here it is {value}"
            raise ConfigError(was, "choose another --out, or remove the folder to start again")
    trials = [trial for _, of in rows for trial in of]
    for i, trial in enumerate(trials):
        if any(trial.folder == other.folder for other in trials[:i]):
            raise ConfigError(f"two runs have the folder of '{trial.name}'", "give values and budgets that differ more")
    n_tokens, n = sum(trial.settings.total_tokens for trial in trials), len(slots_for(trials))
    run.console.say(f"{verb}: {len(trials):,} runs, {n:,} at a time, {n_tokens:,} tokens in all")
    if run.dry_run:
        raise DryRun
    with folder.held():
        folder.write_object(PLAN, plan)
        ended = run_trials(trials, verb, run, may_fail=may_fail)
        found = judge([row | {"losses": [measure(each) if each in ended else None for each in of]} for row, of in rows])
        folder.write_object(f"{verb}.json", found.to_json())
        folder.write_bytes(f"{verb}.html", sections_page(found.title, found.sections()).encode())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of an experiment: the rows of its table, of which `columns` are shown; notes, a chart, and other facts."""

    title: str
    notes: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Any]
    chart: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return everything but the chart as plain values."""
        return {**self.facts, "rows": self.rows, "notes": self.notes}

    def sections(self) -> list[Section]:
        """Return the page's section. A value that a row lacks, or that is None, is left blank."""
        forms = {int: ",", float: ".4f", str: ""}
        values = [[row.get(name) for name in self.columns] for row in self.rows]
        cells = [["" if value is None else format(value, forms[type(value)]) for value in row] for row in values]
        return [Section(title=self.title, notes=self.notes, rows=[self.columns, *cells], chart=self.chart)]


def run_trials(trials: Trials, label: str, run: Run, *, may_fail: bool = False) -> list[Trial]:
    """Run trials to their ends, as many at a time as fit; return the trials that didn't fail.

    The first trial that fails ends the others by SIGTERM, so that they save, and is raised with its name and log. With
    `may_fail`, a run that stops by itself (RunFailed: its loss isn't finite, or it spiked) is only left out. SIGTERM
    or Ctrl-C raises Interrupted when all processes have ended. The same call resumes.
    """
    # `finished_result` rejects the folder of another run, before anything starts
    waiting = [trial for trial in trials if finished_result(trial.tokens, trial.folder, trial.settings) is None]
    slots = slots_for(trials)  # of all, so a resumed run gets the same threads as before
    running: list[Child] = []
    failed: list[Trial] = []
    total = sum(trial.settings.last_step for trial in trials)
    with run.console.progress(total, label, "steps") as progress, Termination.noticed() as termination:
        try:
            while waiting or running:
                if termination.asked:
                    said = f"ended by {termination.by}; running trials have saved"
                    raise Interrupted(said, "rerun the same command to resume")
                while waiting and slots:
                    running.append(Child(waiting.pop(0), slots.pop(0)))
                time.sleep(POLL_SECONDS)
                for child in [child for child in running if child.process.poll() is not None]:
                    running.remove(child)
                    slots.append(child.slot)
                    try:
                        child.check()
                    except RunFailed as error:
                        if not may_fail:
                            raise
                        run.console.say(f"{error.lines[0]}: it has lost")
                        failed.append(child.trial)
                steps = sum(min(steps_made(Path(each.folder)), each.settings.last_step) for each in trials)
                progress.advance(max(0, steps - progress.done))
        finally:
            for child in running:
                child.process.terminate()
            for child in running:
                child.process.wait()
    return [trial for trial in trials if trial not in failed]


class Child:
    """A trial in its process, which appends its output to log.txt in the trial's folder."""

    def __init__(self, trial: Trial, slot: Mapping[str, str]) -> None:
        self.trial, self.slot, self.log = trial, slot, Path(trial.folder) / LOG
        with no_space_is_an_error(str(self.log)):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", START],
                    env=os.environ | dict(slot),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # if the child has died, `check` finds out
            pickle.dump(trial, self.process.stdin)
            self.process.stdin.flush()

    def check(self) -> None:
        """Raise the ended child's error, with the trial's name and log; MachineError if it ended in another way."""
        place = f"its log: {self.log}"
        assert self.process.stdout is not None
        with self.process.stdout as answer, contextlib.suppress(EOFError):
            os.set_blocking(answer.fileno(), False)  # a process of the child's may still have it open
            error = pickle.loads(answer.read() or b"")
            raise type(error)(f"'{self.trial.name}': {error.lines[0]}", *error.lines[1:2], place)
        if status := self.process.returncode:
            cause = f"signal {-status}" if status < 0 else f"exit status {status}"
            said = self.log.read_text(errors="replace").strip().rpartition("\n")[2] or "its log is empty"
            raise MachineError(f"'{self.trial.name}': its process ended by {cause}: {said:.200}", place)


def serve() -> None:
    """Run the trial that comes pickled through standard input, and answer with its error; other output is logged."""
    trial: Trial = pickle.load(sys.stdin.buffer)
    answer = os.dup(1)
    os.dup2(2, 1)

    def end_with_parent() -> None:
        os.read(0, 1)  # the parent writes nothing more, so this returns when it has ended
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        trial.train()
    except WebtextError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os.write(answer, pickle.dumps(error))


def slots_for(trials: Trials) -> list[Mapping[str, str]]:
    """Return a share of the machine (environment variables) for each run at a time.

    There is one per GPU, or on a CPU one per core, fewer if OMP_NUM_THREADS gives each run several threads.
    """
    if any(trial.settings.device != "cpu" for trial in trials) and (n := torch.cuda.device_count()):
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = named.split(",") if named else [str(i) for i in range(n)]
        return [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus[: min(n, len(trials))]]
    asked = os.environ.get("OMP_NUM_THREADS", "")
    n_threads = int(asked) if asked.lstrip("0").isdecimal() else 0
    n = max(1, min(available_cores() // (n_threads or 1), len(trials)))
    threads = str(n_threads or available_cores() // n)
    return [{"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}] * n
