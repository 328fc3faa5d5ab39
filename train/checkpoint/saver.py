"""Checkpoints that are written while the run continues.

While the next step computes its gradients, a thread copies the tensors to host memory (staging). Only the update that
would change them waits for that copy. The same thread then writes, syncs, hashes and renames. At most one save is in
progress, because two would need twice the host memory. A failed one raises at the next save or at the end of the run; the
trainer reads `failed` to end it sooner. Why not torch's `async_save`: docs/tried/train.md.
"""

from __future__ import annotations

import copy
import shutil
import threading
from collections import ChainMap
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from webtext.base.storage import make_folder, no_space_is_an_error
from webtext.train.checkpoint import checkpoint as checkpoints
from webtext.train.checkpoint.checkpoint import Checkpoint
from webtext.train.checkpoint.storage import shards_of, share_of, write_pieces
from webtext.train.distributed import HANG_TIMEOUT, World
from webtext.train.host_memory import host_zeros


@dataclass
class CheckpointSaver:
    """Saves one run's checkpoints in the background. Every process has a saver; process 0 publishes."""

    model_dir: Path
    world: World
    _: KW_ONLY
    keep: int | None
    copies: bool = True
    published: Callable[[], None] = lambda: None

    def __enter__(self) -> CheckpointSaver:
        self._buffers: dict[str, Tensor] = {}  # host memory for a save's pieces, reused by the next save
        self._ready: torch.cuda.Event | None = None
        self._staged = threading.Event()
        self._saving: Future[Checkpoint] | None = None
        self._saved: Checkpoint | None = None
        device = self.world.device  # a thread begins with GPU 0 as its own, and would take memory there
        self._thread = ThreadPoolExecutor(1, "checkpoint", torch.get_device_module(device).set_device, (device,))
        # A separate group, because the run communicates during a save; gloo, because the data is in host memory.
        self._group = distributed.new_group(backend="gloo", timeout=HANG_TIMEOUT) if self.world.size > 1 else None
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Wait for the save in progress, and raise its error if nothing else went wrong."""
        with self._thread:
            if error is None:
                self.finish()

    def begin(self, step: int, tensors: dict[str, Tensor], state: Mapping[str, Any]) -> None:
        """Begin to save `tensors`, which may change after `wait_until_staged`, and `state`; the previous save ends first.

        Without `copies`, for tensors that may not fit into memory twice, they may change when they are written.
        """
        self.finish()
        self._staged.clear()
        if self.world.device.type == "cuda":
            self._ready = torch.cuda.current_stream().record_event()
        saved = Checkpoint(checkpoints.checkpoint_path(self.model_dir, step), step, copy.deepcopy(dict(state)))
        self._saving = self._thread.submit(self._save, saved, tensors)

    def wait_until_staged(self) -> None:
        """Wait until the tensors of the save in progress are copied."""
        if self._saving is not None:
            self._staged.wait()

    @property
    def failed(self) -> bool:
        """Whether the save in progress has failed; `finish` raises the error."""
        return self._saving is not None and self._saving.done() and self._saving.exception() is not None

    def finish(self) -> Checkpoint | None:
        """Wait for the save in progress and return the last checkpoint that this run published."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            self._saved = saving.result()
        return self._saved

    def _save(self, saved: Checkpoint, tensors: dict[str, Tensor]) -> Checkpoint:
        temporary, rank = checkpoints.temporary_path(saved.path), self.world.rank
        shards: dict[str, Tensor] = {}

        def prepare() -> dict[str, int]:
            if rank == 0:
                shutil.rmtree(temporary, ignore_errors=True)  # left by a killed run
                make_folder(temporary)
            shards.update(shards_of(tensors))
            return {key: shard.nbytes for key, shard in shards.items()}

        def write() -> dict[str, str]:
            mine = {key: shards[key] for key in share_of(rank, sizes)}
            return write_pieces(temporary, rank, self._copied(mine) if self.copies else mine)

        def publish() -> None:
            if rank == 0:
                checkpoints.publish_checkpoint(saved, dict(ChainMap(*files)))
                checkpoints.prune_checkpoints(saved.path, self.keep)
                self.published()

        try:
            with no_space_is_an_error(str(saved.path)):
                sizes = self.world.together(prepare, self._group)
                files = self.world.together(write, self._group)
                self.world.together(publish, self._group)
        finally:
            self._staged.set()
            if rank == 0:
                shutil.rmtree(temporary, ignore_errors=True)
        return saved

    def _copied(self, pieces: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return copies in host memory, after which the tensors may change. On a GPU the run isn't held up by them."""
        for key, piece in pieces.items():
            if key not in self._buffers:
                self._buffers[key] = host_zeros(piece.shape, piece.dtype, pinned=self._ready is not None)
        copies = {key: self._buffers[key] for key in pieces}
        if self._ready is None:
            for key, piece in pieces.items():  # by numpy, because torch would start a second pool of threads
                target, source = (tensor.flatten().view(torch.uint8).numpy() for tensor in (copies[key], piece))
                np.copyto(target, source)
        else:
            stream = torch.cuda.Stream(self.world.device)  # type: ignore[no-untyped-call]
            stream.wait_event(self._ready)
            with torch.cuda.stream(stream):
                for key, piece in pieces.items():
                    copies[key].copy_(piece, non_blocking=True)
            stream.synchronize()
        self._staged.set()
        return copies
