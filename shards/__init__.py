"""Token shards: the file format, packing, verifying, and reading them in a deterministic order."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC_NAMES = {
    "TokenShards": "webtext.shards.reader",
    "Sampler": "webtext.shards.sampler",
}
__all__ = ["Sampler", "TokenShards"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_NAMES:
        return getattr(import_module(_PUBLIC_NAMES[name]), name)
    raise AttributeError(f"module 'webtext.shards' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
