"""Decontamination: native speed compared with the Python twin, memory of the tables, and the kept filter.

    python tests/bench/bench_decontaminate.py [DATA]

Evaluation sets are DATA/eval (DATA defaults to WEBTEXT_TEST_DATA). Documents are the first 40 MB of
DATA/corpora/en.txt.xz, cut into 4,000 characters. Times are CPU seconds of one core, median of 5 runs; the twin gets 1
MB of the same documents.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from arguments import data_folder
from resources import cpu_seconds

from webtext.clean import _ngrams
from webtext.clean.decontaminate import reference
from webtext.clean.decontaminate.evaluation import Examples, evaluation_sets
from webtext.clean.decontaminate.kept_filter import MAX_FALSE_POSITIVE, sizes
from webtext.clean.text.arrays import texts_of

RUNS, CHARACTERS, DOCUMENT, TWIN = 5, 40_000_000, 4000, 1_000_000


def main() -> None:
    data = data_folder(__doc__)
    with lzma.open(data / "corpora" / "en.txt.xz", "rt", encoding="utf-8", errors="replace") as file:
        text = file.read(CHARACTERS)
    texts = [text[start : start + DOCUMENT] for start in range(0, len(text), DOCUMENT)]
    flat, offsets = texts_of(pa.array(texts, pa.large_string()))
    folders = [folder for folder in sorted((data / "eval").iterdir()) if folder.is_dir() and folder.name != "enwik8"]
    sets = evaluation_sets([str(folder) for folder in folders])
    few = texts[: TWIN // DOCUMENT]
    few_bytes = sum(len(each.encode()) for each in few)
    print(f"{len(texts):,} documents, {len(flat) / 1e6:.1f} MB; {len(sets)} evaluation sets")
    for n in (8, 13):
        examples = Examples(sets, n)
        table = reference.Table(n)
        for each in sets:
            for example in each.examples():
                table.add(example.decode(errors="replace"))
        assert len(table) == len(examples.table)
        print(f"{n:2}-grams: {len(table):,} distinct, {examples.table.n_bytes / len(table):.0f} bytes each in memory")
        native = megabytes_per_second(lambda table=examples.table: table.find(flat, offsets), len(flat))
        twin = megabytes_per_second(lambda table=table: [table.find(each) for each in few], few_bytes)
        found = np.unique(examples.table.find(flat, offsets)[0])
        print(f"    native {native:8.1f} MB/s   Python twin {twin:6.2f} MB/s   native is {native / twin:.0f}x")
        print(f"    {len(found):,} of them in the documents")
    hashes = _ngrams.hashes(flat, offsets, 8)
    n_bits, probes = sizes(len(hashes), MAX_FALSE_POSITIVE)
    bits = np.zeros(n_bits // 64, np.uint64)

    def fill() -> None:
        _ngrams.bloom_add(bits, _ngrams.hashes(flat, offsets, 8), probes)

    filled = megabytes_per_second(fill, len(flat))
    ask = megabytes_per_second(lambda: _ngrams.bloom_has(bits, hashes, probes), len(flat))
    print(
        f"kept filter of {len(hashes):,} 8-grams, {n_bits / 8e6:.1f} MB: filled at {filled:.1f} MB/s, queried at {ask:.1f} MB/s"
    )


def megabytes_per_second(work: Callable[[], object], n_bytes: int) -> float:
    return n_bytes / 1e6 / cpu_seconds(work, RUNS)


if __name__ == "__main__":
    main()
