"""Run datatrove's filters over texts, in an environment with datatrove; started by `bench_signals.py`.

    python tests/bench/datatrove_child.py TEXTS.JSONL WORDS

Each line of TEXTS.JSONL is [text, words, sentences of each line]. If WORDS is "theirs", datatrove splits words and
sentences with spaCy; if it is "ours", datatrove gets ours. Prints one JSON object:
filter -> {"seconds": CPU seconds, "keeps": [bool, ...]}.
"""

from __future__ import annotations

import json
import time
from typing import Any

import arguments
from datatrove.data import Document  # type: ignore[import-not-found]
from datatrove.pipeline import filters  # type: ignore[import-not-found]
from datatrove.pipeline.filters import (  # type: ignore[import-not-found]
    c4_filters,
    fineweb_quality_filter,
    gopher_quality_filter,
    gopher_repetition_filter,
)


def main(texts_file: str, words: str) -> None:
    """Run each filter on a fresh copy of every text, because C4's filter changes its document."""
    with open(texts_file, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    if words == "ours":
        words_of = {text: cut for text, cut, _ in rows}
        sentences_of = {line: n for _, _, lines in rows for line, n in lines.items()}
        for module in (fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter):
            module.split_into_words = lambda text, language: words_of[text]
        c4_filters.split_into_sentences = lambda text, language: [text] * sentences_of[text]
    chosen = {
        "gopher repetition": filters.GopherRepetitionFilter(),
        "gopher quality": filters.GopherQualityFilter(),
        "c4": filters.C4QualityFilter(),
        "c4 in fineweb": filters.C4QualityFilter(filter_no_terminal_punct=False),
        "fineweb": filters.FineWebQualityFilter(),
    }
    answer: dict[str, Any] = {}
    for name, each in chosen.items():
        if words == "theirs":
            each.filter(Document(text="Load what it needs. " * 60, id="0"))
        start = time.process_time()
        keeps = [_keeps(each, text) for text, _, _ in rows]
        answer[name] = {"seconds": time.process_time() - start, "keeps": keeps}
    print(json.dumps(answer))


def _keeps(each: Any, text: str) -> bool:
    return each.filter(Document(text=text, id="0")) is True


if __name__ == "__main__":
    main(*arguments.words(__doc__, "texts_file", "words"))
