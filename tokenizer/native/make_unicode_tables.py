"""Write `unicode_tables.hpp`: which characters are letters, numbers and white space, as tiktoken and HF tokenizers see them.

    python tokenizer/native/make_unicode_tables.py        # needs tiktoken and tokenizers; run by hand, the result is committed

The ranges are asked of both libraries character by character and must agree, so that pieces equal theirs for every
Unicode scalar. tiktoken 0.14 and tokenizers 0.23 both know Unicode 16.0 (141,028 letters, 1,911 numbers).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import tiktoken
from tokenizers import Regex, pre_tokenizers

UNICODE_VERSION = "16.0.0"
CLASSES = {"letter": (r"\p{L}", 141_028), "number": (r"\p{N}", 1_911), "space": (r"\s", 25)}
SCALARS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
RANGES_PER_LINE = 6


def members(pattern: str) -> list[int]:
    """The code points that `pattern` matches, by both libraries."""
    one_byte_tokens = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=one_byte_tokens, special_tokens={})
    by_tiktoken = [code for code in SCALARS if encoding.encode_ordinary(chr(code))]
    splitter = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    by_tokenizers = [ord(piece) for piece, _ in splitter.pre_tokenize_str("".join(map(chr, SCALARS)))]
    if by_tiktoken != by_tokenizers:
        raise SystemExit(f"tiktoken and tokenizers disagree about {pattern}")
    return by_tiktoken


def ranges(codes: list[int]) -> list[tuple[int, int]]:
    """Consecutive code points as (first, last)."""
    breaks = [index for index, (left, right) in enumerate(pairwise(codes)) if right != left + 1]
    firsts = [codes[0], *(codes[index + 1] for index in breaks)]
    lasts = [*(codes[index] for index in breaks), codes[-1]]
    return list(zip(firsts, lasts, strict=True))


def main() -> None:
    """Probe the three classes and write the header beside this file."""
    lines = [
        "// Letters, numbers and white space of Unicode. Written by make_unicode_tables.py; do not edit.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        "namespace webtext {",
        "",
        f'inline constexpr char kUnicodeVersion[] = "{UNICODE_VERSION}";',
        "",
        "struct CodeRange {",
        "  std::uint32_t first, last;",
        "};",
        "",
        "// clang-format off",
    ]
    for name, (pattern, expected) in CLASSES.items():
        codes = members(pattern)
        if len(codes) != expected:
            raise SystemExit(f"{len(codes):,} characters match {pattern}, not {expected:,}: another Unicode version")
        entries = [f"{{{first:#x}, {last:#x}}}," for first, last in ranges(codes)]
        lines.append(f"inline constexpr CodeRange k{name.title()}Ranges[] = {{")
        for start in range(0, len(entries), RANGES_PER_LINE):
            lines.append("    " + " ".join(entries[start : start + RANGES_PER_LINE]))
        lines += ["};", ""]
    lines += ["// clang-format on", "", "}  // namespace webtext"]
    Path(__file__).with_name("unicode_tables.hpp").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
