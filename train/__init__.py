"""GPT-2: the paper's model, its training on token shards, evaluation, sampling and export.

A public name loads torch when it is first used. Settings and commands work without torch.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from webtext.base.errors import missing_extra

if TYPE_CHECKING:
    from webtext.train.checkpoint.checkpoint import load_model as load_model
    from webtext.train.data.batches import TokenBatches as TokenBatches
    from webtext.train.model.gpt2 import GPT2 as GPT2
    from webtext.train.run.loop import TrainResult as TrainResult
    from webtext.train.run.loop import train_model as train_model
    from webtext.train.settings import TrainSettings as TrainSettings
    from webtext.train.shape import GPT2Config as GPT2Config

# Read by OpenMP when torch is loaded: threads sleep at barriers. On a busy machine, spinning threads take the cores of the
# threads that they wait for, and a toy model trains 13 to 27 times slower (docs/measurements/train.md).
if "GOMP_SPINCOUNT" not in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

_PUBLIC_NAMES = {
    "GPT2": "model.gpt2",
    "GPT2Config": "shape",
    "TokenBatches": "data.batches",
    "TrainResult": "run.loop",
    "TrainSettings": "settings",
    "load_model": "checkpoint.checkpoint",
    "train_model": "run.loop",
}
__all__ = sorted(_PUBLIC_NAMES)  # noqa: PLE0605


@contextlib.contextmanager
def missing_torch_is_an_error() -> Iterator[None]:
    """Turn the failed import of torch or safetensors into an error that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in ("torch", "safetensors"):
            raise missing_extra(str(error.name), "train") from None
        raise


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC_NAMES:
        raise AttributeError(f"module 'webtext.train' has no attribute {name!r}")
    with missing_torch_is_an_error():
        return getattr(import_module(f"webtext.train.{_PUBLIC_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
