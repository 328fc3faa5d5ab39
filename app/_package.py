"""webtext: rebuild WebText from the links people voted for, and pretrain GPT-2 on it.

Public names are imported on first use, so that `import webtext` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC_NAMES = {
    "Tokenizer": "webtext.tokenizer",
    "TokenShards": "webtext.shards",
    "Sampler": "webtext.shards",
    "GPT2": "webtext.train",
    "GPT2Config": "webtext.train",
    "load_model": "webtext.train",
    "open": "webtext.app.opened_build",
}
__all__ = ["__version__", *sorted(_PUBLIC_NAMES)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_NAMES:
        return getattr(import_module(_PUBLIC_NAMES[name]), name)
    raise AttributeError(f"module 'webtext' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
