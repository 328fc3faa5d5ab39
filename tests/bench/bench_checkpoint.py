"""How long saving a checkpoint blocks training.

    python tests/bench/bench_checkpoint.py [--model 124M] [--tokens 1024] [--rounds 3]

The same model and AdamW state are saved in turn in four ways: in the background as `train run` does, synchronously, by
torch's own `dcp.async_save`, and by `torch.save`. First a saved checkpoint is read back and compared. "Held" is the
time that the step loop is blocked: the call itself and, for a save in the background, the wait before the next update.
Also printed are the time of a step alone and of a step during a save, which shares the machine's cores with it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor

from webtext.train.checkpoint.checkpoint import open_checkpoint
from webtext.train.checkpoint.saver import CheckpointSaver
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.precision import cast_parameters, compute_dtype
from webtext.train.optimizer.optimizer import make_optimizer, optimizer_tensors
from webtext.train.resilience.distributed import World
from webtext.train.settings import TrainSettings


class Bench:
    """A model in training, and four ways to save it."""

    def __init__(self, settings: TrainSettings, n_tokens: int) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.config = settings.config(50_257)
        self.model = GPT2(self.config).to(self.device)
        self.optimizer = make_optimizer(dict(self.model.named_parameters()), settings)
        self.dtype = compute_dtype("auto", self.device, self.config.n_embd)
        self.tokens_bt = torch.randint(50_257, (1, n_tokens + 1), device=self.device)
        self.number = 0

    def tensors(self) -> dict[str, Tensor]:
        model = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        state = optimizer_tensors(dict(self.model.named_parameters()), self.optimizer)
        return model | {f"optimizer.{name}": tensor for name, tensor in state.items()}

    def step(self, before_update: Callable[[], None] = lambda: None) -> float:
        """Make one step; return its seconds."""
        self.synchronize()
        started = time.perf_counter()
        with cast_parameters(self.model, self.dtype):
            self.model.loss(self.tokens_bt[:, :-1], self.tokens_bt[:, 1:]).backward()
        before_update()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.synchronize()
        return time.perf_counter() - started

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def check(self, saver: CheckpointSaver) -> None:
        """Check that a save in the background wrote the state at its beginning, bit for bit."""
        expected = {name: tensor.detach().cpu().clone() for name, tensor in self.tensors().items()}
        saver.begin(self.next(), self.config, self.tensors(), {})
        self.step(saver.wait_until_staged)
        saved = saver.finish()
        assert saved is not None
        found = {name: torch.empty_like(tensor) for name, tensor in expected.items()}
        open_checkpoint(saved.path).read(found)
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())

    def next(self) -> int:
        self.number += 1
        return self.number

    def in_background(self, saver: CheckpointSaver) -> tuple[float, float, float]:
        """Return the seconds held, of the concurrent step, and until the checkpoint was published."""
        started = time.perf_counter()
        saver.begin(self.next(), self.config, self.tensors(), {})
        held = [time.perf_counter() - started]

        def wait() -> None:
            before = time.perf_counter()
            saver.wait_until_staged()
            held.append(time.perf_counter() - before)

        beside = self.step(wait)
        saver.finish()
        return sum(held), beside, time.perf_counter() - started

    def at_once(self, saver: CheckpointSaver) -> float:
        return timed(lambda: (saver.begin(self.next(), self.config, self.tensors(), {}), saver.finish()))

    def by_torch(self, folder: Path) -> tuple[float, float]:
        """Return the seconds until dcp.async_save returns, and until everything is written."""
        started = time.perf_counter()
        writer = dcp.FileSystemWriter(folder / f"dcp-{self.next()}")
        future = dcp.async_save(self.tensors(), storage_writer=writer, no_dist=True)
        held = time.perf_counter() - started
        future.result()
        return held, time.perf_counter() - started


def timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="124M")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    bench = Bench(TrainSettings(model=options.model, context=options.tokens), options.tokens)
    world = World(0, 1, bench.device)
    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with CheckpointSaver(folder, world, keep=1, keep_best=False) as saver:
            bench.check(saver)
            bench.by_torch(folder)
            for _ in range(options.rounds):
                rows.setdefault("a step alone", []).append(bench.step())
                held, beside, whole = bench.in_background(saver)
                rows.setdefault("held: in the background", []).append(held)
                rows.setdefault("a step during a save", []).append(beside)
                rows.setdefault("until published: in the background", []).append(whole)
                rows.setdefault("held: synchronously", []).append(bench.at_once(saver))
                held, whole = bench.by_torch(folder)
                rows.setdefault("held: torch's dcp.async_save", []).append(held)
                rows.setdefault("until written: torch's dcp.async_save", []).append(whole)
                path = folder / "torch.pt"
                rows.setdefault("held: torch.save", []).append(timed(lambda: torch.save(bench.tensors(), path)))  # noqa: B023
    n_bytes = sum(tensor.nbytes for tensor in bench.tensors().values())
    step = statistics.median(rows["a step alone"])
    print(
        f"{options.model}: {n_bytes / 1e9:.2f} GB of parameters and moments, {options.tokens} tokens per step, {bench.device}"
    )
    for what, seconds in rows.items():
        middle = statistics.median(seconds)
        print(
            f"{what:45} {middle:8.3f} s  {middle / step:8.1%} of a step  (of {', '.join(f'{s:.3f}' for s in seconds)})"
        )


if __name__ == "__main__":
    main()
