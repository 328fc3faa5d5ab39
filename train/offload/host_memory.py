"""Where tensors live that are not on the device: in memory, pinned beside a GPU, or in files, as much as a disk holds."""

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

from webtext.base.errors import EnvironmentError_

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class HostMemory:
    """Makes tensors of zeros on the host.

    With `folder` each is a file there, mapped into memory, which the system writes out where memory is short. The files have
    no name, so that none is left however the process ends, and their space is taken when they are made: a disk that is full
    says so then, and not by a signal when a page is first written.
    """

    def __init__(self, *, pin: bool = False, folder: Path | None = None) -> None:
        self.pin, self.folder = pin and folder is None, folder

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor of zeros; an arena does not count it. EnvironmentError_ where the folder takes no such file."""
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
            mapped.madvise(mmap.MADV_SEQUENTIAL)  # a row is read from end to end, and next when all others were
            return mapped
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise EnvironmentError_(
                f"'{folder}' has no room for {n_bytes:,} bytes of an offloaded model ({error.strerror})",
                "free some space, or name a folder on another disk as offload",
            ) from None
        raise EnvironmentError_(
            f"'{folder}' takes no files of an offloaded model ({error.strerror})",
            "name a folder on a local disk, that may be written, as offload",
        ) from None
