"""The slowest process is named from times given as data. (test_distributed.py has a run of two.)"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from webtext.train.resilience import stragglers
from webtext.train.resilience.distributed import World
from webtext.train.resilience.stragglers import OwnTimes, slow_device, straggler
from webtext.train.run.trainer import Trainer


@pytest.mark.parametrize(
    ("own", "rank"),
    [
        ([1.0, 1.0, 1.0, 1.0], None),
        ([1.0, 1.19], None),
        ([1.0, 1.2], 1),
        ([2.0, 1.0, 1.0, 1.1], 0),
        ([1.0, 1.3, 0.2, 1.0, 1.0], 1),  # a fast one neither makes the others stragglers nor hides one
        ([0.0, 0.0], None),  # in a run without own parts
        ([1.0], None),
    ],
)
def test_the_slowest_is_named_from_12_times_the_median_of_the_others(own: list[float], rank: int | None) -> None:
    said = straggler(own)
    assert (said is None) if rank is None else (said is not None and said.startswith(f"rank {rank} takes "))


@pytest.mark.parametrize(
    ("flops", "rank"),
    [([4e14] * 8, None), ([4e14, 3.4e14], None), ([4e14, 4e14, 2e14], 2), ([1e11, 2e11], 0), ([4e14], None)],
)
def test_a_device_that_takes_12_times_as_long_over_a_product_is_named(flops: list[float], rank: int | None) -> None:
    said = slow_device(flops)
    assert (
        (said is None) if rank is None else (said is not None and said.startswith(f"the device of rank {rank} takes "))
    )


@pytest.mark.parametrize(
    ("rates", "said"), [([3e9, 1e9], "step 5: the device of rank 1 takes 3.0 times"), ([3e9, 3e9], "")]
)
def test_ranks_that_wait_within_their_layers_are_distinguished_by_their_devices(
    monkeypatch: pytest.MonkeyPatch, rates: list[float], said: str
) -> None:
    """In a mesh of shards, own parts of a step are alike, whichever rank makes them wait."""
    trainer, told, logged = object.__new__(Trainer), [], []
    trainer.world, trainer.step, trainer.dtype = World(0, 2, torch.device("cpu")), 5, torch.float32
    trainer._own_times = OwnTimes(trainer.world, [])
    trainer.console = SimpleNamespace(warn=told.append)
    gathered = iter([[1.0, 1.0], rates])
    monkeypatch.setattr(World, "gather", lambda self, value: next(gathered))
    monkeypatch.setattr(Trainer, "_log", lambda self, row: logged.append(row))
    trainer._compare_processes()
    assert "".join(told).startswith(said)
    assert bool(told) == bool(said)
    assert logged == [{"step": 5, "own_seconds": [1.0, 1.0], "step_seconds": 0.0, "product_flops": rates}]


def test_a_process_own_time_ends_with_its_last_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps by a fake clock: 3 of 10 and 5 of 10 seconds are its own, so 4 of 10."""
    clock = iter([0.0, 1.0, 3.0, 10.0, 20.0, 25.0, 30.0])
    monkeypatch.setattr(stragglers.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(World, "gather", lambda self, value: [value, 2 * value])
    model = nn.Linear(2, 2)
    times = OwnTimes(World(0, 2, torch.device("cpu")), [model])
    for microbatches in (2, 1):
        times.begin()
        for _ in range(microbatches):
            model(torch.zeros(1, 2)).sum().backward()
        times.end()
        model(torch.zeros(1, 2))  # held-out text, not part of a step
    assert times.compare() == ([4.0, 8.0], 10.0)
    assert times.compare() == ([0.0, 0.0], 0.0)


def test_steps_that_nobody_compares_are_not_kept() -> None:
    """With straggler_interval none a run times no stages, or its steps would pile up until its end."""
    times = OwnTimes(World(0, 2, torch.device("cpu")), [])
    for _ in range(3):
        times.begin()
        times.end()
    assert times._steps == []
