"""The table of clean's speed and quality, compared with the peers of each row.

    python tests/bench/bench_clean.py [DATA] [--datatrove PYTHON] [--million] [--runs N]

Reads DATA/neardup and DATA/extract (DATA defaults to WEBTEXT_TEST_DATA). Times are CPU seconds of one core, the median
of N runs, unless the bench of a row does otherwise. PYTHON is the interpreter of an environment with datatrove
(`bench_pages.py` explains how to make one); without it, rows that compare with datatrove show only our speed. --million
adds the peak memory of deduplicating 1,000,000 documents, which takes minutes. Each row comes from another bench here;
run that bench for details.
"""

from __future__ import annotations

import json
import lzma
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import bench_dedup
import bench_extract
import bench_pages
import bench_signals
import pyarrow as pa
from arguments import parser
from bench_pages import Row, print_rows
from extraction_sets import difference, read_evaluation, scores
from real_data import real_data
from resources import cpu_seconds

from webtext.clean import _minhash, _signals
from webtext.clean.dedup.reference import permutations
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.text.arrays import texts_of


def main() -> None:
    given = parser(__doc__)
    given.add_argument("data", nargs="?", type=Path)
    given.add_argument("--datatrove", metavar="PYTHON", help="Python interpreter of an environment with datatrove")
    given.add_argument("--million", action="store_true", help="also measure peak memory")
    given.add_argument("--runs", type=int, default=5)
    arguments = given.parse_args()
    print_rows(rows(real_data(arguments.data), arguments.datatrove, arguments.runs, million=arguments.million))


def rows(data: Path, datatrove: str | None, runs: int, *, million: bool) -> Iterator[Row]:
    """Yield the rows of the table as they are measured."""
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
        found = f"{peak['Pss']} MiB, {peak['bytes']} B per document left on disk"
        yield "peak memory, 1,000,000 documents deduplicated", found


def signatures(texts: list[str]) -> Row:
    """Measure the speed from raw text to a signature of 128 permutations."""
    flat, offsets = texts_of(pa.array(texts, pa.large_string()))
    few = texts[: bench_dedup.PEER_DOCUMENTS]
    speed = bench_dedup.documents_per_second
    ours = speed(lambda: _minhash.sign(flat, offsets, bench_dedup.WIDTH, *permutations(bench_dedup.K)), len(texts))
    datasketch = speed(lambda: bench_dedup.datasketch_sign(few), len(few))
    rensa = speed(lambda: bench_dedup.rensa_sign(few), len(few))
    found = f"{ours / datasketch:.0f} times datasketch, {ours / rensa:.0f} times rensa; {ours:,.0f} per second"
    return "text → signature", found


def quality_rules(texts: list[str], datatrove: str | None, runs: int) -> Row:
    """Measure the speed of computing all signals; datatrove's filters run as in FineWeb."""
    flat, offsets = texts_of(pa.array(texts, pa.large_string()))
    ours = cpu_seconds(lambda: _signals.measure(flat, offsets), runs)
    found = f"{len(texts) / ours:,.0f} per second"
    if datatrove:
        answers = [bench_signals.ask_datatrove(texts, datatrove, "theirs") for _ in range(runs)]
        of_run = [sum(each["seconds"] for name, each in answer.items() if name != "c4") for answer in answers]
        found = f"{statistics.median(of_run) / ours:.0f} times datatrove; {found}"
    return "all quality rules, and datatrove's filters", found


def extraction(data: Path, runs: int) -> Iterator[Row]:
    """Compare the default extractor with bare trafilatura: speed, and F1 with its interval over domains."""
    pages = read_evaluation(data)
    extractors = {"webtext": partial(bench_extract.ours), bench_extract.BARE: bench_extract.bare}
    texts, seconds = bench_extract.measure(pages, extractors, runs)
    name = ExtractSettings().extractor
    speed = f"{seconds[bench_extract.BARE] / seconds['webtext']:.2f} times, {len(pages) / seconds['webtext']:.0f} per second"
    yield f"extraction ({name}), and bare trafilatura", speed
    ours, bare = (scores(pages, texts[name]) for name in extractors)
    held_out = [page.is_held_out for page in pages]
    few = [page for page in pages if page.is_held_out]
    on_all, *_ = difference(pages, ours, bare)
    on_held_out, low, high = difference(few, ours[held_out], bare[held_out])
    found = f"{on_all:+.4f}; on held-out pages {on_held_out:+.4f} ({low:+.4f} to {high:+.4f})"
    yield "F1 of extraction, less bare trafilatura's", found


def duplicates(ids: list[str], texts: list[str]) -> Row:
    """Measure recall and precision on the planted near-duplicates."""
    _, _, stays = bench_dedup.removals(ids, texts)
    met, total, right = bench_dedup.judged(stays, bench_dedup.true_pairs(ids, texts))
    similar = [cell for cell in total if cell >= 0.8]
    recall = sum(met[cell] for cell in similar) / sum(total[cell] for cell in similar)
    found = (
        f"{recall:.4f} of {sum(total[cell] for cell in similar):,} pairs, {right / len(stays):.4f} of {len(stays):,}"
    )
    return "near-duplicates from Jaccard 0.8: recall, precision", found


if __name__ == "__main__":
    main()
