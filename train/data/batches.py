"""A sampler's batches as a torch dataset. A thread reads them ahead, into pinned memory.

    batches = TokenBatches(Sampler(shards, context=1024, batch_size=8))
    for tokens_bt in batches:                                       # int64 [8, 1025], endless
        tokens_bt = tokens_bt.to("cuda", non_blocking=True)
        state = batches.state_dict()                                # after the batches taken, not those read ahead

It also works in `DataLoader(batches, batch_size=None, num_workers=4, pin_memory=True)`: each worker reads every fourth
batch, and they arrive in the sampler's order. There the caller keeps the state: `sampler.skip(n)` and
`sampler.state_dict()` after n batches.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from webtext.base.errors import ConfigError
from webtext.shards import Sampler


class TokenBatches(IterableDataset[Tensor]):
    """The batches of `sampler`, with up to `prefetch` read ahead.

    Their memory is pinned if there is a GPU, unless `pin_memory` decides otherwise.
    """

    def __init__(self, sampler: Sampler, *, prefetch: int = 2, pin_memory: bool | None = None) -> None:
        if prefetch < 1:
            raise ConfigError(f"prefetch {prefetch}: expected at least 1")
        self.sampler = sampler
        self._prefetch = prefetch
        self._pin_memory = torch.cuda.is_available() if pin_memory is None else pin_memory
        self._taken = sampler.samples_consumed

    def __iter__(self) -> Generator[Tensor]:
        worker = get_worker_info()
        return self._read_ahead() if worker is None else self._share(worker.id, worker.num_workers)

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

    def _share(self, worker: int, n_workers: int) -> Generator[Tensor]:
        self._pin_memory = False  # the DataLoader's own process pins
        self.sampler.skip(worker)
        while True:
            yield self._read()
            self.sampler.skip(n_workers - 1)

    def _read_ahead(self) -> Generator[Tensor]:
        self.sampler.samples_consumed = self._taken
        ready: queue.Queue[tuple[Tensor, int] | BaseException] = queue.Queue(self._prefetch)
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
