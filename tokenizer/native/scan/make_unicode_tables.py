"""Write `unicode_tables.hpp`: the category of every character in several Unicode versions.

    for version in 14.0.0 15.0.0 15.1.0 16.0.0 17.0.0; do
      pip install --no-deps --target build/unicode/$version unicodedata2==$version     # or a Python of that `unidata_version`
    done
    python tokenizer/native/scan/make_unicode_tables.py build/unicode      # needs tiktoken and tokenizers

Run it by hand and commit the result. The main version is the one that tiktoken 0.14 and tokenizers 0.23 use: both are
tested with every scalar and must agree with its table. The main version is written completely, as lengths of runs;
every other version is written as its differences from its neighbour.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import tiktoken
from tokenizers import Regex, pre_tokenizers

MAIN_VERSION = "16.0.0"
VERSIONS = ("14.0.0", "15.0.0", "15.1.0", "16.0.0", "17.0.0")
N_CODES = 0x110000

# In the order of `Category` in characters.hpp; the index is a category's number. "-" is everything that no pattern
# uses.
CATEGORIES = ("-", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Nd", "N", "P", "S", "space")
ALTERNATING = len(CATEGORIES)  # Lu, Ll, Lu, Ll ...: a third of all runs
ASKED = {r"\s": {"space"}, r"\p{L}": {"Lu", "Ll", "Lt", "Lm", "Lo"}, r"\p{N}": {"Nd", "N"}} | {
    rf"\p{{{name}}}": {name} for name in CATEGORIES if name in ("Lu", "Ll", "Lt", "Lm", "Lo", "M", "Nd", "P", "S")
}
SPACES = [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]

PRINT_CATEGORIES = """
try: import unicodedata2 as data
except ImportError: import unicodedata as data
print(data.unidata_version, *map(data.category, map(chr, range(0x110000))))
"""


def categories(version: str, folder: Path) -> list[int]:
    """Return the category number of every code point, from the `unicodedata` or `unicodedata2` of that version."""
    command = [sys.executable, "-c", PRINT_CATEGORIES]
    env = {"PYTHONPATH": str(folder / version)}
    found, *names = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()
    if found != version:
        raise SystemExit(f"'{folder / version}' has Unicode {found}")
    numbers = {name: number for number, name in enumerate(CATEGORIES)}
    codes = [numbers.get(name, numbers.get(name[0], 0)) for name in names]
    for code in SPACES:  # equal in all versions
        codes[code] = numbers["space"]
    return codes


def check_main_version(codes: list[int]) -> None:
    """Compare the categories with both libraries, for every scalar."""
    one_byte_tokens = {bytes([byte]): byte for byte in range(256)}
    scalars = [code for code in range(N_CODES) if not 0xD800 <= code < 0xE000]
    for pattern, names in ASKED.items():
        expected = [code for code in scalars if CATEGORIES[codes[code]] in names]
        encoding = tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=one_byte_tokens, special_tokens={})
        splitter = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        answers = {
            "tiktoken": [code for code in scalars if encoding.encode_ordinary(chr(code))],
            "tokenizers": [ord(piece) for piece, _ in splitter.pre_tokenize_str("".join(map(chr, scalars)))],
        }
        for library, answer in answers.items():
            if answer != expected:
                differing = sorted(set(answer) ^ set(expected))
                raise SystemExit(f"{library} and Unicode {MAIN_VERSION} disagree about {pattern}: {differing[:9]}")


def runs(codes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield lengths and categories of runs; alternating Lu and Ll count as one run."""
    upper, lower = CATEGORIES.index("Lu"), CATEGORIES.index("Ll")
    plain = [(len(list(group)), category) for category, group in itertools.groupby(codes)]
    place = 0
    while place < len(plain):
        end = place
        while end < len(plain) and plain[end] == (1, (upper, lower)[(end - place) % 2]):
            end += 1
        if end - place > 1:
            yield end - place, ALTERNATING
            place = end
        else:
            yield plain[place]
            place += 1


def differences(of: list[int], against: list[int]) -> Iterator[tuple[int, int]]:
    """Yield where `of` differs from `against`: first code points and packed runs."""
    places = [code for code in range(N_CODES) if of[code] != against[code]]
    for _, group in itertools.groupby(enumerate(places), lambda item: item[1] - item[0]):
        stretch = [code for _, code in group]
        first = stretch[0]
        for length, category in runs(of[code] for code in stretch):
            yield first, packed(length, category)
            first += length


def packed(length: int, category: int) -> int:
    """Return a run as one number."""
    return length * 16 + category


def lines(entries: Iterable[str], width: int = 116) -> Iterator[str]:
    """Join entries to lines."""
    line = "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > width:
            yield line
            line = "   "
        line += f" {entry},"
    yield line


def main(folder: Path) -> None:
    """Write the header next to this file."""
    tables = {version: categories(version, folder) for version in VERSIONS}
    check_main_version(tables[MAIN_VERSION])
    out = [
        "// The category of every character in several Unicode versions. Written by make_unicode_tables.py; do not edit.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        "namespace webtext {",
        "",
        "// clang-format off",
        f"// Unicode {MAIN_VERSION}: runs of code points from 0 on, each as length * 16 + category ({ALTERNATING}: Lu, Ll, ...).",
        "inline constexpr std::uint32_t kRuns[] = {",
        *lines(str(packed(*run)) for run in runs(tables[MAIN_VERSION])),
        "};",
        "",
        "struct Difference {",
        "  std::uint32_t first, run;",
        "};",
        "",
    ]
    main_place = VERSIONS.index(MAIN_VERSION)
    for place, version in enumerate(VERSIONS):
        if place == main_place:
            continue
        neighbour = VERSIONS[place + (1 if place < main_place else -1)]
        out += [
            f"// Differences of Unicode {version} from {neighbour}.",
            f"inline constexpr Difference kDifferences{version.replace('.', '_')}[] = {{",
            *lines(f"{{{first}, {run}}}" for first, run in differences(tables[version], tables[neighbour])),
            "};",
            "",
        ]
    out += ["// clang-format on", "", "}  // namespace webtext"]
    Path(__file__).with_name("unicode_tables.hpp").write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
