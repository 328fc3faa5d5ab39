"""Tokens to the same loss: AdamW and Muon, tuned with equal effort, in models that a CPU can train.

    python tests/bench/bench_tokens.py [DATA] [--budget] [--stages tune,0.3M,0.6M] [--work FOLDER] [--jobs 2]

DATA contains corpora/en.txt.xz, which is cut into documents of about 4,000 characters and packed by a tokenizer of 8,192
tokens trained on it. `--budget` prints runs, tokens and estimated CPU minutes, and trains nothing. Stages:

tune    0.3 M parameters without embeddings, one seed. AdamW, on 409,600 tokens, and Muon, on 0.7 of them, have the
        same number of settings: round by round one thing of the best setting so far is varied.
0.3M, 0.6M, 1.2M
        the tuned settings with other seeds; AdamW trains on --tokens, Muon on shares of them, each with its entire
        schedule. Needed is the share where Muon's loss, over the log of the tokens, is AdamW's; bootstrap over seeds.
levers  Muon's tuned setting with one change.
order   one epoch: windows fully shuffled, shuffled by as many blocks as WebText has, or cut from shuffled documents.

A difference with a star is at least 0.004 / sqrt(seeds), the rule of modded-nanogpt's optimizer track. FOLDER/runs.jsonl
gets each run as it ends, and none is repeated.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import lzma
import math
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

from corpora_texts import joined
from real_data import real_data

from webtext.app.main import run as webtext
from webtext.base.run import Run
from webtext.train import TrainSettings, train_model
from webtext.train.optimizer.schedule import total_tokens

VOCAB_SIZE, HELD_OUT_EVERY, CHARACTERS_PER_TOKEN, SEED, SIGNIFICANT = 8192, 50, 3.4, 0, 0.004
CONTEXT, BATCH, EVAL_WINDOWS = 256, 4, 128
SIZES = {"0.3M": (3, 96, 3), "0.6M": (3, 128, 4), "1.2M": (4, 160, 5)}  # layers, width and heads
TOKENS_PER_SECOND = {"0.3M": 15_000, "0.6M": 12_000, "1.2M": 9_000}  # of a thread where the budget was planned
TUNE_TOKENS = {"adamw": 409_600, "muon": 286_720}
WEBTEXT_BLOCKS = 270  # blocks of 64 MiB in nine billion tokens of two bytes; 64 of them are shuffled together
Setting = dict[str, Any]  # settings of the trainer by name, and those of NO_SETTINGS
NO_SETTINGS = ("side", "size", "set", "patch", "warmup_ratio")
COMMON: Setting = {"warmup_ratio": 0.1, "weight_decay": 0.1, "schedule": "cosine", "min_learning_rate_ratio": 0.1}
START: dict[str, Setting] = {
    "adamw": {**COMMON, "optimizer": "adamw", "learning_rate": 2e-3},
    "muon": {**COMMON, "optimizer": "muon", "learning_rate": 4e-3, "muon_learning_rate": 8e-3},
}


def times(name: str, *factors: float) -> list[Setting]:
    """Return settings with multiples of the best setting's `name`."""
    return [{name: (name, factor)} for factor in factors]


TO_ZERO: Setting = {"min_learning_rate_ratio": 0.0}
SCHEDULES = [TO_ZERO, TO_ZERO | {"schedule": "wsd", "decay_ratio": 0.5}]
ROUNDS: dict[str, list[list[Setting]]] = {
    "adamw": [
        times("learning_rate", 0.5, 1, 2, 4), SCHEDULES, [{"weight_decay": 0.01}, {"weight_decay": 0.3}],
        [{"beta2": 0.99}], [{"warmup_ratio": 0.2}], times("learning_rate", 0.7, 1.4),
        [{"warmup_ratio": 0.4}, {"beta2": 0.99}],
    ],
    "muon": [
        times("muon_learning_rate", 0.25, 0.5, 1, 2), SCHEDULES, times("learning_rate", 0.5, 2),
        [{"weight_decay": 0.01}], [{"muon_momentum": 0.9}], times("muon_learning_rate", 0.7, 1.4),
        [{"warmup_ratio": 0.2}, {"beta2": 0.99}],
    ],
}  # fmt: skip
LEVERS: dict[str, Setting] = {
    "tuned": {},
    "embeddings at Muon's rate": {"learning_rate": ("muon_learning_rate", 1)},
    "cosine to a tenth": {"schedule": "cosine", "min_learning_rate_ratio": 0.1},
    "batch doubles after a tenth of the steps": {"batch_ramp_start": BATCH // 2},
    "momentum from 0.85 in a tenth of the steps": {"patch": "momentum"},
    "context of 64, then 128, a fifth of the steps each": {"patch": "context"},
    "output projections start at zero": {"patch": "zeros"},
    "windows start at documents, padded": {"crosses_documents": False},
}
ORDERS: dict[str, Setting] = {
    "windows, fully": {"set": "windows"},
    "windows, by blocks": {"set": "windows", "patch": "blocks"},
    "documents before packing, then windows": {"set": "documents"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("WEBTEXT_TEST_DATA"))
    parser.add_argument("--budget", action="store_true", help="print what would be trained")
    parser.add_argument("--stages", default=",".join(["tune", *SIZES, "levers", "order"]))
    parser.add_argument("--tokens", type=int, default=409_600, help="AdamW's in the stages named by a size")
    parser.add_argument("--shares", default="0.5,0.7", help="Muon's shares of them")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time, one thread each")
    parser.add_argument("--work", type=Path, help="folder for tokens and results; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options, options.work or Path(temporary))
        if not options.budget and not (bench.work / "documents/manifest.json").exists():
            write_tokens(real_data(options.data) / "corpora/en.txt.xz", bench.work)
        for stage in options.stages.split(","):
            (bench.print_budget if options.budget else bench.print_stage)(stage)


class Bench:
    """The stages, over the results that runs.jsonl has."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.work, self.tokens, self.jobs = work, options.tokens, options.jobs
        self.shares = [float(share) for share in options.shares.split(",")]
        self.seeds = range(SEED + 1, SEED + 1 + options.seeds)
        self.log = work / "runs.jsonl"
        rows = map(json.loads, self.log.read_text().splitlines() if self.log.exists() else [])
        self.known = {key_of(row["run"]): row["loss"] for row in rows}

    def print_budget(self, stage: str) -> None:
        """Print a stage's runs, tokens and estimated CPU minutes."""
        tokens = [TUNE_TOKENS["muon"]] * len(LEVERS if stage == "levers" else ORDERS) * len(self.seeds)
        if stage == "tune":
            tokens = [TUNE_TOKENS[side] for side, rounds in ROUNDS.items() for _ in itertools.chain(*rounds)]
        elif stage in SIZES:
            tokens = [round(self.tokens * share) for share in (1, *self.shares)] * len(self.seeds)
        minutes = sum(tokens) / TOKENS_PER_SECOND.get(stage, TOKENS_PER_SECOND["0.3M"]) / 60
        print(f"{stage:<7}{len(tokens):>3} runs, {sum(tokens):>10,} tokens, {minutes:5.1f} CPU minutes")

    def print_stage(self, stage: str) -> None:
        """Make the runs of a stage and print its table."""
        if stage == "tune":
            list(map(self.tuned, ROUNDS))
        elif stage in SIZES:
            self._confirm(stage)
        else:
            self._compare(LEVERS if stage == "levers" else ORDERS)

    def losses(self, side: str, size: str, tokens: float, seeds: Sequence[int], *settings: Setting) -> list[float]:
        """Return the held-out losses of a setting with each seed, or of each setting; makes the runs not yet known."""
        given = {"side": side, "size": size, "tokens": round(tokens)}
        runs = [{**given, "seed": seed, **setting} for setting in settings for seed in seeds]
        todo = [run for run in runs if key_of(run) not in self.known]
        with ProcessPoolExecutor(self.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            for done in as_completed([pool.submit(make, run, str(self.work)) for run in todo]):
                row = done.result()
                self.known[key_of(row["run"])] = row["loss"]
                with self.log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        return [self.known[key_of(run)] for run in runs]

    @functools.cache  # noqa: B019 - one Bench for a process
    def tuned(self, side: str) -> Setting:
        """Return the best setting of a side, round by round."""
        best, lowest = START[side], math.inf
        for changes in ROUNDS[side]:
            settings = [applied(best, change) for change in changes]
            found = self.losses(side, "0.3M", TUNE_TOKENS[side], [SEED], *settings)
            for change, setting, loss in zip(changes, settings, found, strict=True):
                values = ", ".join(f"{name} {setting[name]}" for name in change)
                print(f"| {side} | {values} | {loss:.4f} |", flush=True)
            lowest, best = min((lowest, best), *zip(found, settings, strict=True), key=lambda pair: pair[0])
        print(f"best {side}: {lowest:.4f} {best}\n", flush=True)
        return best

    def _confirm(self, size: str) -> None:
        adamw = self.losses("adamw", size, self.tokens, self.seeds, self.tuned("adamw"))
        muon = [self.losses("muon", size, share * self.tokens, self.seeds, self.tuned("muon")) for share in self.shares]
        print(f"| {size} | adamw | {self.tokens:,} | {figures(adamw, adamw)} |")
        for share, found in zip(self.shares, muon, strict=True):
            print(f"| {size} | muon | {share * self.tokens:,.0f} ({share}) | {figures(found, adamw)} |")
        low, middle, high = interval(adamw, muon, self.shares)
        best = interval([min(adamw)] * len(adamw), muon, self.shares)[1]
        print(f"needed: {middle:.3f} ({low:.3f} to {high:.3f}); to AdamW's best seed {best:.3f}", flush=True)

    def _compare(self, changes: Mapping[str, Setting]) -> None:
        first: list[float] = []
        for name, change in changes.items():
            found = self.losses("muon", "0.3M", TUNE_TOKENS["muon"], self.seeds, applied(self.tuned("muon"), change))
            first = first or found
            print(f"| {name} | {figures(found, first)} |", flush=True)


def key_of(run: Setting) -> str:
    return json.dumps(run, sort_keys=True)


def applied(best: Setting, change: Setting) -> Setting:
    """Return `best` with a change, in which (name, factor) is a multiple of the best's `name`."""
    multiples = {name: best[value[0]] * value[1] for name, value in change.items() if isinstance(value, tuple)}
    return best | change | multiples


def figures(found: Sequence[float], before: Sequence[float]) -> str:
    """Return the cells of a row: losses, mean and deviation, how much lower than `before`, with a star if that counts."""
    mean = statistics.fmean(found)
    gain = statistics.fmean(before) - mean
    star = " *" if abs(gain) * math.sqrt(len(found)) >= SIGNIFICANT else ""
    return (
        f"{' '.join(f'{loss:.4f}' for loss in found)} | {mean:.4f} +- {statistics.stdev(found):.4f} | {gain:+.4f}{star}"
    )


def interval(adamw: Sequence[float], muon: Sequence[Sequence[float]], shares: Sequence[float]) -> list[float]:
    """Return the share at which Muon's mean loss is AdamW's: 2.5 %, as measured, and 97.5 % of a bootstrap over seeds."""

    def at(a: Sequence[int], m: Sequence[int]) -> float:
        reached = [statistics.fmean(losses[i] for i in m) for losses in muon]
        slope, start = statistics.linear_regression(reached, [math.log(share) for share in shares])
        return math.exp(start + slope * statistics.fmean(adamw[i] for i in a))

    chance, n = random.Random(0), range(len(adamw))
    drawn = sorted(at(*(chance.choices(n, k=len(n)) for _ in range(2))) for _ in range(10_000))
    return [drawn[250], at(n, n), drawn[9750]]


def make(run: Setting, work: str) -> dict[str, Any]:
    """Train one model; return the run with its held-out loss and CPU seconds."""
    started = time.process_time()
    setting = {name: value for name, value in run.items() if name not in NO_SETTINGS}
    n_layer, n_embd, n_head = SIZES[run["size"]]
    steps = setting.pop("tokens") // (CONTEXT * BATCH)
    if start := setting.get("batch_ramp_start"):
        setting["batch_ramp_steps"] = steps // 10
        steps += setting["batch_ramp_steps"] * (BATCH - start) // BATCH
    settings = TrainSettings.of(
        context=CONTEXT, batch_size=BATCH, microbatch_size=BATCH, steps=steps, dtype="bfloat16", device="cpu", threads=1,
        warmup_steps=round(run["warmup_ratio"] * steps), n_layer=n_layer, n_embd=n_embd, n_head=n_head,
        eval_interval=None, eval_windows=EVAL_WINDOWS, checkpoint_interval=None, keep_best=False, **setting,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as out, patched(run, settings):
        loss = train_model(f"{work}/{run.get('set', 'tokens')}", out, settings, Run.quiet()).validation_loss
    return {"run": run, "loss": loss, "tokens": total_tokens(settings), "cpu_seconds": time.process_time() - started}


def patched(run: Setting, settings: TrainSettings) -> AbstractContextManager[Any]:
    """Return a context with the change of a run for which the trainer has no setting."""
    from webtext.train.data import sources
    from webtext.train.model import initialization, loss
    from webtext.train.run import trainer

    set_rate, std, whole = trainer.set_learning_rate, initialization._std, loss.TrainingLoss.__call__
    updates, calls = itertools.count(), itertools.count()

    def with_momentum(optimizer: Any, *rate: Any) -> None:
        set_rate(optimizer, *rate)
        missing = max(0.0, 1 - next(updates) / (settings.steps // 10))
        for part in optimizer.parts:
            if hasattr(part, "decay"):  # Muon's momentum; that of its groups is SGD's
                part.decay = settings.optimizer.muon_momentum * (1 - missing) + 0.85 * missing

    def in_pieces(self: Any, *windows: Any) -> Any:
        n = 4 >> min(2, 5 * next(calls) // settings.steps)
        return whole(self, *(tokens_bt.reshape(len(tokens_bt) * n, -1) for tokens_bt in windows))

    def from_zero(config: Any, name: str) -> float:
        return 0.0 if name.endswith(initialization._RESIDUAL) else std(config, name)

    by_blocks = functools.partial(sources.Sampler, block_bytes=2 * run["tokens"] // WEBTEXT_BLOCKS)
    changes: dict[str | None, tuple[Any, str, Any]] = {
        None: (trainer, "set_learning_rate", set_rate),
        "momentum": (trainer, "set_learning_rate", with_momentum),
        "context": (loss.TrainingLoss, "__call__", in_pieces),
        "zeros": (initialization, "_std", from_zero),
        "blocks": (sources, "Sampler", by_blocks),
    }
    return mock.patch.object(*changes[run.get("patch")])


def write_tokens(corpus: Path, work: Path) -> None:
    """Cut the corpus into documents and pack them all, and the first ones, as many as `order` trains on, in two orders."""
    texts = joined(lzma.decompress(corpus.read_bytes()).decode().split("\n\n"), "\n\n")
    train = [{"text": text, "split": "train"} for i, text in enumerate(texts) if i % HELD_OUT_EVERY]
    held_out = [{"text": text, "split": "validation"} for text in texts[::HELD_OUT_EVERY]]
    ends = itertools.accumulate(len(row["text"]) for row in train)
    first = train[: sum(end <= TUNE_TOKENS["muon"] * CHARACTERS_PER_TOKEN for end in ends)]
    shuffled, tokenizer = random.Random(0).sample(first, len(first)), f"{work}/tokenizer.json"
    for name, rows in {"tokens": train, "windows": first, "documents": shuffled}.items():
        file = work / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows + held_out))
        train_it = ["tokenizer", "train", str(file), "--vocab-size", str(VOCAB_SIZE), "--out", tokenizer]
        pack_it = ["shards", "pack", str(file), "--tokenizer", tokenizer, "--out", str(work / name)]
        for command in [train_it, pack_it] if name == "tokens" else [pack_it]:
            assert webtext([*command, "--quiet"]) == 0


if __name__ == "__main__":
    main()
