"""Recipes: everything that can change a stage's records, and nothing else.

Equal recipes and equal inputs give equal records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webtext.base.errors import InputError

ELSEWHERE = "choose another --out, or remove what is there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What determines a stage's output: its settings, its code version and the libraries that affect content.

    `code_version` is a constant next to the stage function, raised by hand whenever its output changes.
    Times, hosts, worker counts and engines aren't part of a recipe; they are stored in `run.json`.
    """

    stage: str  # the stage that made it
    code_version: int  # version of the stage's code
    settings: Mapping[str, Any]  # settings that affect records
    versions: Mapping[str, str] = field(default_factory=dict)  # versions of libraries that affect records

    def changes(self, earlier: Mapping[str, Any]) -> list[str]:
        """Name the differences from an earlier recipe in JSON, such as "trafilatura 2.3.1 is now 2.3.2"."""
        before, now = (
            {"code version": each.get("code_version"), **each.get("settings", {}), **each.get("versions", {})}
            for each in (earlier, self.to_json())
        )
        names = [name for name in (now | before) if earlier and before.get(name) != now.get(name)]
        return [f"{name} {str(before.get(name))[:40]} is now {str(now.get(name))[:40]}" for name in names]

    def check_settings(self, earlier: Mapping[str, Any], place: str) -> None:
        """Raise InputError if the output at a place was made with other settings; other versions may replace it."""
        changes = self.changes({**earlier, "versions": self.versions, "code_version": self.code_version})
        if changes:
            raise InputError(
                f"'{place}' was made with other settings: {', '.join(changes)}", f"use the same; or {ELSEWHERE}"
            )

    def to_json(self) -> dict[str, Any]:
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
    """Encode as JSON with sorted keys and without spaces, so that equal values give equal bytes.

    >>> canonical_json({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_json(value: Any) -> str:
    """Return the SHA-256 (hex) of `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def with_check(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with `check` added, the digest of its other keys, by which `without_check` finds damage."""
    return {**value, "check": sha256_json(value)}


def without_check(value: Mapping[str, Any]) -> dict[str, Any]:
    """Invert `with_check`; ValueError if the digest is missing or another."""
    rest = dict(value)
    check = rest.pop("check", None)
    if check != sha256_json(rest):
        raise ValueError("changed since it was written")
    return rest
