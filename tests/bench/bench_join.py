"""Join links with an index in Common Crawl's format: rows per second, peak memory.

    python tests/bench/bench_join.py [MILLIONS_OF_ROWS] [LINKS]

The index is generated: rows sorted by key, in row groups of 100,000; every link has one capture in it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from arguments import positional
from resources import peak_mib

from webtext.crawl.archives.captures import Preference
from webtext.crawl.archives.cc_index import LinkJoin, Lookup, open_index
from webtext.crawl.pages.pages_set import Link
from webtext.crawl.visits.visit import Visit

ROW_GROUP = 100_000


def url_of(number: int) -> str:
    return f"http://example.com/page/{number:012}/and-some-more-of-a-path"


def make_index(path: Path, n_rows: int) -> None:
    schema = pa.schema([("url_surtkey", pa.string()), ("url", pa.string()), ("fetch_time", pa.timestamp("ms"))])
    for name, type_ in (("fetch_status", pa.int16()), ("content_digest", pa.string()), ("warc_filename", pa.string())):
        schema = schema.append(pa.field(name, type_))
    for name in ("warc_record_offset", "warc_record_length"):
        schema = schema.append(pa.field(name, pa.int32()))
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, n_rows, ROW_GROUP):
            numbers = range(first, min(first + ROW_GROUP, n_rows))
            n = len(numbers)
            columns = [
                [f"com,example)/page/{i:012}/and-some-more-of-a-path" for i in numbers],
                [url_of(i) for i in numbers],
                [i * 1000 for i in numbers],
                [200] * n,
                ["A" * 32] * n,
                [f"crawl-data/{i % 1000}.warc.gz" for i in numbers],
                list(numbers),
                [1000] * n,
            ]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.table(arrays, schema=schema))


def main() -> None:
    millions, n_links = positional(__doc__, millions_of_rows=3.0, links=300_000)
    n_rows = int(millions * 1e6)
    with tempfile.TemporaryDirectory() as folder:
        make_index(Path(folder) / "index.parquet", n_rows)
        made = peak_mib()
        join = LinkJoin()
        start = time.process_time()
        for i in range(n_links):
            number = i * n_rows // n_links
            url = url_of(number)
            link = Link(link_id=f"{number:032x}", url=url, karma=3, split="train", voted=0)
            join.add(Lookup(link, Visit(url=url, source="common-crawl", at=url)))
        added = time.process_time()
        join.choose(open_index([f"{folder}/index.parquet"]), Preference(None))
        chosen = time.process_time()
        n_placed = sum(1 for _ in join.placed())
        join.close()
    print(f"{n_links:,} links, {n_rows:,} rows of the index: {n_placed:,} captures")
    print(f"links added: {n_links / (added - start):,.0f} per CPU second")
    print(f"join: {n_rows / (chosen - added):,.0f} rows, {n_links / (chosen - added):,.0f} links per CPU second")
    print(f"peak memory {peak_mib():,.0f} MiB ({made:,.0f} MiB after the index was made)")


if __name__ == "__main__":
    main()
