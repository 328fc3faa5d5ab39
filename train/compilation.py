"""`compile`: the blocks of a model through torch.compile, which fuses what lies between their matrix products.

On a GPU that saves memory traffic, and `auto` compiles there; on a CPU it did not pay (README, "Tried"). All blocks are alike,
so they share what is compiled: once for the shape of a microbatch. What measures and samples on the way computes as it stands.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

import torch
from torch import nn

from webtext.base.errors import EnvironmentError_


def compiles(setting: str, device: torch.device) -> bool:
    """Whether blocks are compiled: told, or on a GPU for which torch can. EnvironmentError_ where it is told and cannot be."""
    missing = _missing(device)
    if setting == "on" and missing:
        raise EnvironmentError_(f"compile is 'on', and {missing}", "install it, or set compile = 'off'")
    return setting == "on" or (setting == "auto" and device.type == "cuda" and not missing)


def compile_blocks(blocks: nn.ModuleList) -> None:
    """Let every block compile itself when it is first called."""
    for block in blocks:
        block.compile(dynamic=False)


@contextlib.contextmanager
def as_it_stands() -> Iterator[None]:
    """Within, compiled modules compute uncompiled: for shapes that come once."""
    with torch.compiler.set_stance("force_eager"):
        yield


def _missing(device: torch.device) -> str | None:
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return None if has_triton() else "torch finds no Triton for this GPU"
    compilers = ("g++", "clang++", "c++")
    return None if any(map(shutil.which, compilers)) else f"there is no C++ compiler ({', '.join(compilers)})"
