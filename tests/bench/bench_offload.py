"""Offloading: a step's time compared with the plain run's, with and without activation checkpointing.

    python tests/bench/bench_offload.py --rounds 5 --layers 6

On a CPU offloading gains nothing: printed is the overhead of moving layers. Offloaders of other libraries move nothing if the
device is the CPU; `bench_gpu.py` compares with FSDP2's on a GPU.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import torch
from arguments import parser
from torch import Tensor

from webtext.train import GPT2, GPT2Config, TrainSettings
from webtext.train.data.windows import WindowRules
from webtext.train.offload.engine import layer_optimizers
from webtext.train.offload.host import Link
from webtext.train.offload.offloaded import OffloadedModel
from webtext.train.optimizer.optimizer import gradient_norm, make_optimizer, update

CPU = torch.device("cpu")
SETTINGS = TrainSettings(dtype="float32")
SHAPE = GPT2Config(n_layer=8, n_head=4, n_embd=256, context=256, vocab_size=4096)
SEQUENCES, MICROBATCHES = 2, 4


def made_model(n_layer: int) -> GPT2:
    torch.manual_seed(0)
    return GPT2(replace(SHAPE, n_layer=n_layer))


def batches(n: int = MICROBATCHES) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens_bt = torch.randint(SHAPE.vocab_size, (n * SEQUENCES, SHAPE.context + 1), generator=generator)
    return list(tokens_bt.split(SEQUENCES))


class Plain:
    """The plain trainer's step."""

    def __init__(self, n_layer: int, *, checkpoints: bool = False) -> None:
        self.model = made_model(n_layer)
        self.model.activation_checkpointing = checkpoints
        self.optimizer = make_optimizer(dict(self.model.named_parameters()), SETTINGS)

    def step(self, tokens: list[Tensor]) -> float:
        total = torch.zeros(())
        for batch in tokens:
            part = self.model.loss(batch[:, :-1], batch[:, 1:]) / len(tokens)
            part.backward()  # type: ignore[no-untyped-call]
            total += part.detach()
        update(self.optimizer, gradient_norm(self.model), 1.0, torch.zeros(()))
        self.optimizer.zero_grad()
        return float(total)


class Offloaded:
    """The offloaded engine's step."""

    def __init__(self, n_layer: int) -> None:
        self.model = OffloadedModel(made_model(n_layer), Link(CPU), torch.float32, WindowRules())
        self.model.group = MICROBATCHES
        self.optimizers = layer_optimizers(dict(self.model.model.named_parameters()), SETTINGS)

    def step(self, tokens: list[Tensor]) -> float:
        loss = self.model.forward_backward(tokens)
        norm = gradient_norm(self.model.model)
        self.model.update(lambda layer: self.update(layer, norm))
        return float(loss)

    def update(self, layer: int, norm: Tensor) -> None:
        update(self.optimizers[layer], norm, 1.0, torch.zeros(()))
        self.model.refresh(layer)


def speeds(n_layer: int, rounds: int) -> None:
    tokens, steps = batches(), {}
    runs: dict[str, Any] = {
        "plain": Plain(n_layer),
        "plain, activation checkpointing": Plain(n_layer, checkpoints=True),
        "offloaded": Offloaded(n_layer),
    }
    losses = {name: [run.step(tokens) for _ in range(2)] for name, run in runs.items()}
    assert all(abs(a - b) < 1e-5 for found in losses.values() for a, b in zip(found, losses["plain"], strict=True)), (
        losses
    )
    for _ in range(rounds):
        for name, run in runs.items():
            began, cpu = time.perf_counter(), time.process_time()
            run.step(tokens)
            if isinstance(run, Offloaded):
                run.model.wait()
            steps.setdefault(name, []).append((time.perf_counter() - began, time.process_time() - cpu))
    print(
        f"\na step of {n_layer} layers, {MICROBATCHES} x {SEQUENCES} x {SHAPE.context} tokens; "
        f"losses equal within 1e-5, medians of {rounds}"
    )
    wall, cpu = (statistics.median(pair[i] for pair in steps["plain"]) for i in (0, 1))
    for name, pairs in steps.items():
        mine = [statistics.median(pair[i] for pair in pairs) for i in (0, 1)]
        print(
            f"  {name:<34}{mine[0]:>8.2f} s {mine[1]:>8.2f} s of CPU; "
            f"{wall / mine[0]:.2f} of plain speed, {cpu / mine[1]:.2f} by CPU"
        )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--layers", type=int, default=12)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, default=1)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    speeds(given.layers, given.rounds)


if __name__ == "__main__":
    main()
