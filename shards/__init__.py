"""Token shards: the file format, packing, verifying, and reading them in a deterministic order."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webtext.shards.reader import TokenShards as TokenShards
    from webtext.shards.sampling.sampler import Sampler as Sampler
    from webtext.shards.sampling.windows import document_numbers as document_numbers

_PUBLIC_NAMES = {
    "TokenShards": "webtext.shards.reader",
    "Sampler": "webtext.shards.sampling.sampler",
    "document_numbers": "webtext.shards.sampling.windows",
}
__all__ = ["Sampler", "TokenShards", "document_numbers"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_NAMES:
        return getattr(import_module(_PUBLIC_NAMES[name]), name)
    raise AttributeError(f"module 'webtext.shards' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
