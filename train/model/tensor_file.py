"""Files of tensors, written as safetensors: checkpoints and Hugging Face folders consist of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file. System errors, such as no space left, are raised as OSError."""
    path.touch()
    mode = path.stat().st_mode  # safetensors leaves a file that only its owner may read
    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
        path.chmod(mode)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), str(error), str(path)) from None
