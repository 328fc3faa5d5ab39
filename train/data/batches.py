"""A sampler's batches as a torch dataset. A thread reads them ahead, into pinned memory.

batches = TokenBatches(Sampler(shards, context=1024, batch_size=8))
for tokens_bt in batches:                                       # int64 [8, 1025], endless
    tokens_bt = tokens_bt.to("cuda", non_blocking=True)
    state = batches.state_dict()                                # after the batches taken, not those read ahead
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from webtext.shards import Sampler

AHEAD = 2


class TokenBatches(IterableDataset[Tensor]):
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

    def _read(self) -> Tensor:
        shape = (self.sampler.batch_size, self.sampler.context + 1)
        # Torch's cache of pinned memory waits for pending copies before it reuses a block.
        batch = torch.empty(shape, dtype=torch.int64, pin_memory=self._pin_memory)
        self.sampler.fill(batch.numpy())
        return batch

    def __iter__(self) -> Generator[Tensor]:
        self.sampler.samples_consumed = self._taken
        ready: queue.Queue[tuple[Tensor, int] | BaseException] = queue.Queue(AHEAD)
        stopped = threading.Event()

        def run() -> None:
            while not stopped.is_set():
                try:
                    ready.put((self._read(), self.sampler.samples_consumed))
                except BaseException as error:  # noqa: BLE001 - raised again where the batch is taken
                    ready.put(error)
                    return

        thread = threading.Thread(target=run, name="webtext-batches", daemon=True)
        thread.start()
        try:
            while True:
                found = ready.get()
                if isinstance(found, BaseException):
                    raise found
                batch, self._taken = found
                yield batch
        finally:
            stopped.set()
            while thread.is_alive():
                with contextlib.suppress(queue.Empty):
                    ready.get_nowait()
                thread.join(0.01)
            self.sampler.samples_consumed = self._taken
