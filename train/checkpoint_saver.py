"""Checkpoints of a run that goes on while they are written.

The next step computes its gradients while a thread copies the tensors to host memory (staging); only the update that would
change them waits for that copy. The same thread then writes, syncs, hashes and renames. One save is under way at most: the
next waits for it. A save that fails is told at the next one, or at the end, or by `failed`, which ends the run sooner.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from webtext.base.storage import no_space_is_an_error
from webtext.train.checkpoint import (
    Checkpoint,
    checkpoint_path,
    prune_checkpoints,
    publish_checkpoint,
    temporary_path,
)
from webtext.train.checkpoint_storage import PieceWriter
from webtext.train.distributed import World
from webtext.train.shape import GPT2Config


class CheckpointSaver:
    """Saves one run's checkpoints in the background; every process has one, and process 0 publishes."""

    def __init__(
        self, model_dir: Path, world: World, *, keep: int | None, keep_best: bool, copies: bool = True
    ) -> None:
        self.model_dir, self.world, self.keep, self.keep_best = model_dir, world, keep, keep_best
        self._staging = Staging(world.device) if copies else None
        self._staged = threading.Event()
        self._saving: Future[Checkpoint] | None = None
        self._saved: Checkpoint | None = None

    def __enter__(self) -> CheckpointSaver:
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # of one process, and meant so
            self._thread = stack.enter_context(ThreadPoolExecutor(1, "checkpoint"))
            # A group of its own, as the run's processes talk while they save; gloo, as they talk of what host memory holds.
            self._group = distributed.new_group(backend="gloo") if self.world.size > 1 else None
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the save under way; its own error counts where nothing else went wrong."""
        try:
            if error is None:
                self.finish()
            elif self._saving is not None:
                wait([self._saving])
        finally:
            self._exit.close()

    def begin(self, step: int, config: GPT2Config, tensors: dict[str, Tensor], state: Mapping[str, Any]) -> None:
        """Save `tensors`, which may change when `wait_until_staged` has returned, and `state`; waits for the save before.

        With `copies` false that is when they are written: what a run does whose tensors may not fit into memory twice.
        """
        self.finish()
        self._staged.clear()
        if self._staging is not None:
            self._staging.begin()
        saved = Checkpoint(checkpoint_path(self.model_dir, step), step, copy.deepcopy(dict(state)))
        self._saving = self._thread.submit(self._save, saved, config, tensors)

    def wait_until_staged(self) -> None:
        """Wait until the tensors of the save under way are copied."""
        if self._saving is not None:
            self._staged.wait()

    @property
    def failed(self) -> bool:
        """Whether the save under way has failed: `finish` raises why."""
        return self._saving is not None and self._saving.done() and self._saving.exception() is not None

    def finish(self) -> Checkpoint | None:
        """Wait for the save under way; returns the last one that this run published."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            self._saved = saving.result()
        return self._saved

    def _save(self, saved: Checkpoint, config: GPT2Config, tensors: dict[str, Tensor]) -> Checkpoint:
        temporary = temporary_path(saved.path)

        def publish(files: dict[str, str]) -> None:
            publish_checkpoint(saved.path, saved.step, config, files, saved.state)
            prune_checkpoints(self.model_dir, self.keep, keep_best=self.keep_best)

        writer = PieceWriter(temporary, self.world.rank, self._stage, publish)
        nested: dict[str, dict[str, Tensor]] = {}  # to DCP each entry of the outermost dict costs 0.1 ms
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            nested.setdefault(kind, {})[rest] = tensor
        if self.world.is_main:
            shutil.rmtree(temporary, ignore_errors=True)  # of a run that was killed
        try:
            with no_space_is_an_error(str(saved.path)), _cause_alone():
                save(nested, storage_writer=writer, process_group=self._group, no_dist=self.world.size == 1)
        finally:
            self._staged.set()
            if self.world.is_main:
                shutil.rmtree(temporary, ignore_errors=True)
        return saved

    def _stage(self, pieces: dict[str, Tensor]) -> dict[str, Tensor]:
        """Copies, after which the tensors may change; or the tensors themselves, which may when all is written."""
        if self._staging is None:
            return pieces
        copies = self._staging.copy(pieces)
        self._staged.set()
        return copies


@contextlib.contextmanager
def _cause_alone() -> Iterator[None]:
    """The error of whichever process failed, in place of DCP's account of it: all processes are told."""
    try:
        yield
    except CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from None


class Staging:
    """Host memory for one save's pieces, kept from save to save: pinned where they come from a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffers: dict[str, Tensor] = {}
        self._ready: torch.cuda.Event | None = None

    def begin(self) -> None:
        """Called where the tensors hold what is to be saved."""
        if self.device.type == "cuda":
            self._ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._ready.record()

    def copy(self, pieces: dict[str, Tensor]) -> dict[str, Tensor]:
        """Copies in host memory."""
        pinned = self.device.type == "cuda"
        for key, piece in pieces.items():
            if key not in self._buffers:
                self._buffers[key] = torch.empty(piece.shape, dtype=piece.dtype, pin_memory=pinned)
        with self._own_stream():
            for key, piece in pieces.items():
                _copy(self._buffers[key], piece.detach())
        return {key: self._buffers[key] for key in pieces}

    @contextlib.contextmanager
    def _own_stream(self) -> Iterator[None]:
        """On a GPU, beside the run's own work: after what was queued at `begin`; at the end all is copied."""
        if self._ready is None:
            yield
            return
        torch.cuda.set_device(self.device)  # each thread has its own
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_event(self._ready)
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()


def _copy(target: Tensor, source: Tensor) -> None:
    if source.device.type == "cpu":  # by numpy: torch would start a second pool of threads beside the run's
        np.copyto(_bytes(target), _bytes(source))
    else:
        target.copy_(source, non_blocking=True)


def _bytes(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
