"""A sampler's endless batches, int64 [b, t + 1]. A thread reads them ahead, into pinned memory.

`state_dict` is the state after the batches taken, not those read ahead; an error is raised where its batch is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from webtext.shards import Sampler

AHEAD = 2  # one is taken by the step while the other is read


class TokenBatches:
    """The batches of `sampler`, of which a thread reads AHEAD; `pin_memory` is for copies to a GPU."""

    def __init__(self, sampler: Sampler, *, pin_memory: bool = False) -> None:
        self.sampler, self._pin_memory = sampler, pin_memory
        self._taken = sampler.samples_consumed

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's state after the last batch that was taken."""
        return self.sampler.state_dict() | {"samples_consumed": self._taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state` in the next iteration. Raises InputError if it belongs to another order."""
        self.sampler.load_state_dict(state)
        self._taken = self.sampler.samples_consumed

    def _read(self) -> tuple[Tensor, int]:
        shape = (self.sampler.batch_size, self.sampler.context + 1)
        # Torch's cache of pinned memory waits for pending copies before it reuses a block.
        batch = torch.empty(shape, dtype=torch.int64, pin_memory=self._pin_memory)
        self.sampler.fill(batch.numpy())
        return batch, self.sampler.samples_consumed

    def __iter__(self) -> Generator[Tensor]:
        self.sampler.samples_consumed = self._taken
        thread = ThreadPoolExecutor(1, "webtext-batches")
        try:
            ready = deque(thread.submit(self._read) for _ in range(AHEAD))
            while True:
                batch, self._taken = ready.popleft().result()
                ready.append(thread.submit(self._read))
                yield batch
        finally:
            thread.shutdown(cancel_futures=True)
