"""Divide the machine among runs: one GPU each, or equal shares of the cores, as many as fit into memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import cycle, islice

from webtext.base.errors import ConfigError
from webtext.base.workers.engine import available_cores
from webtext.train.experiments.side_by_side import Slot
from webtext.train.mesh import MeshShape
from webtext.train.plan.footprint import memory_on
from webtext.train.settings import TrainSettings

MEMORY_RATIO = 0.8
"""Share of the machine's memory that runs may take by plan; plans don't count the libraries."""
PROCESS_BYTES = 400 << 20
"""Memory of a process that has loaded torch, before it has a model (about this with torch 2.13 on Linux)."""


def slots_for(
    settings: Sequence[TrainSettings], vocab_sizes: Sequence[int], side_by_side: int | None = None
) -> list[Slot]:
    """Return slots for runs with these settings, at most one for each run; `side_by_side` overrides their number.

    If a run would use a GPU, there is one slot per GPU; more than that share them. On a CPU there are as many as
    cores, but fewer if the largest run doesn't fit into memory that often or asks for several `threads`. Cores are
    divided evenly. Finished runs count too, so a resumed run gets the same threads as before.
    """
    if side_by_side is not None and side_by_side < 1:
        raise ConfigError(f"side_by_side is {side_by_side}", "it must be at least 1")
    gpus = _gpus() if any(each.device != "cpu" for each in settings) else []
    if gpus:
        n = min(side_by_side or len(gpus), len(settings))
        return [Slot({"CUDA_VISIBLE_DEVICES": gpu}) for gpu in islice(cycle(gpus), n)]
    cores = available_cores()
    n = side_by_side or min(cores // max(each.machine.threads or 1 for each in settings), _fit(settings, vocab_sizes))
    n = max(1, min(n, len(settings)))
    threads = str(max(1, cores // n))
    return [Slot({"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads})] * n


def _fit(settings: Sequence[TrainSettings], vocab_sizes: Sequence[int]) -> int:
    """Return how many copies of the largest run fit into the machine's memory, at least one."""
    largest = max(
        memory_on(each.config(vocab_size), each, MeshShape(), each.accumulation(1)[0]).total + PROCESS_BYTES
        for each, vocab_size in zip(settings, vocab_sizes, strict=True)
    )
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, int(machine * MEMORY_RATIO) // largest)


def _gpus() -> list[str]:
    """Return the GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES."""
    import torch

    if not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]
