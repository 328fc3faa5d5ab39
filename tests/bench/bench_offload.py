"""Offloading: the largest model that fits a device's memory, and a step's time compared with the plain run's.

    python tests/bench/bench_offload.py --budget-mib 64 --rounds 5 --layers 6

On a CPU offloading gains nothing. Printed are the overhead of moving layers, and what fits into a simulated device
(`tests/train/simulated_device.py`). The peers are plain runs, with and without checkpointing. Offloaders of other
libraries (FSDP2's CPUOffloadPolicy, DeepSpeed's ZeRO-3 Offload, autograd.graph.save_on_cpu, accelerate's hooks) move
nothing if the device is the CPU, so a comparison needs a GPU; this bench doesn't make it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from webtext.train import GPT2, GPT2Config, TrainSettings
from webtext.train.model.loss import WindowRules
from webtext.train.offload.engine import HostOptimizer, fit
from webtext.train.offload.host import HostMemory
from webtext.train.offload.offloaded import OffloadedModel
from webtext.train.offload.rows import Link
from webtext.train.optimizer.optimizer import make_optimizer
from webtext.train.optimizer.update import gradient_norm, update

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
from simulated_device import SimulatedDevice  # noqa: E402

CPU, META = torch.device("cpu"), torch.device("meta")
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
        self.model.activation_checkpointing = "full" if checkpoints else "none"
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
        self.model = OffloadedModel(made_model(n_layer), Link(CPU), torch.float32, WindowRules(), None)
        self.model.group = MICROBATCHES
        parameters = dict(self.model.model.named_parameters())
        self.optimizer = HostOptimizer(parameters, SETTINGS, HostMemory())

    def step(self, tokens: list[Tensor]) -> float:
        loss = self.model.forward_backward(tokens)
        norm = gradient_norm(self.model.model)
        self.model.update(lambda layer: self.update(layer, norm))
        return float(loss)

    def update(self, layer: int, norm: Tensor) -> None:
        update(self.optimizer.of_layer[layer], norm, 1.0, torch.zeros(()))
        self.model.refresh(layer)


def most_layers(fits: Callable[[int], bool]) -> int:
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def on_device(n: int) -> list[Tensor]:
    return [torch.empty(SEQUENCES, SHAPE.context + 1, dtype=torch.long, device=META) for _ in range(n)]


def plain_fits(budget: int, checkpoints: bool) -> Callable[[int], bool]:
    """One step's gradients and AdamW's two moments, beside the parameters."""

    def fits(n_layer: int) -> bool:
        model = GPT2(replace(SHAPE, n_layer=n_layer))
        model.activation_checkpointing = "full" if checkpoints else "none"
        try:
            with SimulatedDevice(budget):
                model.to_empty(device=META)
                moments = [torch.empty_like(p) for p in model.parameters() for _ in range(2)]
                tokens_bt = on_device(1)[0]
                model.loss(tokens_bt[:, :-1], tokens_bt[:, 1:]).backward()  # type: ignore[no-untyped-call]
                del moments
        except torch.OutOfMemoryError:
            return False
        return True

    return fits


def largest(budget: int, n_layer: int) -> None:
    print(
        f"\nlargest model in a device of {budget / 2**20:.0f} MiB, microbatches of {SEQUENCES} x {SHAPE.context} tokens"
    )
    for name, checkpoints in (("plain", False), ("plain, activation checkpointing", True)):
        n = most_layers(plain_fits(budget, checkpoints))
        print(f"  {name:<34}{n:>6} layers {replace(SHAPE, n_layer=max(1, n)).n_parameters / 1e6:>8.1f} M parameters")
    model = made_model(n_layer)
    with SimulatedDevice(budget) as device:
        offloaded = OffloadedModel(model, Link(META, device), torch.float32, WindowRules(), None)
        fit(offloaded, on_device(1)[0], MICROBATCHES, device.capacity, lambda: device.peak_bytes)
        offloaded.forward_backward(on_device(MICROBATCHES))
    print(
        f"  {'offloaded':<34}{n_layer:>6} layers {model.config.n_parameters / 1e6:>8.1f} M parameters, "
        f"{device.peak_bytes / 2**20:.1f} MiB "
        f"(group {offloaded.group}, window {offloaded.window.size}); limited by host memory only"
    )


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget-mib", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sections", default="speed,largest")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sections = {
        "speed": lambda: speeds(options.layers, options.rounds),
        "largest": lambda: largest(options.budget_mib << 20, 4 * options.layers),
    }
    for name in options.sections.split(","):
        sections[name]()


if __name__ == "__main__":
    main()
