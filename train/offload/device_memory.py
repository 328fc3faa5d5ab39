"""The device memory of an offloaded run: a share of a GPU, or an arena of host memory instead of one.

with Arena(64 << 20) as arena:
    model = GPT2(config)  # every tensor made here counts until it is freed
arena.peak_bytes
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from webtext.base.errors import ConfigError, MachineError
from webtext.train.offload.host_memory import HostMemory
from webtext.train.resilience.distributed import World
from webtext.train.settings import TrainSettings


class Arena(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which an operation whose results don't fit into `capacity` bytes raises torch.OutOfMemoryError.

    Memory that was allocated outside is the host's: it may be read and written, and doesn't count. Memory that an
    operation uses internally isn't seen.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = capacity
        self.used_bytes = 0
        self.peak_bytes = 0
        self._live: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        before = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **kwargs)
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.device.type != "meta":
                storage = leaf.untyped_storage()
                if storage._cdata not in before and storage._cdata not in self._live:
                    self._hold(storage)
        return result

    def within(self) -> Arena:
        """Return the arena itself, as a context."""
        return self

    def _hold(self, storage: torch.UntypedStorage) -> None:
        n_bytes, key = storage.nbytes(), storage._cdata
        if self.used_bytes + n_bytes > self.capacity:
            raise torch.OutOfMemoryError(
                f"{n_bytes:,} bytes do not fit: {self.used_bytes:,} of {self.capacity:,} bytes are in use"
            )
        self._live[key] = n_bytes
        self.used_bytes += n_bytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        weakref.finalize(storage, self._free, key).atexit = False

    def _free(self, key: int) -> None:
        self.used_bytes -= self._live.pop(key)


GIB = 2**30


class DeviceMemory(Protocol):
    """A limit and a peak in bytes; all work on the device is done in the context `within`."""

    capacity: int

    @property
    def peak_bytes(self) -> int: ...  # noqa: D102 - see above

    def within(self) -> AbstractContextManager[Any]: ...  # noqa: D102 - see above


class CudaMemory:
    """`capacity` bytes of a GPU; torch's allocator rejects more."""

    def __init__(self, device: torch.device, capacity: int | None) -> None:
        total = int(torch.cuda.get_device_properties(device).total_memory)
        self.device, self.capacity = device, capacity or total
        if capacity is not None:
            torch.cuda.set_per_process_memory_fraction(capacity / total, device)
        torch.cuda.reset_peak_memory_stats(device)

    @property
    def peak_bytes(self) -> int:
        """Peak of the allocator's reserved memory, since that counts against the capacity."""
        return torch.cuda.max_memory_reserved(self.device)

    def within(self) -> AbstractContextManager[None]:
        """Return a null context: the allocator always enforces the limit."""
        return contextlib.nullcontext()


def device_memory(settings: TrainSettings, device: torch.device) -> DeviceMemory:
    """Return the memory that `settings` allow an offloaded run on `device`."""
    given = settings.machine.device_memory_gib
    capacity = None if given is None else int(given * GIB)
    if device.type == "cuda":
        return CudaMemory(device, capacity)
    assert capacity is not None, "rejected by check_offload"
    return Arena(capacity)


def check_offload(settings: TrainSettings, world: World) -> None:
    """Raise ConfigError or MachineError for settings that can't be offloaded, before anything is written."""
    if settings.machine.offload is None:
        return
    given = settings.machine.device_memory_gib
    if world.device.type == "cpu" and given is None:
        raise ConfigError(
            f"offload is '{settings.machine.offload}' and the device is the CPU, whose memory is the host's",
            "give device_memory_gib, for an arena of that size instead of a GPU, or leave out offload",
        )
    if world.device.type == "cuda" and given is not None:
        total = int(torch.cuda.get_device_properties(world.device).total_memory)
        if given * GIB > total:
            raise MachineError(f"device_memory_gib is {given}, but the GPU has {total / GIB:.1f}", "give less")
    if settings.machine.offload_folder is not None:
        HostMemory(folder=Path(settings.machine.offload_folder)).zeros((1,), torch.float32)
