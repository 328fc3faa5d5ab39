"""Reading untrusted JSON within bounds: size, depth, duplicate keys and numbers are checked."""

from __future__ import annotations

import json
from typing import Any

from webtext.base.errors import InputError

MAX_VALUES = 1 << 23
"""Values per file; the largest tokenizer.json in use have two million. Bounds memory: a value takes about 64 bytes."""


def parse_json(data: bytes, place: str) -> dict[str, Any]:
    """Return the JSON object in a file. Raises InputError if there is none, or for repeated keys, NaN and infinity."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise InputError(f"'{place}' has more than {MAX_VALUES:,} JSON values", "expected a tokenizer file")
    try:
        found = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_without_duplicates, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:  # ValueError: bad UTF-8, bad JSON, an int of more than 4,300 digits
        raise InputError(f"'{place}' is not valid JSON: {str(error)[:200]}", "write or download it again") from None
    if not isinstance(found, dict):
        raise InputError(f"'{place}' is a JSON {type(found).__name__}, not an object", "expected a tokenizer file")
    return found


def dump_json(value: Any) -> bytes:
    """Return JSON as bytes, with one value per line."""
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:60]!r} occurs twice in one object")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")
