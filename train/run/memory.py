"""Memory of a run: errors and warnings that name a choice that would fit, and reuse of memory that a CPU run frees."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from dataclasses import replace

import torch

from webtext.base.console import Console
from webtext.base.errors import MachineError
from webtext.train.distributed import World
from webtext.train.footprint import GIB, advice, memory_of
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config


@contextlib.contextmanager
def memory_is_an_error(config: GPT2Config, settings: TrainSettings, world: World) -> Iterator[None]:
    """Raise MachineError if a run gets too little memory, with the largest smaller microbatch that should fit."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        shape, on_device = settings.machine.mesh_shape(world.size), replace(settings, device=world.device.type)
        what = f"microbatches of {settings.accumulation(shape.n_data)[0]} sequences do not fit the device's memory"
        choice = advice(config, on_device, shape, memory_bytes(world))
        raise MachineError(what, f"choose {choice}; 'webtext train plan' estimates what a run takes") from None


@contextlib.contextmanager
def batch_memory_is_an_error(what: str, size: int, option: str) -> Iterator[None]:
    """Raise MachineError if a model that is only evaluated gets too little memory for `size` items at once."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        fewer = f"give {option} {size // 2}" if size > 1 else "use a smaller model, or a device with more memory"
        raise MachineError(f"the model and {what} do not fit the device's memory", fewer) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether torch got no memory: an error of its own on a GPU, a RuntimeError that says so on a CPU."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def warn_if_too_large(config: GPT2Config, settings: TrainSettings, world: World, console: Console) -> None:
    """Warn if a run probably needs more memory than its device has: on a CPU the system may kill it silently."""
    shape, on_device = settings.machine.mesh_shape(world.size), replace(settings, device=world.device.type)
    needed, n_bytes = memory_of(config, on_device, shape).total, memory_bytes(world)
    if needed > n_bytes:
        console.warn(
            f"a process is estimated to take {needed / GIB:,.1f} GiB but has {n_bytes / GIB:,.1f}: "
            f"choose {advice(config, on_device, shape, n_bytes)}"
        )


def memory_bytes(world: World) -> int:
    """Return the memory of a process: that of its GPU, or its share of the machine's."""
    if world.device.type == "cuda":
        return int(torch.cuda.get_device_properties(world.device).total_memory)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // max(1, local)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
_NEVER_TRIM, _LARGEST_KEPT = 2**31 - 1, 2**30


def keep_freed_memory() -> bool:
    """Keep freed blocks of up to 1 GiB in this process. Return False if the C library has no such setting.

    By default glibc returns each large block to the system and fetches it again, page by page, zeroed. That took a
    quarter of the time of a 124M model's output layer.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT) and mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM))
