"""The device memory of an offloaded run: how much of a GPU it uses, and how much of a model is there at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch

from webtext.base.errors import ConfigError, MachineError
from webtext.train.offload.host import HostMemory
from webtext.train.offload.offloaded import OffloadedModel
from webtext.train.resilience.distributed import World
from webtext.train.settings import TrainSettings

GIB = 2**30
USED_RATIO = 0.95
"""Share of the memory that a run is fitted to: the allocator's blocks don't fill it without gaps."""
INPUTS_PER_MICROBATCH = 3
"""Tensors [b, t, c] in a backward pass: this layer's input, the one before's, and the gradient of the output."""


def limit_memory(device: torch.device, settings: TrainSettings) -> int:
    """Limit torch's allocator to the memory of a GPU that `settings` allow; return the bytes to use of it."""
    total = int(torch.cuda.get_device_properties(device).total_memory)
    given = settings.machine.device_memory_gib
    limit = total if given is None else int(given * GIB)
    torch.cuda.set_per_process_memory_fraction(limit / total, device)
    torch.cuda.reset_peak_memory_stats(device)
    return int(USED_RATIO * limit)


def fit(model: OffloadedModel, tokens_bt: torch.Tensor, n: int, capacity: int, peak_bytes: Callable[[], int]) -> None:
    """Set `model.group` and its window so that n microbatches like `tokens_bt`, [b, t + 1], fit into `capacity` bytes.

    More microbatches come first, because a layer that is loaded serves all of a group. The window gets the rest: layers
    that are still loaded where a step turns back need no second load. A trial step measures what one microbatch and two
    layers take; it draws random numbers and sets gradients. Raises torch.OutOfMemoryError if these don't fit.
    """
    model.group = 1
    model.resize_window(2)
    model.forward_backward([tokens_bt] * min(2, n))  # the second arrives while gradients leave
    free = max(0, capacity - peak_bytes())
    n_inputs = tokens_bt.shape[0] * (tokens_bt.shape[1] - 1) * model.model.config.n_embd
    more = INPUTS_PER_MICROBATCH * n_inputs * model.dtype.itemsize
    most = min(n, 1 + free // more)
    model.group = math.ceil(n / math.ceil(n / most))
    free -= (model.group - 1) * more
    model.resize_window(2 + free // model.layers.copies[0].nbytes)


def check_offload(settings: TrainSettings, world: World) -> None:
    """Raise ConfigError or MachineError for settings that can't be offloaded, before anything is written."""
    given = settings.machine.device_memory_gib
    if given is not None and world.device.type == "cpu":
        raise ConfigError(
            f"device_memory_gib is {given} and the device is the CPU, whose memory is the host's",
            "leave it out, or train on a GPU: on a CPU offloading saves nothing",
        )
    if given is not None and given * GIB > (total := torch.cuda.get_device_properties(world.device).total_memory):
        raise MachineError(f"device_memory_gib is {given}, but the GPU has {total / GIB:.1f}", "give less")
    if settings.machine.offload_folder is not None:
        HostMemory(folder=Path(settings.machine.offload_folder)).zeros((1,), torch.float32)
