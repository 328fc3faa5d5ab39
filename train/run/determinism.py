"""`deterministic = true`: torch's deterministic kernels, so that a run on a GPU can be repeated bit for bit.

https://docs.pytorch.org/docs/stable/notes/randomness.html: cuBLAS needs a workspace of fixed size, set in the
environment before CUDA starts, and operations without a deterministic kernel raise. On a CPU all our operations are
deterministic anyway.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from webtext.base.errors import MachineError

_WORKSPACE, _SIZE = (
    "CUBLAS_WORKSPACE_CONFIG",
    ":4096:8",
)  # one of cuBLAS's two sizes: this one costs 24 MiB and no speed


@contextlib.contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Make torch deterministic inside the block if `wanted`. Raises MachineError if it is too late for cuBLAS."""
    if not wanted:
        yield
        return
    if _WORKSPACE not in os.environ and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise MachineError(
            "deterministic = true came too late: CUDA is already in use",
            f"set {_WORKSPACE}={_SIZE} before Python starts",
        )
    os.environ.setdefault(_WORKSPACE, _SIZE)
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
