"""Signals: speed of measuring every rule's value, compared with the readable twin and datatrove.

    python tests/bench/bench_signals.py [DATA] [--datatrove PYTHON]

Reads every tenth document of DATA/neardup/near_dups.jsonl.xz (DATA defaults to WEBTEXT_TEST_DATA). PYTHON is the
interpreter of an environment with datatrove and spacy (`python -m venv V && V/bin/pip install datatrove spacy nltk`).
It can't be webtext's own, because datatrove pins an old trafilatura. With it, each of datatrove's filters is timed, and
its decisions are compared with ours, once with words and sentences split by us, once by spaCy as in datatrove. Times
are CPU seconds of one core: the median of five runs for ours, a single run for datatrove, which is slow.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from real_data import real_data
from resources import cpu_seconds

from webtext.base.parts.schemas import SIGNALS
from webtext.clean import _signals
from webtext.clean.rules.decide import verdicts
from webtext.clean.rules.thresholds import PROFILES, RuleSettings
from webtext.clean.text.arrays import texts_of
from webtext.clean.text.clean_text import clean_text

sys.path.append(str(Path(__file__).parents[1]))
from reference.signals import n_sentences_of, signals_of, words_of  # noqa: E402

RUNS, TWIN_DOCUMENTS = 5, 200
CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")
REPETITION = ("too_many_duplicate", "top_")
FILTERS = {
    "gopher repetition": ("gopher", lambda name: name.startswith(REPETITION)),
    "gopher quality": ("gopher", lambda name: not name.startswith(REPETITION)),
    "c4": ("c4", lambda name: True),
    "c4 in fineweb": ("fineweb", lambda name: name in ("has_lorem_ipsum", "has_curly_brace", "too_few_sentences")),
    "fineweb": (
        "fineweb",
        lambda name: name.startswith(("too_few_punct", "too_many_short", "too_many_newl", "too_many_duplicate_char")),
    ),
}
"""datatrove's filter -> our profile, and which of its rules belong to the same filter."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--datatrove", metavar="PYTHON", help="Python interpreter of an environment with datatrove")
    arguments = parser.parse_args()
    texts = read_texts(real_data(arguments.data))
    flat, offsets = texts_of(pa.array(texts, pa.large_string()))
    print(f"{len(texts):,} documents of {sum(map(len, texts)) / len(texts):,.0f} characters")
    ours = cpu_seconds(lambda: _signals.measure(flat, offsets), RUNS)
    print(f"webtext, every value           {len(texts) / ours:12,.0f} documents per CPU second")
    some = texts[:TWIN_DOCUMENTS]
    twin = cpu_seconds(lambda: [signals_of(text) for text in some], RUNS)
    print(f"the readable twin              {len(some) / twin:12,.0f}")
    if arguments.datatrove:
        compare(texts, _signals.measure(flat, offsets), ours, arguments.datatrove)


def read_texts(data: Path) -> list[str]:
    """Return every tenth document."""
    with lzma.open(data / "neardup" / "near_dups.jsonl.xz", "rt", encoding="utf-8") as file:
        return [clean_text(json.loads(line)["text"]) for line in islice(file, 0, None, 10)]


def compare(texts: list[str], measured: dict[str, Any], ours: float, python: str) -> None:
    """Print the speed of datatrove's filters, and how often a decision differs."""
    for words in ("theirs", "ours"):
        found = ask_datatrove(texts, python, words)
        if words == "theirs":
            seconds = sum(each["seconds"] for name, each in found.items() if name != "c4")
            for name, each in found.items():
                print(f"datatrove, {name:19} {len(texts) / each['seconds']:12,.0f}")
            print(
                f"datatrove, FineWeb's four      {len(texts) / seconds:12,.0f}   webtext is {seconds / ours:,.0f} times"
            )
        print(f"decisions that differ, words and sentences split {'by spaCy' if words == 'theirs' else 'as ours'}:")
        for name, each in found.items():
            kept = our_decisions(measured, *FILTERS[name])
            n_differ = sum(mine != theirs for mine, theirs in zip(kept, each["keeps"], strict=True))
            print(
                f"  {name:20} {n_differ:6,} of {len(texts):,} ({100 * n_differ / len(texts):.2f} %); "
                f"datatrove keeps {sum(each['keeps']):,}, webtext {sum(kept):,}"
            )


def our_decisions(measured: dict[str, Any], profile: str, belongs: Any) -> list[bool]:
    off = tuple(f"{name}=none" for name in PROFILES[profile] if not belongs(name))
    columns = [
        measured.get(name, pa.nulls(len(measured["n_words"]), SIGNALS.field(name).type)) for name in SIGNALS.names
    ]
    table = pa.table(columns, names=SIGNALS.names)
    found = verdicts(table, RuleSettings(profile=profile, rule=off), None)
    return list(~sum((each.drops for each in found), np.zeros(table.num_rows, bool)))


def ask_datatrove(texts: list[str], python: str, words: str) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for text in texts:
            lines = {CITATION.sub("", line.strip()) for line in text.splitlines()}
            sentences = {line: n_sentences_of(line) for line in lines}
            file.write(json.dumps([text, words_of(text), sentences] if words == "ours" else [text, [], {}]) + "\n")
        file.flush()
        child = Path(__file__).with_name("datatrove_child.py")
        done = subprocess.run([python, str(child), file.name, words], stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    main()
