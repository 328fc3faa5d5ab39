"""A simulated device: host memory with a limit in bytes, for testing offloading without a GPU.

with Arena(64 << 20) as arena:
    model = GPT2(config)            # every tensor made here counts until it is freed
arena.peak_bytes
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


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
