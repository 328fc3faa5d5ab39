"""MinHash: time and peak memory on made-up documents; on real ones speed beside datasketch, recall and precision.

    python tests/bench/bench_minhash.py [DATA] [--made 50000]

The real ones are DATA/neardup/near_dups.jsonl.xz (DATA: else WEBTEXT_TEST_DATA), with planted copies. Speed is in CPU
seconds of one core, median of 5 runs; datasketch gets the same words, cut by the same rule.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import statistics
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasketch import MinHash
from real_data import real_data

from webtext.base.partset import PartSet
from webtext.base.partwriter import SetWriter
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import text_digest
from webtext.base.storage import Folder
from webtext.clean import _minhash
from webtext.clean.dedup.find import Duplicates, find_duplicates
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import texts_of

K, WIDTH, RUNS = 128, 5, 5
PEER_DOCUMENTS = 1000
ROWS_PER_PART = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--made", type=int, default=50_000, help="make so many documents")
    arguments = parser.parse_args()
    measure_memory(arguments.made)
    with lzma.open(real_data(arguments.data) / "neardup" / "near_dups.jsonl.xz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    measure_speed([row["text"] for row in rows])
    measure_quality([row["id"] for row in rows], [row["text"] for row in rows])


def measure_speed(texts: list[str]) -> None:
    words = sum(len(text.split()) for text in texts)
    print(f"{len(texts):,} documents, {sum(map(len, texts)) / 1e6:.1f} MB, {words / len(texts):.0f} words each")
    flat, offsets = texts_of(pa.array(texts, pa.large_string()))
    ours = 0.0
    for path in _minhash.simd_paths():
        rate = documents_per_second(lambda path=path: _minhash.sign(flat, offsets, WIDTH, K, path), len(texts))
        ours = ours or rate
        print(f"webtext {path:9} text -> signature {rate:10,.0f} documents/s")
    rate = documents_per_second(lambda: _minhash.shingle_sets(flat, offsets, WIDTH), len(texts))
    print(f"webtext           text -> sorted set {rate:9,.0f} documents/s")
    rate = documents_per_second(lambda: datasketch_sign(texts[:PEER_DOCUMENTS]), PEER_DOCUMENTS)
    print(f"{'datasketch':17} text -> signature {rate:10,.0f} documents/s   webtext is {ours / rate:.1f}x")


def datasketch_sign(texts: list[str]) -> None:
    """What a Python user would give it: shingles of lower-cased words."""
    for text in texts:
        MinHash(num_perm=K).update_batch([shingle.encode() for shingle in python_shingles(text)])


def python_shingles(text: str) -> list[str]:
    words = text.lower().split()
    return list({" ".join(words[start : start + WIDTH]) for start in range(max(1, len(words) - WIDTH + 1))})


def documents_per_second(work: Callable[[], object], n_documents: int) -> float:
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return n_documents / statistics.median(seconds)


def measure_quality(ids: list[str], texts: list[str]) -> None:
    """Recall by true Jaccard: a pair counts as met when not both of it stay; precision over all removals."""
    with tempfile.TemporaryDirectory() as folder:
        documents = write(Path(folder), zip(ids, texts, strict=True))
        start = time.perf_counter()
        found = find_duplicates(documents, DedupSettings(), Folder(f"{folder}/work"), Run.quiet(1))
        seconds = time.perf_counter() - start
        stays = {}
        for part in range(len(documents.parts)):
            names = documents.table(part, ["id"])["id"].to_pylist()
            stays |= {names[row["row"]]: row["duplicate_of"] for row in found.table(part).to_pylist()}
    print(f"find_duplicates, one worker: {seconds:.1f} s wall, {len(ids) / seconds:,.0f} documents/s; {summary(found)}")
    pairs = true_pairs(ids, texts)
    met: Counter[float] = Counter()
    total: Counter[float] = Counter()
    for (left, right), similarity in pairs.items():
        if similarity >= 0.6:
            cell = min(0.9, int(similarity * 10) / 10)
            total[cell] += 1
            met[cell] += left in stays or right in stays
    for cell in sorted(total, reverse=True):
        print(f"true Jaccard from {cell}: {met[cell]:,} of {total[cell]:,} pairs met ({met[cell] / total[cell]:.4f})")
    right = sum(pairs.get((min(pair), max(pair)), 0.0) >= 0.8 for pair in stays.items())
    print(f"precision: {right:,} of {len(stays):,} removals have true Jaccard >= 0.8 with the document that stays")


def summary(found: Duplicates) -> str:
    clusters = found.clusters
    return (
        f"{clusters.clusters:,} clusters, {clusters.candidates:,} candidates, {clusters.verified:,} pairs verified, "
        f"{sum(clusters.dropped.values()):,} dropped"
    )


def true_pairs(ids: list[str], texts: list[str]) -> dict[tuple[str, str], float]:
    """Exact Jaccard of every pair with a common shingle that fewer than 1,000 documents hold."""
    values, offsets = _minhash.shingle_sets(*texts_of(pa.array(texts, pa.large_string())), WIDTH)
    owners = np.repeat(np.arange(len(texts)), np.diff(offsets))
    order = np.argsort(values, kind="stable")
    holders = np.split(owners[order], np.flatnonzero(np.diff(values[order])) + 1)
    common: dict[tuple[int, int], int] = defaultdict(int)
    for group in holders:
        for place, right in enumerate(group.tolist()) if 1 < len(group) < 1000 else ():
            for left in group[:place].tolist():
                common[left, right] += 1
    sizes = np.diff(offsets)
    pairs = {}
    for (left, right), both in common.items():
        if both > 0.5 * min(sizes[left], sizes[right]):
            first, second = sorted((ids[left], ids[right]))
            either = np.union1d(values[slice(*offsets[left : left + 2])], values[slice(*offsets[right : right + 2])])
            pairs[first, second] = float((sizes[left] + sizes[right] - len(either)) / len(either))
    return pairs


def measure_memory(n_documents: int) -> None:
    """Documents of 60 words; every tenth is a copy of an earlier one with its last word changed."""

    def made() -> Iterator[tuple[str, str]]:
        source = random.Random(0)
        for i in range(n_documents):
            seed = source.randrange(i) if i % 10 == 9 else i
            words = random.Random(seed).choices(range(100_000), k=60)
            yield f"{i:010}", " ".join(f"w{word}" for word in words) + (f" copy {i}" if seed != i else "")

    with tempfile.TemporaryDirectory() as folder, PeakMemory() as peak:
        documents = write(Path(folder), made())
        peak.restart()
        start = time.perf_counter()
        found = find_duplicates(documents, DedupSettings(), Folder(f"{folder}/work"), Run.quiet(1))
        seconds = time.perf_counter() - start
        kept_bytes = sum(path.stat().st_size for path in Path(folder, "work").iterdir())
        print(f"{n_documents:,} documents: {seconds:.0f} s wall; {summary(found)}")
        print(f"peak memory of the main process: {peak}")
        print(f"scratch files left: {kept_bytes / n_documents:.0f} B a document")


class PeakMemory:
    """The most resident memory of this process, by kind, looked at every 20 ms."""

    def __enter__(self) -> PeakMemory:
        self.peaks: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def __str__(self) -> str:
        own, mapped = self.peaks["RssAnon"] / 1024, self.peaks["RssFile"] / 1024
        return (
            f"{own:.0f} MiB its own, {mapped:.0f} MiB of mapped files (which the kernel takes back when it needs them)"
        )

    def restart(self) -> None:
        self.peaks = {}

    def _look(self) -> None:
        while not self._over.wait(0.02):
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name.startswith("Rss"):
                    self.peaks[name] = max(self.peaks.get(name, 0), int(value.split()[0]))


def write(folder: Path, documents: Iterable[tuple[str, str]]) -> PartSet:
    writer = SetWriter(str(folder / "documents"), "documents", Recipe(stage="bench", code_version=1, settings={}))
    parts, rows = [], []

    def publish() -> None:
        with writer.part(len(parts), key=str(len(parts))) as part:
            part.write(rows)
            parts.append(part.publish())
        rows.clear()

    for id_, text in documents:
        row: dict[str, Any] = {"id": id_, "link_ids": [], "text": text, "text_digest": text_digest(text)}
        rows.append(row | {"split": "train"})
        if len(rows) == ROWS_PER_PART:
            publish()
    if rows:
        publish()
    return writer.seal(parts)


if __name__ == "__main__":
    main()
