"""Signals: documents and megabytes a second that every rule's value is measured for.

    python tests/bench/bench_signals.py [DATA]

Reads DATA/neardup/near_dups.jsonl.xz (DATA: else WEBTEXT_TEST_DATA), the first 2,000 documents; the best of three runs in
CPU seconds of one core.
"""

from __future__ import annotations

import itertools
import json
import lzma
import time
from pathlib import Path

from real_data import first_argument, real_data

from webtext.clean.rules.signals import signals_of

N_DOCUMENTS, RUNS = 2000, 3


def main(folder: Path) -> None:
    with lzma.open(folder / "neardup" / "near_dups.jsonl.xz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in itertools.islice(file, N_DOCUMENTS)]
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        for text in texts:
            signals_of(text)
        seconds.append(time.process_time() - start)
    n_characters = sum(map(len, texts))
    print(
        f"{len(texts):,} documents of {n_characters / len(texts):,.0f} characters: {len(texts) / min(seconds):,.0f} "
        f"documents and {n_characters / min(seconds) / 1e6:.1f} million characters a CPU second"
    )


if __name__ == "__main__":
    main(real_data(first_argument()))
