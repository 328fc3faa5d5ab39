"""CPU time and memory of finding documents by key among a million.

    python tests/bench/bench_trace.py [DOCUMENTS]

The peer is the usual way: read the set as one pyarrow table and filter it. Both must return the same rows.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from arguments import positional
from resources import peak_mib

from webtext.app.inspect.lookup import find_rows
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import SCHEMAS

ROWS_PER_PART = 100_000
WANTED = 450


def make_set(folder: Path, n: int) -> None:
    """Write a dropped set of n rows, each with the start of a text."""
    writer = SetWriter(str(folder), "dropped", Recipe(stage="bench", code_version=1, settings={}))
    parts = []
    for index, first in enumerate(range(0, n, ROWS_PER_PART)):
        ids = [text_digest(str(i)) for i in range(first, min(first + ROWS_PER_PART, n))]
        columns = {
            "id": ids,
            "url": [f"http://host.example/{each}" for each in ids],
            "stage": ["filter"] * len(ids),
            "reason": ["too_few_words"] * len(ids),
            "value": [5.0] * len(ids),
            "threshold": [100.0] * len(ids),
            "duplicate_of": pa.nulls(len(ids), pa.string()),
            "text_start": [each * 6 for each in ids],
        }
        with writer.part(index, key=str(index)) as part:
            part.write_table(pa.table(columns, schema=SCHEMAS["dropped"]))
            parts.append(part.publish())
    writer.seal(parts)


def main() -> None:
    (n,) = positional(__doc__, documents=1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # keeps its memory out of ours
            pool.submit(make_set, Path(folder), n).result()
        opened = PartSet.open(folder, "dropped")
        wanted = {text_digest(str(i)) for i in range(0, n, max(1, n // WANTED))}
        opened.verify()
        before, started = peak_mib(), time.process_time()
        found = list(find_rows(opened, "id", wanted))
        ours, our_peak = time.process_time() - started, peak_mib() - before
        started = time.process_time()
        whole = pa.concat_tables(pq.read_table(path) for path in sorted(Path(folder).glob("*.parquet")))
        theirs = whole.filter(pc.is_in(whole["id"], pa.array(list(wanted)))).to_pylist()
        seconds, peak = time.process_time() - started, peak_mib() - before
        print(f"{len(found):,} of {n:,} rows by key")
        print(f"find_rows      {ours:5.2f} CPU s, peak memory +{our_peak:.0f} MiB")
        print(f"pyarrow table  {seconds:5.2f} CPU s, peak memory +{peak:.0f} MiB: {seconds / ours:.1f} times the CPU")
        if sorted(row["url"] for row in found) != sorted(row["url"] for row in theirs):
            sys.exit("the two differ")


if __name__ == "__main__":
    main()
