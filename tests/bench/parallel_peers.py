"""One process of `bench_parallel.py`: trains on meshes on request.

python parallel_peers.py RANK WORLD_SIZE STORE; requests on stdin as JSON lists, an answer to each on stdout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
from arguments import positional
from torch import Tensor, distributed

from webtext.base.config import changed
from webtext.train import GPT2
from webtext.train.data.windows import WindowRules
from webtext.train.engine import Engine
from webtext.train.model.initialization import drawn
from webtext.train.parallel.parallelize import ParallelModel
from webtext.train.run.memory import keep_freed_memory
from webtext.train.settings import TrainSettings

CPU, DTYPE = torch.device("cpu"), torch.float32
SETTINGS = TrainSettings.of(n_layer=6, n_head=6, n_embd=384, context=128, batch_size=8, dtype="float32")
VOCAB_SIZE, MICROBATCH, RATE = 4096, 2, 1e-4
DDP = "torch's DDP"


def batch_of(step: int, n: int) -> Tensor:
    """Return random tokens, [n, context + 1]."""
    return torch.randint(VOCAB_SIZE, (n, SETTINGS.context + 1), generator=torch.Generator().manual_seed(step))


class Replicas:
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
    """A model on a mesh, "alone" or in torch's DDP, with its optimizer."""

    def __init__(self, mesh: str) -> None:
        self.step = 0
        config = SETTINGS.config(VOCAB_SIZE)
        self.engine: Engine | Replicas
        if mesh == "alone":
            self.engine = Engine(GPT2(config), WindowRules(), CPU, DTYPE)
        elif mesh == DDP:
            self.engine = Replicas(GPT2(config))
        else:
            with torch.device("meta"):
                model, settings = GPT2(config), changed(SETTINGS, mesh=mesh)
            self.engine = ParallelModel(model, settings, WindowRules(), CPU, DTYPE, drawn(config, 0))
        parameters = list(self.engine.parameters.values())
        self.optimizer = torch.optim.AdamW(parameters, lr=RATE, fused=True)

    def train(self, n_sequences: int) -> dict[str, float]:
        """Make a step of `n_sequences` over all data ranks; return its loss and its seconds."""
        engine = self.engine
        share = n_sequences // engine.n_data
        mine = slice(engine.data_rank * share, (engine.data_rank + 1) * share)
        parts = batch_of(self.step, n_sequences)[mine].split(min(MICROBATCH, share))
        distributed.barrier()
        started = time.perf_counter()
        loss = engine.forward_backward(iter(parts), len(parts)).item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if isinstance(engine, Engine):
            engine.parameters_changed()
        self.step += 1
        return {"loss": loss, "seconds": time.perf_counter() - started}


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
            trainers[arguments[0]] = Trainer(arguments[0])
        elif word == "train":
            answer = trainers[arguments[0]].train(arguments[1])
        print(json.dumps(answer), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
