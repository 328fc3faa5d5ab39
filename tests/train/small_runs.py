"""Small runs: their settings and flags, what they leave in their folders, and processes that make one together."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from webtext.base.config import all_settings, options, place
from webtext.base.run import Run
from webtext.train import TrainResult, TrainSettings, train_model

SHAPE: dict[str, Any] = {"n_layer": 1, "n_head": 1, "n_embd": 16, "context": 16, "batch_size": 4, "microbatch_size": 2}
OF_THE_CLOCK = ("seconds", "tokens_per_second", "mfu_ratio", "memory_bytes")
SECONDS = 600.0  # a guard against hanging, not a measurement


def small(**changes: Any) -> TrainSettings:
    """Settings of a step of four sequences of 16 tokens through one layer of 16."""
    return TrainSettings.of(**{**SHAPE, "warmup_steps": 1, **changes})


def flags(**changes: Any) -> list[str]:
    """`small` as options of `train run`."""
    return given({**SHAPE, "warmup_steps": 1, **changes})


def given(values: Mapping[str, Any]) -> list[str]:
    """Settings of training as `--set`, each in its section."""
    known = options(TrainSettings)
    named = {place("train", known[name].subsection) + f".{name}": value for name, value in values.items()}
    return [word for name, value in named.items() for word in ("--set", f"{name}={str(value).lower()}")]


def train(tokens: str | Sequence[str], out: Path | str, settings: TrainSettings, **how: Any) -> TrainResult:
    return train_model(tokens, str(out), settings, talking("quiet"), **how)


def talking(mode: str = "human", *, dry_run: bool = False) -> Run:
    run = Run.quiet()
    run.console.mode, run.dry_run = mode, dry_run  # type: ignore[assignment]
    return run


def rows(out: Path) -> list[dict[str, Any]]:
    """The rows of a model folder's metrics, in which nothing is left out."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def timeless(out: Path) -> list[dict[str, Any]]:
    """The rows without what the clock decides."""
    return [{name: value for name, value in row.items() if name not in OF_THE_CLOCK} for row in rows(out)]


def losses(out: Path) -> list[float]:
    """The loss of each step and of each held-out measurement, in their order."""
    return [row[kind] for row in rows(out) for kind in ("loss", "validation_loss") if kind in row]


def state(out: Path, step: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"checkpoints/step-{step:06d}/state.json").read_text())
    return found


def saved_bytes(out: Path, step: int) -> dict[str, bytes]:
    """The files with the tensors of a checkpoint."""
    files = (out / f"checkpoints/step-{step:06d}").glob("*.safetensors")
    found = {path.name: path.read_bytes() for path in files}
    assert found, f"no checkpoint of step {step}"
    return found


def on_ranks(n: int, script: Path, folder: Path, *arguments: str) -> list[tuple[int, str]]:
    """Start `script RANK N FOLDER ARGUMENTS` for n ranks; return their exit codes and what they wrote to stderr."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(script)]
    children = [
        subprocess.Popen([*command, str(rank), str(n), str(folder), *arguments], stderr=subprocess.PIPE, text=True)
        for rank in range(n)
    ]
    try:
        talk = [child.communicate(timeout=SECONDS)[1] for child in children]
    finally:
        for child in children:
            child.kill()
    return [(child.returncode, said) for child, said in zip(children, talk, strict=True)]


def train_on_ranks(n: int, folder: Path, runs: Sequence[Sequence[Any]]) -> None:
    """Make the runs (tokens, out, settings, and `start` if given) one after another, each by n processes."""
    plain = [(tokens, str(out), all_settings(settings), *start) for tokens, out, settings, *start in runs]
    ended = on_ranks(n, Path(__file__), folder, json.dumps(plain))
    assert [code for code, _ in ended] == [0] * n, "\n".join(said for _, said in ended)


def wait_until(holds: Callable[[], object], process: subprocess.Popen[Any] | None = None) -> None:
    """Wait until a condition holds, before a process ends."""
    end = time.monotonic() + SECONDS
    while not holds():
        assert process is None or process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)


@contextlib.contextmanager
def joined_ranks() -> Iterator[tuple[int, int, Path, list[str]]]:
    """Join the ranks of `on_ranks`: yields this one's number, how many there are, the folder and the arguments."""
    rank, n, folder, arguments = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=n, timeout=timedelta(minutes=5))
    try:
        yield rank, n, folder, arguments
    finally:
        distributed.destroy_process_group()


class PinnedMemory:
    """What CUDA registers as pinned: bytes by address."""

    def __init__(self) -> None:
        self.registered: dict[int, int] = {}

    def cudaHostRegister(self, address: int, n_bytes: int, flags: int) -> int:  # noqa: N802 - its name in CUDA
        self.registered[address] = n_bytes
        return 2 if n_bytes > 10**6 else 0  # cudaErrorMemoryAllocation

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        del self.registered[address]
        return 0


WORDS = re.findall(
    r"\w+", "the a cat dog bird sees likes finds old small red house tree river in near under and then it was"
)


def texts_of(seed: int, n: int, *, noise: bool = False) -> list[str]:
    """Sentences of few words, which a model learns, or letters drawn one by one, which teach it nothing of sentences."""
    generator = random.Random(seed)
    if noise:
        return ["".join(generator.choices(string.ascii_letters + " ", k=400)) for _ in range(n)]
    return [" ".join(generator.choice(WORDS) for _ in range(80)) + "." for _ in range(n)]


if __name__ == "__main__":  # as `train_on_ranks` starts it
    with joined_ranks() as (rank, n, _, (runs,)):
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_RANK": str(rank)}
        for tokens, out, settings, *start in json.loads(runs):
            train(tokens, out, TrainSettings.of(**settings), start=start[0] if start else None)
