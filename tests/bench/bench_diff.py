"""CPU time and memory of comparing two builds document by document.

    python tests/bench/bench_diff.py [DOCUMENTS]

Of the generated documents, build B drops a tenth, changes the text of a twentieth and fetches a tenth again, so that
these can be matched only by URL. The peer is a DuckDB query over the same Parquet files, which only counts documents
that are common, changed, or lost by reason. Both must report the same counts.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from webtext.app.inspect.diff import make_diff
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import SCHEMAS

ROWS_PER_PART = 50_000
TEXT = "Words that somebody wrote and others voted for. " * 50

QUERY = """
with a as (select id, url, text_digest from '{folder}/a/corpus/*.parquet'),
     b as (select id, url, text_digest from '{folder}/b/corpus/*.parquet'),
     gone as (select id, url, reason from '{folder}/b/dropped/*.parquet'),
     by_id as (select a.id, a.url, a.text_digest <> b.text_digest as changed from a join b using (id)),
     by_url as (
         select a.id, a.url, a.text_digest <> b.text_digest as changed from a join b using (url)
         where a.id not in (select id from by_id)
     ),
     paired as (select * from by_id union all select * from by_url)
select count(*), count(*) filter (changed), (select count(*) from a semi join gone using (id)) from paired
"""


def write_builds(folder: Path, n: int) -> None:
    """Write two builds of n documents."""
    write_set(folder / "a" / "corpus", "corpus", range(n), new_build=False)
    write_set(folder / "b" / "corpus", "corpus", [i for i in range(n) if i % 10], new_build=True)
    write_set(folder / "b" / "dropped", "dropped", range(0, n, 10), new_build=False)


def write_set(folder: Path, kind: str, numbers: Any, *, new_build: bool) -> None:
    writer = SetWriter(str(folder), kind, Recipe(stage="bench", code_version=1, settings={}))
    parts = []
    for index, first in enumerate(range(0, len(numbers), ROWS_PER_PART)):
        of_part = numbers[first : first + ROWS_PER_PART]
        ids = [text_digest(f"{i} again" if new_build and i % 10 == 1 else str(i)) for i in of_part]
        columns: dict[str, Any] = {
            "id": ids,
            "url": [f"http://host{i % 5000}.example/{i}" for i in of_part],
            "link_ids": [[text_digest(f"link {i}")] for i in of_part],
            "posts": [[] for _ in of_part],
            "text": [TEXT] * len(ids),
            "text_digest": [f"{i} {new_build and i % 20 == 3}" for i in of_part],
            "domain": [f"host{i % 5000}.example" for i in of_part],
            "split": ["train"] * len(ids),
            "stage": ["filter"] * len(ids),
            "reason": ["too_few_words"] * len(ids),
            "text_start": [TEXT[:200]] * len(ids),
        }
        schema = SCHEMAS[kind]
        with writer.part(index, key=str(index)) as part:
            arrays = [pa.array(columns.get(f.name) or [None] * len(ids), f.type) for f in schema]
            part.write_table(pa.Table.from_arrays(arrays, schema=schema))
            parts.append(part.publish())
    writer.seal(parts)


def ours(folder: str) -> tuple[int, int, int]:
    found = make_diff(f"{folder}/a", f"{folder}/b")["documents"]
    (lost,) = found["lost"]["reasons"]
    return found["common"], found["text_changed"], lost["documents"]


def theirs(folder: str) -> tuple[int, int, int]:
    import duckdb

    (row,) = duckdb.connect(config={"threads": 2}).execute(QUERY.format(folder=folder)).fetchall()
    return row[0], row[1], row[2]


def verify(folder: str) -> int:
    """Read every byte, as a reader of part sets does first."""
    for name in ("a/corpus", "b/corpus", "b/dropped"):
        PartSet.open(f"{folder}/{name}").verify()
    return 0


def measured(function: Any, folder: str) -> tuple[Any, float, float]:
    """Return (answer, CPU seconds, peak MiB above the start), measured in this process."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    answer = function(folder)
    return answer, time.process_time() - started, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for function in (verify, ours, theirs):
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # a peak can't be reset
                if function is verify:
                    pool.submit(write_builds, Path(folder), n).result()
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                found.append(pool.submit(measured, function, folder).result())
        names = ("every byte verified", "make_diff", "DuckDB, counts only")
        print(f"two builds of {n:,} documents: common, of these changed, lost: {found[1][0]}")
        for name, (_, seconds, peak) in zip(names, found, strict=True):
            print(f"{name:<20} {seconds:6.2f} CPU s, peak memory +{peak:.0f} MiB")
        if found[1][0] != found[2][0]:
            sys.exit(f"the two differ: {found[2][0]}")


if __name__ == "__main__":
    main()
