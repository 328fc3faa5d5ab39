"""Tensors that are not on the device: in host memory, pinned if there is a GPU, or in files."""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from webtext.base.errors import MachineError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class HostMemory:
    """Allocates tensors of zeros on the host.

    With `folder`, each tensor is a file there, mapped into memory, which the system writes out if memory is short. The
    files have no name, so none remains however the process ends. Their space is reserved when they are created, so a
    full disk is an error then, and not a signal when a page is first written.
    """

    def __init__(self, *, pin: bool = False, folder: Path | None = None) -> None:
        self.pin, self.folder = pin and folder is None, folder

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a tensor of zeros, which an arena doesn't count. MachineError if the file can't be created."""
        with _disable_current_modes():
            if self.folder is None:
                return torch.zeros(*shape, dtype=dtype, pin_memory=self.pin)
            n_bytes = max(1, math.prod(shape)) * dtype.itemsize
            return torch.frombuffer(_mapped(self.folder, n_bytes), dtype=dtype, count=math.prod(shape)).view(*shape)


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
        if error.errno in _NO_SPACE:
            raise MachineError(
                f"'{folder}' has no room for {n_bytes:,} bytes of an offloaded model ({error.strerror})",
                "free some space, or name a folder on another disk as offload",
            ) from None
        raise MachineError(
            f"'{folder}' can't store files of an offloaded model ({error.strerror})",
            "name a writable folder on a local disk as offload",
        ) from None
