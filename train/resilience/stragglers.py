"""Stragglers: the process that takes longest over its own part of a step, while all others wait for it.

Replicas wait once per step, when the last backward pass exchanges gradients. Everything before that is a process's own
part: reading, and every pass until the last forward one has ended. The rest of the step is the last backward pass and
waiting, which end at the same moment in all processes. Shards and tensor parallel ranks wait within their layers, and
stages wait for each other. There all take as long as the slowest, and their own parts name none. So each process also
reports the speed of a matrix product on its device (`meter.product_flops`), for which it waits for no other. That names
a slow device in every mesh.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from webtext.train.resilience.distributed import World

FACTOR = 1.2
"""A process is slow if it takes this many times the others' median. Less is noise in an ordinary cluster."""


@dataclass(slots=True)
class _Step:
    """Moments of a step: seconds of a clock, or events in a GPU's queue."""

    began: Any
    forwarded: Any = None
    ended: Any = None


class OwnTimes:
    """Measures how long this process takes over its own part of the steps and over entire steps, by the device's clock.

    The forward passes of `stages` are timed. Without stages nothing is, because steps are kept until `compare`.
    """

    def __init__(self, world: World, stages: Collection[nn.Module]) -> None:
        self.world, self._measures = world, len(stages) > 0
        self._steps: list[_Step] = []
        for stage in stages:
            stage.register_forward_hook(self._forwarded)

    def begin(self) -> None:
        """Record that a step begins."""
        if self._measures:
            self._steps.append(_Step(self._now()))

    def end(self) -> None:
        """Record that the step ends, which it does in all processes at once."""
        if self._steps:
            self._steps[-1].ended = self._now()

    def compare(self) -> tuple[list[float], float]:
        """Return each process's own seconds per step, and this one's seconds per entire step, since the last call.

        Every process has to call this.
        """
        steps = [step for step in self._steps if step.forwarded is not None and step.ended is not None]
        self._steps = []
        own = statistics.fmean(self._seconds(step.began, step.forwarded) for step in steps) if steps else 0.0
        whole = statistics.fmean(self._seconds(step.began, step.ended) for step in steps) if steps else 0.0
        return self.world.gather(own), whole

    def _forwarded(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._steps and self._steps[-1].ended is None:  # not in a held-out measurement
            self._steps[-1].forwarded = self._now()

    def _now(self) -> Any:
        if self.world.device.type == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _seconds(self, one: Any, other: Any) -> float:
        if self.world.device.type == "cpu":
            return float(other - one)
        other.synchronize()
        return float(one.elapsed_time(other)) / 1000


def straggler(own: list[float]) -> str | None:
    """Return a warning about the slowest process if it takes `FACTOR` times the others' median, else None.

    >>> straggler([0.2, 0.2, 0.32])
    'rank 2 takes 1.6 times as long as the others over its part of a step (0.320 s against 0.200 s): they wait for it'
    >>> straggler([0.2, 0.23])
    """
    found = _slowest(own)
    if found is None:
        return None
    rank, usual = found
    return (
        f"rank {rank} takes {own[rank] / usual:.1f} times as long as the others over its part of a step "
        f"({own[rank]:.3f} s against {usual:.3f} s): they wait for it"
    )


def slow_device(flops: list[float]) -> str | None:
    """Return a warning about the device whose matrix products take `FACTOR` times the others' median, or None.

    `flops` is the speed of each process's device in FLOP/s.

    >>> slow_device([4e14, 4e14, 2.5e14])
    'the device of rank 2 takes 1.6 times as long as the others over a matrix product (250,000 GFLOP/s): they wait for it'
    """
    seconds = [1 / rate for rate in flops]
    found = _slowest(seconds)
    if found is None:
        return None
    rank, usual = found
    return (
        f"the device of rank {rank} takes {seconds[rank] / usual:.1f} times as long as the others over a matrix "
        f"product ({flops[rank] / 1e9:,.0f} GFLOP/s): they wait for it"
    )


def _slowest(seconds: list[float]) -> tuple[int, float] | None:
    """Return the slowest rank and the others' median, or None if it isn't slow."""
    rank = max(range(len(seconds)), key=seconds.__getitem__)
    others = seconds[:rank] + seconds[rank + 1 :]
    usual = statistics.median(others) if others else 0.0
    return None if usual <= 0 or seconds[rank] < FACTOR * usual else (rank, usual)
