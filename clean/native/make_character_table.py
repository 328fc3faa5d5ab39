"""Write the classes of `clean/rules/characters.py` as a C++ header: make_character_table.py CHARACTERS.PY HEADER.HPP.

CMake runs it, as it runs `make_fold_table.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BLOCK = 128  # characters per block: blocks that are equal are stored once


def main(characters_file: str, header: str) -> None:
    """Write the header."""
    characters = _load(Path(characters_file))
    blocks: dict[tuple[int, ...], int] = {}
    index = []
    for first in range(0, sys.maxunicode + 1, BLOCK):
        block = tuple(characters.class_of(chr(code)) for code in range(first, first + BLOCK))
        index.append(blocks.setdefault(block, len(blocks)))
    names = ("BLANK", "SYMBOL", "LETTER", "TERMINAL")
    constants = ", ".join(f"k{name.title()} = {getattr(characters, name)}" for name in names)
    lines = [
        "// Made by make_character_table.py from clean/rules/characters.py; do not edit.",
        "#pragma once",
        "#include <cstdint>",
        "namespace webtext::signals {",
        f'inline constexpr char kUnicodeVersion[] = "{characters.UNICODE_VERSION}";',
        f"inline constexpr uint32_t kClassBlock = {BLOCK};",
        f"inline constexpr uint8_t {constants};",
        f"inline constexpr uint16_t kClassIndex[] = {{{_rows(index)}}};",
        f"inline constexpr uint8_t kClasses[] = {{{_rows([entry for block in blocks for entry in block])}}};",
        "}  // namespace webtext::signals",
    ]
    Path(header).write_text("\n".join(lines) + "\n", encoding="ascii")


def _rows(values: list[int]) -> str:
    return ",\n".join(",".join(map(str, values[start : start + 32])) for start in range(0, len(values), 32))


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("characters", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load '{path}'")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:3])
