"""One process of `bench_parallel.py`: trains on meshes on request, and measures the inputs of their step-time model.

python parallel_peers.py RANK WORLD_SIZE STORE; requests on stdin as JSON lists, an answer to each on stdout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
from arguments import positional
from torch import Tensor, distributed

from webtext.train import GPT2
from webtext.train.mesh import MeshShape
from webtext.train.model.loss import WindowRules
from webtext.train.parallel.parallelize import ParallelModel
from webtext.train.run.engine import Engine
from webtext.train.run.memory import keep_freed_memory
from webtext.train.run.single_process import SingleProcessModel
from webtext.train.settings import TrainSettings

CPU, DTYPE = torch.device("cpu"), torch.float32
MODELS = {
    "measured": TrainSettings.of(n_layer=6, n_head=6, n_embd=384, context=128, batch_size=8, dtype="float32"),
    "curve": TrainSettings.of(n_layer=4, n_head=4, n_embd=64, context=32, batch_size=8, dtype="float32"),
}
VOCAB_SIZES = {"measured": 4096, "curve": 256}
MICROBATCHES = {"measured": 2, "curve": 2}
RATES = {"measured": 1e-4, "curve": 5e-3}
TRIES = 7


def batch_of(name: str, step: int, n: int) -> Tensor:
    """Return chains of tokens, [n, context + 1]: each is a function of the previous one, but every fourth is random."""
    vocab_size, generator = VOCAB_SIZES[name], torch.Generator().manual_seed(step)
    drawn_bt = torch.randint(vocab_size, (n, MODELS[name].context + 1), generator=generator)
    is_new_bt = torch.rand(drawn_bt.shape, generator=generator) < 0.25
    tokens_bt = drawn_bt.clone()
    for i in range(1, tokens_bt.shape[1]):
        tokens_bt[:, i] = torch.where(is_new_bt[:, i], drawn_bt[:, i], (5 * tokens_bt[:, i - 1] + 3) % vocab_size)
    return tokens_bt


class DDP:
    """torch's DistributedDataParallel as an Engine: the peer of `dp`."""

    def __init__(self, model: GPT2) -> None:
        self.parameters = dict(model.named_parameters())
        self.n_data, self.data_rank = distributed.get_world_size(), distributed.get_rank()
        self._model = torch.nn.parallel.DistributedDataParallel(_Loss(model))

    def forward_backward(self, microbatches: Any, n: int) -> Tensor:
        """Run the microbatches; only the last one synchronises gradients."""
        losses = []
        for i, tokens_bt in enumerate(microbatches):
            with nullcontext() if i == n - 1 else self._model.no_sync():
                loss = self._model(tokens_bt) / n
                loss.backward()
            losses.append(loss.detach())
        mean = torch.stack(losses).sum() / self.n_data
        distributed.all_reduce(mean)
        return mean


class _Loss(torch.nn.Module):
    def __init__(self, model: GPT2) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens_bt: Tensor) -> Tensor:
        return self.model.loss(tokens_bt[:, :-1], tokens_bt[:, 1:])


class Trainer:
    """A model on a mesh, "alone" or in "torch's DDP", with its optimizer."""

    def __init__(self, name: str, mesh: str, schedule: str) -> None:
        self.name, self.step = name, 0
        config = MODELS[name].config(VOCAB_SIZES[name])
        self.engine: Engine | DDP
        if mesh == "alone":
            self.engine = SingleProcessModel(GPT2(config), WindowRules(), CPU, DTYPE)
        elif mesh == "torch's DDP":
            self.engine = DDP(GPT2(config))
        else:
            shape = MeshShape.parse(mesh)
            with torch.device("meta"):
                model = GPT2(config)
            self.engine = ParallelModel(model, shape, CPU, dtype=DTYPE, rules=WindowRules(), schedule=schedule)
        parameters = list(self.engine.parameters.values())
        self.optimizer = torch.optim.AdamW(parameters, lr=RATES[name], fused=True)

    def train(self, n_sequences: int) -> dict[str, float]:
        """Make a step of `n_sequences` over all data ranks; return its loss and the seconds of gradients and update."""
        engine = self.engine
        share = n_sequences // engine.n_data
        mine = slice(engine.data_rank * share, (engine.data_rank + 1) * share)
        parts = batch_of(self.name, self.step, n_sequences)[mine].split(min(MICROBATCHES[self.name], share))
        distributed.barrier()
        started = time.perf_counter()
        loss = engine.forward_backward(iter(parts), len(parts)).item()
        computed = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if isinstance(engine, SingleProcessModel | ParallelModel):
            engine.parameters_changed()
        ended = time.perf_counter()
        self.step += 1
        return {"loss": loss, "gradients": computed - started, "update": ended - computed}


def link_seconds(n_bytes: int) -> dict[str, float]:
    """Return the median seconds of each collective over `n_bytes` on each rank, and of a message of that size."""
    world_size, rank = distributed.get_world_size(), distributed.get_rank()
    whole, other = torch.zeros(n_bytes // 4), torch.zeros(n_bytes // 4)
    part = torch.zeros(n_bytes // 4 // world_size)

    def message() -> None:
        distributed.send(whole, 1) if rank == 0 else distributed.recv(whole, 0)

    found: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: distributed.all_reduce(whole),
        "all_gather": lambda: distributed.all_gather_single(whole, part),
        "reduce_scatter": lambda: distributed.reduce_scatter_single(part, whole),
        "all_to_all": lambda: distributed.all_to_all_single(other, whole),
        "message": message,
    }
    seconds = {}
    for name, collective in found.items():
        tries = []
        for _ in range(TRIES):
            distributed.barrier()
            started = time.perf_counter()
            collective()
            tries.append(time.perf_counter() - started)
        seconds[name] = sorted(tries)[TRIES // 2]
    return seconds


def main() -> None:
    rank, world_size, store = positional(__doc__, rank=0, world_size=1, store="")
    cores = sorted(os.sched_getaffinity(0))
    if world_size <= len(cores):  # gloo's threads share this core too
        os.sched_setaffinity(0, {cores[rank]})
    torch.set_num_threads(1)
    keep_freed_memory()  # as the trainer does
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size, timeout=timedelta(minutes=5)
    )
    trainers: dict[str, Trainer] = {}
    for line in sys.stdin:
        word, *arguments = json.loads(line)
        answer: Any = None
        if word == "make":
            label, *made = arguments
            trainers[label] = Trainer(*made)
        elif word == "train":
            answer = trainers[arguments[0]].train(arguments[1])
        elif word == "link":
            answer = link_seconds(arguments[0])
        elif word == "forget":
            trainers.clear()
        print(json.dumps(answer), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
