"""Tensors on the host that are copied to or from a device: pinned at their exact size for a GPU."""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from webtext.base.errors import MachineError

_PORTABLE = 1  # cudaHostRegisterPortable: pinned for all devices of the process


def host_zeros(shape: Sequence[int], dtype: torch.dtype, *, pinned: bool) -> Tensor:
    """Return a tensor of zeros. torch would round a pinned one up to a power of two. MachineError if it can't be pinned."""
    if not pinned:
        return torch.zeros(shape, dtype=dtype)
    memory = mmap.mmap(-1, max(1, math.prod(shape)) * dtype.itemsize, mmap.MAP_PRIVATE)
    zeros = torch.frombuffer(memory, dtype=dtype, count=math.prod(shape)).view(shape)
    block, runtime = zeros.untyped_storage(), torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if error := int(runtime.cudaHostRegister(block.data_ptr(), block.nbytes(), _PORTABLE)):
        raise MachineError(
            f"{block.nbytes():,} bytes of host memory can't be locked for the GPU (CUDA error {error})",
            "free some memory, or raise 'ulimit -l'",
        )
    weakref.finalize(block, runtime.cudaHostUnregister, block.data_ptr()).atexit = False
    return zeros
