"""Write the table behind `clean/dedup/key.py` as a C++ header: make_fold_table.py KEY.PY HEADER.HPP (run by CMake)."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

BLOCK = 128  # characters per block: blocks that are equal are stored once
FIRST_TEXT = 8  # entries below are kinds of characters that stay as they are; 4 is "dropped"
DROPPED = 4


def main(key_file: str, header: str) -> None:
    """Write the header."""
    key = _load(Path(key_file))
    texts = bytearray()
    positions: dict[bytes, int] = {}
    blocks: dict[tuple[int, ...], int] = {}
    index = []
    for first in range(0, sys.maxunicode + 1, BLOCK):
        block = []
        for code in range(first, first + BLOCK):
            entry = _entry(key, code)
            if isinstance(entry, bytes):
                if entry not in positions:
                    positions[entry] = len(texts)
                    texts += bytes([len(entry)]) + entry
                entry = positions[entry] + FIRST_TEXT
            block.append(entry)
        index.append(blocks.setdefault(tuple(block), len(blocks)))
    entries = [entry for block in blocks for entry in block]
    lines = [
        "// Made by make_fold_table.py from clean/dedup/key.py; do not edit.",
        "#pragma once",
        "#include <cstdint>",
        "namespace webtext::minhash {",
        f'inline constexpr char kUnicodeVersion[] = "{key.UNICODE_VERSION}";',
        f"inline constexpr uint32_t kFoldBlock = {BLOCK}, kFoldFirstText = {FIRST_TEXT};",
        *_array("uint16_t", "kFoldIndex", index),
        *_array("uint32_t", "kFoldEntries", entries),
        *_array("uint8_t", "kFoldTexts", texts),
        "}  // namespace webtext::minhash",
    ]
    Path(header).write_text("\n".join(lines) + "\n", encoding="ascii")


def _entry(key: ModuleType, code: int) -> int | bytes:
    """A kind, DROPPED, or the folded bytes, in which each single or mark follows a byte that says so."""
    if 0xD800 <= code < 0xE000:
        return int(key.Kind.BREAK)
    units = key.fold(chr(code))
    if units == chr(code) or units == " ":
        return int(key.kind_of(units))
    if not units:
        return DROPPED
    marked = (key.Kind.SINGLE, key.Kind.MARK)
    kinds = [(unit, key.kind_of(unit)) for unit in units]
    return b"".join((bytes([kind]) if kind in marked else b"") + unit.encode() for unit, kind in kinds)


def _array(type_: str, name: str, values: Sequence[int]) -> Iterator[str]:
    yield f"inline constexpr {type_} {name}[] = {{"
    for start in range(0, len(values), 24):
        yield ",".join(map(str, values[start : start + 24])) + ","
    yield "};"


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("key", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load '{path}'")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:3])
