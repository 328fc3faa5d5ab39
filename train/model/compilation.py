"""The setting `compile`: run blocks and loss through torch.compile, which fuses the operations between matrix products.

On a GPU that saves memory traffic, so `auto` compiles there; on a CPU it did not pay off (docs/tried/train.md). All
blocks are alike and share the compiled code, so there is one compilation per microbatch shape. Their activation
checkpointing is compiled with them; hooks of FSDP and the like stay outside.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch

from webtext.base.errors import MachineError
from webtext.train.model.gpt2 import GPT2


def compiles(setting: str, device: torch.device, say: Callable[[str], None] = lambda line: None) -> bool:
    """Return whether to compile blocks: if the setting is 'on', or 'auto' on a GPU that torch can compile for.

    `say` gets a line if 'auto' compiles nothing on a GPU. Raises MachineError if it is 'on' and torch can't compile.
    """
    missing = _missing(device)
    if setting == "on" and missing:
        raise MachineError(f"compile is 'on', but {missing}", "install it, or set compile = 'off'")
    if setting != "auto" or device.type != "cuda":
        return setting == "on"
    if missing:
        say(f"train: not compiled, which is slower: {missing}")
    return not missing


def compile_model(model: GPT2) -> None:
    """Make every block and the loss compile themselves when they are first called."""
    model.is_compiled = True
    for block in model.blocks:
        block.forward = torch.compile(block.forward, dynamic=False)


def _missing(device: torch.device) -> str | None:
    if device.type == "cuda":
        # as torch's own compiler checks it: the package, and a GPU that it compiles for
        if find_spec("triton") is None or torch.cuda.get_device_capability(device) < (7, 0):
            return "torch finds no Triton for this GPU"
        # Triton builds a launcher for its kernels in C, against Python's headers; slim images have neither
        if not os.environ.get("CC") and not any(map(shutil.which, ("gcc", "clang"))):
            return "Triton finds no C compiler (gcc, clang, or CC)"
        header = Path(sysconfig.get_path("include"), "Python.h")
        return None if header.exists() else f"Triton needs '{header}', which Python's development package has"
    compilers = ("g++", "clang++", "c++")
    return None if any(map(shutil.which, compilers)) else f"there is no C++ compiler ({', '.join(compilers)})"
