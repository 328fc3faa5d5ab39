"""Fixtures: token sets made on the spot, and forked processes. Torch gets one thread, enough for small models."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed

from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.shards.shardfile import ShardWriter
from webtext.train.checkpoint.checkpoint import Checkpoint, checkpoint_path, open_checkpoint
from webtext.train.checkpoint.saver import CheckpointSaver
from webtext.train.distributed import World
from webtext.train.shape import GPT2Config

sys.path.insert(0, str(Path(__file__).parent))
import zygote  # noqa: E402

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for processes that tests start
VOCAB_SIZE = 61  # 60 words and an end-of-text


def sentences(seed: int, n_documents: int, length: int = 80) -> list[np.ndarray[Any, Any]]:
    """Documents in which token w is followed by 2 w + 1 or 3 w + 2 (mod 60): bigrams learn that, unigrams can't."""
    generator = np.random.default_rng(seed)
    documents = []
    for _ in range(n_documents):
        words = [int(generator.integers(60))]
        for coin in generator.integers(2, size=length - 1):
            words.append((words[-1] * (2 + coin) + 1 + coin) % 60)
        documents.append(np.array(words, np.uint16))
    return documents


def write_token_set(folder: Path, *, tokenizer_hash: str = "a" * 64, train: int = 60, validation: int = 6) -> str:
    """A sealed part set of kind tokens, as `webtext shards pack` writes it: two parts, so two shards per split."""
    facts = {"vocab_size": VOCAB_SIZE, "eot_id": VOCAB_SIZE - 1, "tokenizer_hash": tokenizer_hash}
    tokens = SetWriter(str(folder), "tokens", Recipe(stage="shards.pack", code_version=1, settings=facts))
    made = []
    for index in range(2):
        with tokens.part(index, key=f"part {index}") as part:
            for split, n in (("train", train), ("validation", validation)):
                name = f"{split}-{index:05d}.tok"
                if n == 0:
                    continue
                with ShardWriter(part.attach(name), **facts) as shard:
                    for i, document in enumerate(sentences(hash((split == "train", index)) % 1000, n)):
                        start = shard.append(document)
                        row = {"shard": name, "start": start, "length": len(document) + 1, "id": f"{name} {i}"}
                        part.write([{**row, "source_part": "part-00000.parquet", "row": i}])
                part.describe(name, shard.in_manifest())
            part.counts.keep(train + validation)
            made.append(part.publish())
    tokens.seal(made)
    return str(folder)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Each test begins with the same random numbers, whatever ran before it in its process."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def forked_processes() -> Iterator[None]:
    """Fork Python processes, of the tests and under test, from one that has imported torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", zygote.Forked)
        yield


@pytest.fixture
def real_processes(forked_processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start processes without forking, for a test of how a process begins."""
    monkeypatch.setattr(subprocess, "Popen", zygote.ORIGINAL)


WAITS = """
import time
from webtext.train.run.trainer import Trainer
settle = Trainer._settle
def settle_and_wait(self, queued, progress):
    settle(self, queued, progress)
    while self.step >= {step} and self.settings.seed >= {seed} and not self._termination.asked:
        time.sleep(0.005)
Trainer._settle = settle_and_wait
"""
FORKING = f"""
import subprocess, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import zygote
subprocess.Popen = zygote.ForkedHere
"""
RUN = """
import sys
from webtext.app.main import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture(scope="session")
def run_that_waits() -> Callable[[int, list[str]], list[str]]:
    """Return a webtext command that waits for SIGTERM after that step, so that no machine is faster than the test."""
    return lambda step, arguments: [sys.executable, "-c", WAITS.format(step=step, seed=0) + RUN, *arguments]


@pytest.fixture(scope="session")
def forking() -> str:
    """Return the first lines of a script whose own processes are forked from it."""
    return FORKING


@pytest.fixture(scope="session")
def experiment_that_waits() -> Callable[..., list[str]]:
    """Return such a command for an experiment on one core; trials of that seed and later ones wait in their processes."""

    def command(step: int, arguments: list[str], seed: int = 0) -> list[str]:
        place = f"{FORKING}from webtext.train.experiments import trials"
        start = f"{place}\ntrials.START = {WAITS.format(step=step, seed=seed)!r} + trials.START"
        start += "\ntrials.available_cores = lambda: 1"
        return [sys.executable, "-c", start + RUN, *arguments]

    return command


@pytest.fixture(scope="session")
def torchrun() -> Callable[..., list[str]]:
    """torchrun(n, *arguments) is the command that starts n processes on loopback; it forks them, which is faster."""
    local = ["--local-addr", "127.0.0.1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    start = [sys.executable, str(Path(__file__).with_name("forking_torchrun.py")), *local, "--nproc-per-node"]
    return lambda n, *arguments: [*start, str(n), *arguments]


@pytest.fixture(scope="session")
def token_set_of() -> Callable[..., str]:
    """token_set_of(folder, documents, vocab_size=n) writes a set of one training shard; the last id is end-of-text.

    With `held_out=documents` it has one shard of these too; `tokenizer_hash` is any by default.
    """

    def write(
        folder: Path,
        documents: Sequence[np.ndarray[Any, Any]],
        vocab_size: int,
        *,
        held_out: Sequence[np.ndarray[Any, Any]] = (),
        tokenizer_hash: str = "a" * 64,
    ) -> str:
        facts = {"vocab_size": vocab_size, "eot_id": vocab_size - 1, "tokenizer_hash": tokenizer_hash}
        tokens = SetWriter(str(folder), "tokens", Recipe(stage="shards.pack", code_version=1, settings=facts))
        with tokens.part(0, key="0") as part:
            for split, some in (("train", documents), ("validation", held_out)):
                if len(some):
                    with ShardWriter(part.attach(f"{split}-00000.tok"), **facts) as shard:
                        for document in some:
                            shard.append(document)
                    part.describe(f"{split}-00000.tok", shard.in_manifest())
            tokens.seal([part.publish()])
        return str(folder)

    return write


@pytest.fixture
def make_token_set(tmp_path: Path) -> Callable[..., str]:
    """make_token_set(name, train=documents, validation=documents) writes a token set and returns its folder."""
    return lambda name="tokens", **how: write_token_set(tmp_path / name, **how)


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A token set of 120 training and 12 held-out documents of 80 words. Nobody writes into it."""
    return write_token_set(tmp_path_factory.mktemp("tokens") / "tokens")


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit files to 8,000 bytes: to a writer that looks like a full disk, and it needs no root."""
    signal_before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, signal_before)


@pytest.fixture
def alone() -> Iterator[distributed.ProcessGroup]:
    """A process group of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    yield distributed.group.WORLD
    distributed.destroy_process_group()


@pytest.fixture
def save() -> Callable[..., Checkpoint]:
    """save(model_dir, step, tensors, state) publishes a checkpoint of a tiny model's config, and opens it."""

    def save(model_dir: Path, step: int, tensors: dict[str, Tensor], state: Mapping[str, Any] = {}) -> Checkpoint:
        config = GPT2Config(n_layer=1, n_head=1, n_embd=8, context=8, vocab_size=20)
        world = World(0, 1, torch.device("cpu"))
        with CheckpointSaver(model_dir, world, keep=None) as saver:
            saver.begin(step, tensors, {"config": asdict(config), **state})
        return open_checkpoint(checkpoint_path(model_dir, step))

    return save
