"""Tensors on the host that are exchanged with a device or with files: pinned at their exact size, or mapped."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from webtext.base.errors import MachineError

_PORTABLE = 1  # cudaHostRegisterPortable: pinned for all devices of the process


class HostMemory:
    """Allocates tensors of zeros on the host.

    With `folder`, each tensor is a mapped file there, which the system writes out if memory is short. The files have no
    name, so none remains however the process ends. Their space is reserved when they are created, so a full disk is an
    error then, and not a signal when a page is first written. With `pins`, memory that is copied (but not a file) is pinned
    at its exact size: torch's own is rounded up to a power of two.
    """

    def __init__(self, *, pins: bool = False, folder: Path | None = None) -> None:
        self.pins, self.folder = pins and folder is None, folder

    def zeros(self, shape: Sequence[int], dtype: torch.dtype, *, linked: bool = False) -> Tensor:
        """Return a tensor of zeros; `linked` ones are copied to or from the device. MachineError if it can't be allocated."""
        pins = self.pins and linked
        if self.folder is None and not pins:
            return torch.zeros(shape, dtype=dtype)
        n_bytes = max(1, math.prod(shape)) * dtype.itemsize
        block = mmap.mmap(-1, n_bytes, mmap.MAP_PRIVATE) if self.folder is None else _mapped(self.folder, n_bytes)
        zeros = torch.frombuffer(block, dtype=dtype, count=math.prod(shape)).view(shape)
        if pins:
            _pin(zeros.untyped_storage())
        return zeros


def _pin(block: torch.UntypedStorage) -> None:
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if error := int(runtime.cudaHostRegister(block.data_ptr(), block.nbytes(), _PORTABLE)):
        raise MachineError(
            f"{block.nbytes():,} bytes of host memory can't be locked for the GPU (CUDA error {error})",
            "free some memory, raise 'ulimit -l', or name a folder as offload",
        )
    weakref.finalize(block, runtime.cudaHostUnregister, block.data_ptr()).atexit = False


def _mapped(folder: Path, n_bytes: int) -> mmap.mmap:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, n_bytes)
            mapped = mmap.mmap(file.fileno(), n_bytes)
            # A row is read from end to end, and again only after all others. O_DIRECT was slower (docs/tried/train.md).
            mapped.madvise(mmap.MADV_SEQUENTIAL)
            return mapped
    except OSError as error:
        what = f"'{folder}' can't store {n_bytes:,} bytes of an offloaded model ({error.strerror})"
        raise MachineError(
            what, "free some space, or name a writable folder on another local disk as offload"
        ) from None
