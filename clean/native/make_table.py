"""Write a Python rule about characters as a C++ header of tables: make_table.py fold|characters RULE.PY HEADER.HPP.

`fold` is the rule of `clean/dedup/key.py`, `characters` the classes of `clean/rules/characters.py`. CMake runs this
script; whichever Python it is, the tables are the same (`clean/text/unicode.py`).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

BLOCK = 128  # characters per block: equal blocks are stored once
SCRIPT = 8  # entries of `fold` below FIRST_TEXT are SCRIPT * script + kind of an unchanged character
FIRST_TEXT = 64
DROPPED = 4


def main(which: str, rule_file: str, header: str) -> None:
    """Write the header."""
    for name in ("unicode", "unspaced"):  # the rules import them; webtext is not installed yet
        sys.modules[f"webtext.clean.text.{name}"] = _load(Path(__file__).parents[1] / "text" / f"{name}.py")
    unspaced, unicode = sys.modules["webtext.clean.text.unspaced"], sys.modules["webtext.clean.text.unicode"]
    lines = {"fold": fold_lines, "characters": character_lines}[which](_load(Path(rule_file)))
    first = [
        f"// Made by make_table.py from {Path(rule_file).name}; do not edit.",
        "#pragma once",
        "#include <cstdint>",
        "namespace webtext {",
        f'inline constexpr char kTableUnicodeVersion[] = "{unicode.UNICODE_VERSION}";',
        f"inline constexpr uint32_t kTableWordWeight = {unspaced.WORD};",
        *_array("uint32_t", "kLetterWeights", [script.weight for script in unspaced.SCRIPTS]),
        "}  // namespace webtext",
    ]
    Path(header).write_text("\n".join([*first, *lines]) + "\n", encoding="ascii")


def character_lines(characters: ModuleType) -> Iterator[str]:
    """Yield the lines of the table of character classes."""
    index, classes = _blocks(lambda code: characters.class_of(chr(code)))
    names = ("BLANK", "SYMBOL", "LETTER", "TERMINAL", "UNSPACED", "ATTACHED", "PUNCTUATION", "SCRIPT")
    yield "namespace webtext::signals {"
    yield f"inline constexpr uint32_t kClassBlock = {BLOCK};"
    yield f"inline constexpr uint8_t {', '.join(f'k{name.title()} = {getattr(characters, name)}' for name in names)};"
    yield from _array("uint16_t", "kClassIndex", index)
    yield from _array("uint8_t", "kClasses", classes)
    yield "}  // namespace webtext::signals"


def fold_lines(key: ModuleType) -> Iterator[str]:
    """Yield the lines of the fold table: a kind for each unchanged character, or the offset of its folded bytes."""
    texts = bytearray()
    positions: dict[bytes, int] = {}

    def entry(code: int) -> int:
        folded = _folded(key, code)
        if isinstance(folded, int):
            return folded
        if folded not in positions:
            positions[folded] = len(texts)
            texts.extend(bytes([len(folded)]) + folded)
        return positions[folded] + FIRST_TEXT

    index, entries = _blocks(entry)
    yield "namespace webtext::minhash {"
    yield f"inline constexpr uint32_t kFoldBlock = {BLOCK}, kFoldFirstText = {FIRST_TEXT}, kFoldScript = {SCRIPT};"
    yield from _array("uint16_t", "kFoldIndex", index)
    yield from _array("uint32_t", "kFoldEntries", entries)
    yield from _array("uint8_t", "kFoldTexts", texts)
    yield "}  // namespace webtext::minhash"


def _folded(key: ModuleType, code: int) -> int | bytes:
    """Return SCRIPT * script + kind, DROPPED, or the folded bytes, each single or mark preceded by its kind."""
    if 0xD800 <= code < 0xE000:
        return int(key.Kind.BREAK)
    units = key.fold(chr(code))
    if units == chr(code) or units == " ":
        return int(key.kind_of(units)) + SCRIPT * (key.script_of(units) or 0)
    if not units:
        return DROPPED
    marked = (key.Kind.SINGLE, key.Kind.MARK)
    kinds = [(unit, key.kind_of(unit)) for unit in units]
    return b"".join((bytes([kind]) if kind in marked else b"") + unit.encode() for unit, kind in kinds)


def _blocks(entry: Callable[[int], int]) -> tuple[list[int], list[int]]:
    """Return for each block of characters the number of its entries' block, and the entries of all distinct blocks."""
    blocks: dict[tuple[int, ...], int] = {}
    index = []
    for first in range(0, sys.maxunicode + 1, BLOCK):
        block = tuple(entry(code) for code in range(first, first + BLOCK))
        index.append(blocks.setdefault(block, len(blocks)))
    return index, [each for block in blocks for each in block]


def _array(type_: str, name: str, values: Sequence[int]) -> Iterator[str]:
    yield f"inline constexpr {type_} {name}[] = {{"
    for start in range(0, len(values), 24):
        yield ",".join(map(str, values[start : start + 24])) + ","
    yield "};"


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("rule", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load '{path}'")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:4])
