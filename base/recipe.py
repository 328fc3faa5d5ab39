"""A recipe: all that can change a stage's records, and nothing else. Equal recipes over equal inputs give equal records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What defines a stage's output: its settings, its own code version and the libraries that decide content.

    `code_version` is a constant beside the stage function, raised by hand whenever its output changes.
    Times, hosts, worker counts and engines are no part of a recipe; they go to `run.json`.
    """

    stage: str
    code_version: int
    settings: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The recipe as plain JSON values."""
        return {
            "stage": self.stage,
            "code_version": self.code_version,
            "settings": dict(self.settings),
            "versions": dict(self.versions),
        }

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON form."""
        return sha256_json(self.to_json())


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no blanks, so that equal values are equal bytes.

    >>> canonical_json({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_json(value: Any) -> str:
    """SHA-256 (hex) of `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
