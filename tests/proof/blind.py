"""Grade documents of both corpora without knowing whose they are: `python tests/proof/blind.py OUT [--grades FILE]`.

Writes forty documents of each corpus, whole, as OUT/blind/NN.txt, in an order that says nothing; key.json has whose each is.
A reader who hasn't opened it writes FILE: a line `NN GRADE` per document, of clean (prose that one would read), usable (text
with remains of its page, or tables and code) and junk. With FILE, prints how many of each grade a corpus has.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections import Counter
from pathlib import Path

from shape import CORPORA, OWN
from verdict import documents, rank

GRADES = ("clean", "usable", "junk")


def write(out: Path, n: int = 40) -> int:
    """Write the documents, chosen and ordered by hash, and the key; return how many."""
    folder, chosen = out / "blind", []
    folder.mkdir(exist_ok=True)
    for name in OWN:
        some = heapq.nsmallest(n, documents(out / CORPORA[name]), key=lambda document: rank(document[0]))
        chosen += [(rank(f"{name} {url}"), name, url, text) for url, text in some]
    key = {}
    for number, (_, name, url, text) in enumerate(sorted(chosen)):
        (folder / f"{number:02}.txt").write_text(text, encoding="utf-8")
        key[f"{number:02}"] = [name, url]
    (folder / "key.json").write_text(json.dumps(key, indent=1))
    return len(key)


def table(key: dict[str, list[str]], grades: str) -> str:
    """Return a row per corpus; ValueError unless every document has one known grade."""
    given = dict(line.split() for line in grades.splitlines() if line.strip())
    if given.keys() != key.keys() or not set(given.values()) <= set(GRADES):
        raise ValueError(f"expected a line `NN GRADE` for {len(key)} documents, of {', '.join(GRADES)}")
    counts = Counter((key[number][0], grade) for number, grade in given.items())
    rows = [f"| {' | '.join([name, *(str(counts[name, grade]) for grade in GRADES)])} |" for name in OWN]
    return "\n".join([f"| | {' | '.join(GRADES)} |", "|---" * (len(GRADES) + 1) + "|", *rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of a proof, as build/proof/large")
    parser.add_argument("--grades", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.grades is None:
        print(f"{write(given.out)} documents in '{given.out / 'blind'}'")
    else:
        try:
            print(table(json.loads((given.out / "blind/key.json").read_text()), given.grades.read_text()))
        except (OSError, ValueError) as error:
            sys.exit(f"error: {error}")
