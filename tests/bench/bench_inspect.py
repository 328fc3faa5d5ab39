"""Searching texts: `inspect grep` beside the module regex, and the longest matches of `inspect memorized` beside difflib.

    python tests/bench/bench_inspect.py [DATA]

Reads DATA/corpora/en.txt.xz (DATA defaults to WEBTEXT_TEST_DATA) as documents of 4,000 characters or more. Times are CPU
seconds of one core, the least of 3 runs, with reading the parts. Counts and lengths must be equal.
"""

from __future__ import annotations

import difflib
import itertools
import lzma
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import regex
from arguments import data_folder
from bench_dedup import write

from webtext.app.inspect import grep, memorized
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.workers.journal import Journal
from webtext.clean._minhash import key

T = TypeVar("T")
PATTERNS = (
    grep.Query("package management"),
    grep.Query("debian", ignore_case=True),
    grep.Query(r"\b[Ff]ree\w*\s+software\b", regex=True),
)
TEXTS, WORDS, PAIRS = 500, 150, 200


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Return the least CPU seconds of three calls, and what the function returns."""
    seconds = []
    for _ in range(3):
        started = time.process_time()
        value = function()
        seconds.append(time.process_time() - started)
    return min(seconds), value


def documents(data: Path) -> list[str]:
    """Return the paragraphs of the file in random order, joined to documents."""
    with lzma.open(data / "corpora" / "en.txt.xz", "rt", encoding="utf-8") as file:
        paragraphs = [each for each in file.read().split("\n\n") if each.strip()]
    random.Random(1).shuffle(paragraphs)
    ends = itertools.accumulate(map(len, paragraphs))
    grouped = itertools.groupby(zip(paragraphs, ends, strict=True), key=lambda each: each[1] // 4000)
    return ["\n\n".join(text for text, _ in group) for _, group in grouped]


def count(query: grep.Query, opened: PartSet) -> int:
    """Count with the module regex."""
    batches = (batch for part in opened.parts for batch in opened.batches(part, ["text"]))
    texts = (text for batch in batches for text in batch["text"].to_pylist())
    flags = regex.IGNORECASE if query.ignore_case else 0
    compiled = regex.compile(query.pattern if query.regex else regex.escape(query.pattern), flags)
    return sum(sum(1 for _ in compiled.finditer(text)) for text in texts)


def difflib_longest(text: str, document: str) -> int:
    """Return the words of the longest stretch that both have."""
    a, b = (key(each.encode()).decode().split() for each in (text, document))
    return difflib.SequenceMatcher(None, a, b, autojunk=False).find_longest_match().size


def main() -> None:
    texts = documents(data_folder(__doc__))
    samples = [" ".join(text.split()[:WORDS]) for text in texts[:TEXTS]]
    rows = [(f"{i:06d}", text) for i, text in enumerate(texts[TEXTS:])]
    n_bytes = sum(len(text.encode()) for _, text in rows)
    same = True
    with tempfile.TemporaryDirectory() as folder:
        opened = write(Path(folder), rows)
        name, parts = SetName.of(opened), range(len(opened.parts))
        for query in PATTERNS:
            ours, found = timed(lambda query=query: [grep._search_part(Journal(), (name, i, query, 5)) for i in parts])
            n_found = sum(int(counts[:, grep.COUNTS.index("occurrences")].sum()) for counts, *_ in found)
            theirs, expected = timed(lambda query=query: count(query, opened))
            speeds = f"{n_bytes / 1e6 / ours:.0f} MB/s, regex {n_bytes / 1e6 / theirs:.0f}, ratio {theirs / ours:.1f}"
            print(f"{query.pattern}: {n_found:,} occurrences, {speeds}")
            same &= n_found == expected
        ours, searched = timed(lambda: [memorized._search_part(Journal(), (name, i, samples)) for i in parts])
        matches = [match for of_part, _ in searched for match in of_part]
        n_matched = len({match.text for match in matches})
        print(f"longest matches of {TEXTS} texts: {n_matched} have one, {n_bytes / 1e6 / ours:.0f} MB/s")
    known = dict(rows)
    pairs = [(samples[each.text], known[each.id], len(each.stretch)) for each in matches[:PAIRS]]
    started = time.process_time()
    same &= [difflib_longest(text, document) for text, document, _ in pairs] == [n for *_, n in pairs]
    print(f"difflib compares a text with a document in {(time.process_time() - started) / len(pairs) * 1e3:.1f} ms")
    if not same:
        sys.exit("the results differ")


if __name__ == "__main__":
    main()
