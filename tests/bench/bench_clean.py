"""The table of clean's speed and quality, beside the peers of each row, with what each must reach and is to reach.

    python tests/bench/bench_clean.py [DATA] [--datatrove PYTHON] [--million] [--runs N]

Reads DATA/neardup and DATA/extract (DATA: else WEBTEXT_TEST_DATA). CPU seconds of one core, the median of N runs; where a
row says otherwise, its own bench does. PYTHON is one of an environment that has datatrove (`bench_pages.py` says how to
make it); without it the rows held against it say our speed alone. With --million the peak memory of deduplicating 1,000,000
documents too, which takes minutes. The rows are those of the benches named in the table: run one for more of it.
"""

from __future__ import annotations

import argparse
import json
import logging
import lzma
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import bench_dedup
import bench_extract
import bench_pages
import bench_signals
import numpy as np
import pyarrow as pa
from clean_rows import Row, print_rows
from real_data import real_data

from webtext.clean import _minhash, _signals
from webtext.clean.dedup.sign import texts_of
from webtext.clean.extract.body import ExtractSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--datatrove", metavar="PYTHON", help="python of an environment with datatrove")
    parser.add_argument("--million", action="store_true", help="the row of peak memory too")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    print_rows(rows(real_data(arguments.data), arguments.datatrove, arguments.runs, million=arguments.million))


def rows(data: Path, datatrove: str | None, runs: int, *, million: bool) -> Iterator[Row]:
    """The table, row by row as they are measured."""
    with lzma.open(data / "neardup" / "near_dups.jsonl.xz", "rt", encoding="utf-8") as file:
        documents = [json.loads(line) for line in file]
    ids, texts = [row["id"] for row in documents], [row["text"] for row in documents]
    yield signatures(texts)
    yield quality_rules(bench_signals.read_texts(data), datatrove, runs)
    yield from bench_pages.rows(data, datatrove, runs=runs)
    yield from extraction(data, runs)
    yield duplicates(ids, texts)
    if million:
        peak = bench_dedup.measure_memory(1_000_000, 0)
        found = f"{peak['Pss']} MiB, {peak['bytes']} B a document left on disk"
        yield Row("peak memory, 1,000,000 documents deduplicated", "1 GB", "300 MB", found)


def signatures(texts: list[str]) -> Row:
    """From raw text to the signature of 128 permutations."""
    flat, offsets = texts_of(pa.array(texts, pa.large_string()))
    few = texts[: bench_dedup.PEER_DOCUMENTS]
    speed = bench_dedup.documents_per_second
    ours = speed(lambda: _minhash.sign(flat, offsets, bench_dedup.WIDTH, bench_dedup.K, ""), len(texts))
    datasketch = speed(lambda: bench_dedup.datasketch_sign(few), len(few))
    rensa = speed(lambda: bench_dedup.rensa_sign(few), len(few))
    found = f"{ours / datasketch:.0f} times datasketch, {ours / rensa:.0f} times rensa; {ours:,.0f} a second"
    return Row("text → signature", "20 times datasketch, 10 times rensa; 30,000 a second", "60,000 a second", found)


def quality_rules(texts: list[str], datatrove: str | None, runs: int) -> Row:
    """All values; datatrove's filters as FineWeb runs them."""
    flat, offsets = texts_of(pa.array(texts, pa.large_string()))
    ours = statistics.median(bench_signals.cpu_seconds(lambda: _signals.measure(flat, offsets)) for _ in range(runs))
    found = f"{len(texts) / ours:,.0f} a second"
    if datatrove:
        answers = [bench_signals.ask_datatrove(texts, datatrove, "theirs") for _ in range(runs)]
        of_run = [sum(each["seconds"] for name, each in answer.items() if name != "c4") for answer in answers]
        found = f"{statistics.median(of_run) / ours:.0f} times datatrove; {found}"
    return Row("all quality rules", "50 times datatrove's filters", "", found)


def extraction(data: Path, runs: int) -> Iterator[Row]:
    """The default extractor beside trafilatura called bare: speed, and F1 with its interval over pages."""
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    pages = bench_extract.read_pages(data / "extract")
    extractors = {"webtext": partial(bench_extract.ours), bench_extract.BARE: bench_extract.bare}
    texts, seconds = bench_extract.measure(pages, extractors, runs)
    counts = {
        name: np.array([bench_extract.count(*pair) for pair in zip(pages, of, strict=True)])
        for name, of in texts.items()
    }
    name = ExtractSettings().extractor
    speed = (
        f"{seconds[bench_extract.BARE] / seconds['webtext']:.2f} times, {len(pages) / seconds['webtext']:.0f} a second"
    )
    yield Row(f"extraction ({name})", "0.95 times trafilatura called bare", "1.3 times", speed)
    ours, bare = counts["webtext"], counts[bench_extract.BARE]
    held_out = np.array([page.is_held_out for page in pages])
    low, high = bench_extract.interval(ours[held_out], bare[held_out])
    on_held_out = bench_extract.f1(ours[held_out]) - bench_extract.f1(bare[held_out])
    found = f"{bench_extract.f1(ours) - bench_extract.f1(bare):+.4f}; on pages not looked at {on_held_out:+.4f} "
    aim = "+0.005 on pages not looked at, the interval without 0"
    yield Row("F1 of extraction, less bare trafilatura's", "−0.002", aim, f"{found}({low:+.4f} to {high:+.4f})")


def duplicates(ids: list[str], texts: list[str]) -> Row:
    """Of the planted near-duplicates."""
    _, stays = bench_dedup.removals(ids, texts)
    met, total, right = bench_dedup.judged(stays, bench_dedup.true_pairs(ids, texts))
    similar = [cell for cell in total if cell >= 0.8]
    recall = sum(met[cell] for cell in similar) / sum(total[cell] for cell in similar)
    found = (
        f"{recall:.4f} of {sum(total[cell] for cell in similar):,} pairs, {right / len(stays):.4f} of {len(stays):,}"
    )
    return Row("near-duplicates from Jaccard 0.8: recall, precision", "0.999, 1.000", "", found)


if __name__ == "__main__":
    main()
