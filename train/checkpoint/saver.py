"""Checkpoints that are written while the run continues.

While the next step computes its gradients, a thread copies the tensors to host memory (staging). Only the update that
would change them waits for that copy. The same thread then writes, syncs, hashes and renames. At most one save is in
progress: the next one waits for it. A failed save raises at the next save or at the end of the run; the trainer also
reads `failed`, which ends the run sooner.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from webtext.base.storage import no_space_is_an_error
from webtext.train.checkpoint.checkpoint import (
    Checkpoint,
    checkpoint_path,
    prune_checkpoints,
    publish_checkpoint,
    temporary_path,
)
from webtext.train.checkpoint.storage import PieceWriter
from webtext.train.resilience.distributed import World
from webtext.train.shape import GPT2Config


class CheckpointSaver:
    """Saves one run's checkpoints in the background. Every process has a saver; process 0 publishes."""

    def __init__(
        self,
        model_dir: Path,
        world: World,
        *,
        keep: int | None,
        keep_best: bool,
        copies: bool = True,
        published: Callable[[], None] = lambda: None,
    ) -> None:
        self.model_dir, self.world, self.keep, self.keep_best = model_dir, world, keep, keep_best
        self.published = published
        self._staging = Staging(world.device) if copies else None
        self._staged = threading.Event()
        self._saving: Future[Checkpoint] | None = None
        self._saved: Checkpoint | None = None
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> CheckpointSaver:
        self._exit.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # with one process, on purpose
        self._thread = self._exit.enter_context(ThreadPoolExecutor(1, "checkpoint"))
        # A separate group, because the run communicates during a save; gloo, because the data is in host memory.
        self._group = distributed.new_group(backend="gloo") if self.world.size > 1 else None
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Wait for the save in progress, and raise its error if nothing else went wrong."""
        with self._exit:  # waits for the thread
            if error is None:
                self.finish()

    def begin(self, step: int, config: GPT2Config, tensors: dict[str, Tensor], state: Mapping[str, Any]) -> None:
        """Begin to save `tensors` and `state`, after waiting for the previous save.

        The tensors may change once `wait_until_staged` has returned. With `copies` false it returns when they are
        written, for runs whose tensors may not fit into memory twice.
        """
        self.finish()
        self._staged.clear()
        if self._staging is not None:
            self._staging.begin()
        saved = Checkpoint(checkpoint_path(self.model_dir, step), step, copy.deepcopy(dict(state)))
        self._saving = self._thread.submit(self._save, saved, config, tensors)

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

    def _save(self, saved: Checkpoint, config: GPT2Config, tensors: dict[str, Tensor]) -> Checkpoint:
        temporary = temporary_path(saved.path)

        def publish(files: dict[str, str]) -> None:
            publish_checkpoint(saved.path, saved.step, config, files, saved.state)
            prune_checkpoints(self.model_dir, self.keep, keep_best=self.keep_best)
            self.published()

        writer = PieceWriter(temporary, self.world.rank, self._stage, publish)
        nested: dict[str, dict[str, Tensor]] = {}  # each entry of the outermost dict costs DCP 0.1 ms
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            nested.setdefault(kind, {})[rest] = tensor
        if self.world.is_main:
            shutil.rmtree(temporary, ignore_errors=True)  # left by a killed run
        try:
            with no_space_is_an_error(str(saved.path)):
                try:
                    save(nested, storage_writer=writer, process_group=self._group, no_dist=self.world.size == 1)
                except CheckpointException as error:  # which all processes get
                    raise next(iter(error.failures.values()))[0] from None
        finally:
            self._staged.set()
            if self.world.is_main:
                shutil.rmtree(temporary, ignore_errors=True)
        return saved

    def _stage(self, pieces: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return copies, after which the tensors may change, or the tensors themselves if they aren't copied."""
        if self._staging is None:
            return pieces
        copies = self._staging.copy(pieces)
        self._staged.set()
        return copies


class Staging:
    """Host memory for a save's pieces, reused by the next save; pinned if they come from a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffers: dict[str, Tensor] = {}
        self._ready: torch.cuda.Event | None = None

    def begin(self) -> None:
        """Mark the point in the GPU's queue at which the tensors have the values to save."""
        if self.device.type == "cuda":
            self._ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._ready.record()

    def copy(self, pieces: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return copies in host memory. On a GPU they are made in parallel with the run, after the work at `begin`."""
        for key, piece in pieces.items():
            if key not in self._buffers:
                pinned = self.device.type == "cuda"
                self._buffers[key] = torch.empty(piece.shape, dtype=piece.dtype, pin_memory=pinned)
        copies = {key: self._buffers[key] for key in pieces}
        if self._ready is None:
            for key, piece in pieces.items():  # by numpy, because torch would start a second pool of threads
                np.copyto(_bytes(copies[key]), _bytes(piece.detach()))
            return copies
        torch.cuda.set_device(self.device)  # the current device is per thread
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_event(self._ready)
        with torch.cuda.stream(stream):
            for key, piece in pieces.items():
                copies[key].copy_(piece.detach(), non_blocking=True)
        stream.synchronize()
        return copies


def _bytes(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
