"""Dedup: speed compared with datasketch and rensa, recall and precision, peak memory.

    python tests/bench/bench_dedup.py [DATA]
    python tests/bench/bench_dedup.py --million [--documents 1000000]

The first form reads DATA/neardup/near_dups.jsonl.xz (DATA defaults to WEBTEXT_TEST_DATA), which has planted copies.
Times are CPU seconds of one core, median of 5 runs. The peers get shingles of lower-cased words, made in Python, as
their users do. The second form generates documents of 60 words, runs `webtext clean dedup` on them, and samples the
memory of its processes every 50 ms.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasketch import MinHash
from real_data import real_data
from resources import cpu_seconds

from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean import _minhash
from webtext.clean.dedup.find import Duplicates, find_duplicates
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import permutations
from webtext.clean.text.arrays import texts_of

K, WIDTH, RUNS = 128, 5, 5
PEER_DOCUMENTS = 1000
ROWS_PER_PART = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--million", action="store_true", help="only time and peak memory, on generated documents")
    parser.add_argument("--documents", type=int, default=1_000_000, help="number of documents to generate")
    arguments = parser.parse_args()
    if arguments.million:
        measure_memory(arguments.documents)
        return
    with lzma.open(real_data(arguments.data) / "neardup" / "near_dups.jsonl.xz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    ids, texts = [row["id"] for row in rows], [row["text"] for row in rows]
    measure_speed(texts)
    measure_quality(ids, texts)


def measure_speed(texts: list[str]) -> None:
    words = sum(len(text.split()) for text in texts)
    print(f"{len(texts):,} documents, {sum(map(len, texts)) / 1e6:.1f} MB, {words / len(texts):.0f} words each")
    flat, offsets = texts_of(pa.array(texts, pa.large_string()))
    few = texts[:PEER_DOCUMENTS]
    best = 0.0

    def show(name: str, rate: float, against: bool = False) -> None:
        print(f"{name:42} {rate:10,.0f} documents/s" + (f"   webtext is {best / rate:.1f}x" if against else ""))

    for path in _minhash.simd_paths():
        rate = documents_per_second(
            lambda path=path: _minhash.sign(flat, offsets, WIDTH, *permutations(K), path), len(texts)
        )
        best = best or rate
        show(f"webtext, {path}: text -> signature", rate)
    show(
        "webtext: text -> sorted set",
        documents_per_second(lambda: _minhash.shingle_sets(flat, offsets, WIDTH), len(texts)),
    )
    show("datasketch: text -> signature", documents_per_second(lambda: datasketch_sign(few), len(few)), True)
    show("rensa: text -> signature", documents_per_second(lambda: rensa_sign(few), len(few)), True)
    shingles = [python_shingles(text) for text in few]
    show("rensa, given shingles -> signature", documents_per_second(lambda: rensa_matrix(shingles), len(few)))


def rensa_sign(texts: list[str]) -> None:
    rensa_matrix([python_shingles(text) for text in texts])


def rensa_matrix(shingles: list[list[str]]) -> None:
    from rensa import RMinHash  # here, so that --help works without the extra [bench]

    RMinHash.digest_matrix_from_token_sets(shingles, K, 42)


def datasketch_sign(texts: list[str]) -> None:
    """Sign as a Python user would: from shingles of lower-cased words."""
    for text in texts:
        MinHash(num_perm=K).update_batch([shingle.encode() for shingle in python_shingles(text)])


def python_shingles(text: str) -> list[str]:
    words = text.lower().split()
    return list({" ".join(words[start : start + WIDTH]) for start in range(max(1, len(words) - WIDTH + 1))})


def documents_per_second(work: Callable[[], object], n_documents: int) -> float:
    return n_documents / cpu_seconds(work, RUNS)


def measure_quality(ids: list[str], texts: list[str]) -> None:
    """Print recall by true Jaccard (a pair is found if not both texts stay), and precision over all removals."""
    seconds, said, kept = removals(ids, texts)
    each = f"{len(ids) / seconds:,.0f} documents per CPU second"
    print(f"find_duplicates, one worker and its start: {seconds:.2f} CPU seconds, {each}; {said}")
    met, total, right = judged(kept, true_pairs(ids, texts))
    for cell in sorted(total, reverse=True):
        print(f"true Jaccard from {cell}: {met[cell]:,} of {total[cell]:,} pairs found ({met[cell] / total[cell]:.4f})")
    print(f"precision: {right:,} of {len(kept):,} removals have true Jaccard >= 0.8 with the document that is kept")


def removals(ids: list[str], texts: list[str]) -> tuple[float, str, dict[str, str]]:
    """Return the CPU seconds of all processes, a summary, and dropped document -> the document that is kept."""
    with tempfile.TemporaryDirectory() as folder:
        documents = write(Path(folder), zip(ids, texts, strict=True))
        run, before = Run.quiet(1), sum(os.times()[:4])
        found = find_duplicates(documents, DedupSettings(), Folder(f"{folder}/work"), run)
        run.engine.close()  # so that its worker's seconds are counted
        seconds = sum(os.times()[:4]) - before
        kept = {}
        for part in range(len(documents.parts)):
            names = documents.table(part, ["id"])["id"].to_pylist()
            kept |= {names[row["row"]]: row["duplicate_of"] for row in found.rows.open().table(part).to_pylist()}
        return seconds, summary(found), kept


def judged(kept: dict[str, str], pairs: dict[tuple[str, str], float]) -> tuple[Counter[float], Counter[float], int]:
    """Return, by true Jaccard in tenths, the numbers of found pairs and of all pairs; and the correct removals."""
    met: Counter[float] = Counter()
    total: Counter[float] = Counter()
    for (left, right), similarity in pairs.items():
        if similarity >= 0.6:
            cell = min(0.9, int(similarity * 10) / 10)
            total[cell] += 1
            met[cell] += left in kept or right in kept
    return met, total, sum(pairs.get((min(pair), max(pair)), 0.0) >= 0.8 for pair in kept.items())


def summary(found: Duplicates) -> str:
    clusters = found.clusters
    counted = ", ".join(f"{name} {n:,}" for name, n in clusters.counted.items())
    return f"{clusters.clusters:,} clusters, {sum(clusters.dropped.values()):,} dropped; {counted}"


def true_pairs(ids: list[str], texts: list[str]) -> dict[tuple[str, str], float]:
    """Return the exact Jaccard of every pair that shares a shingle which fewer than 1,000 documents have."""
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
    """Deduplicate generated documents and print time, memory and scratch files.

    Every tenth document is a copy of an earlier one with its last word changed; ids have 32 characters.
    """

    def made() -> Iterator[tuple[str, str]]:
        source = random.Random(0)
        for i in range(n_documents):
            seed = source.randrange(i) if i % 10 == 9 else i
            words = random.Random(seed).choices(range(100_000), k=60)
            yield f"{i:032}", " ".join(f"w{word}" for word in words) + (f" copy {i}" if seed != i else "")

    with tempfile.TemporaryDirectory() as folder:
        documents = write(Path(folder), made()).folder.url
        start = time.perf_counter()
        peak = peak_memory([sys.executable, "-m", "webtext.app.main", *f"clean dedup {documents}".split()], folder)
        seconds = time.perf_counter() - start
        work = Path(folder, "out", "_dedup")
        clusters = json.loads((work / "duplicates.json").read_text())["clusters"]
        left = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    print(f"{n_documents:,} documents: {seconds:.0f} s wall")
    print(f"clusters {clusters['clusters']:,}, dropped {clusters['dropped']}, largest {clusters['largest'][0][1]:,}")
    print(", ".join(f"{name} {n:,}" for name, n in clusters["counted"].items()))
    print(f"peak memory of all processes together: {peak['Pss']} MiB, of which {peak['Pss_Anon']} MiB not file-backed")
    print(f"scratch files left: {left / n_documents:.0f} B per document")


def peak_memory(command: list[str], folder: str) -> dict[str, int]:
    """Return the peak memory of the command and its children together, in MiB; shared pages are counted once."""
    process = subprocess.Popen([*command, "--out", f"{folder}/out", "--workers", "1", "--quiet"])
    peak = {"Pss": 0, "Pss_Anon": 0}
    while process.poll() is None:
        held = Counter[str]()
        for number in family(process.pid):
            try:
                lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            for line in lines:
                name, _, value = line.partition(":")
                if name in peak:
                    held[name] += int(value.split()[0]) // 1024
        peak = {name: max(highest, held[name]) for name, highest in peak.items()}
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(process.returncode)
    return peak


def family(process: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []
    return [process, *(each for child in children for each in family(child))]


def write(folder: Path, documents: Iterable[tuple[str, str]]) -> PartSet:
    writer = SetWriter(str(folder / "documents"), "documents", Recipe(stage="bench", code_version=1, settings={}))
    parts, rows = [], []

    def publish() -> None:
        with writer.part(len(parts), key=str(len(parts))) as part:
            part.write(rows)
            parts.append(part.publish())
        rows.clear()

    for id_, text in documents:
        row: dict[str, Any] = {"id": id_, "link_ids": [], "posts": [], "text": text, "text_digest": text_digest(text)}
        rows.append(row | {"split": "train"})
        if len(rows) == ROWS_PER_PART:
            publish()
    if rows:
        publish()
    return writer.seal(parts)


if __name__ == "__main__":
    main()
