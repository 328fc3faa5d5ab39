"""Collecting links from a generated dump in xz, bzip2 and Zstandard, compared with decompression and a json.loads loop.

    python tests/bench/bench_links.py [--quick] [FORMAT...]

Ours is the complete verb with two workers: SHA-256 of the file, every rule, canonical URLs, merged votes, the sealed
set. "Decompressor" is the same library, fed 64 KiB at a time, with its output discarded. The loop splits the
decompressed data into lines, loads each, and counts the posts that WebText's karma rule would keep if it ignored URLs.
These counts must be equal. Each figure is the best of ROUNDS in turn, in MB of JSON per second of wall time; on a busy
machine compare the ratios and the CPU seconds. `made_dump.py` generates the dump; its Zstandard window is 2 GiB, which
only a dump of that length fills.
"""

from __future__ import annotations

import bz2
import json
import lzma
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zstandard
from arguments import parser
from made_dump import made_posts

from webtext.base.console import Console
from webtext.base.run import Run
from webtext.base.workers.local_engine import LocalEngine
from webtext.crawl.links.collect import collect_links
from webtext.crawl.links.settings import LinkSettings

WORKERS = 2
ROUNDS = 3
FEED_BYTES = 64 << 10
WINDOW = 1 << 31
MEGABYTES = {"xz": 1000, "bz2": 300, "zst": 2500}
QUICK_MEGABYTES = {"xz": 150, "bz2": 60, "zst": 300}


def compressor(format_: str) -> Any:
    """Return a compressor set up as by publishers of dumps; but xz at its fastest, to save minutes per GB."""
    if format_ == "xz":
        return lzma.LZMACompressor(preset=1)
    if format_ == "bz2":
        return bz2.BZ2Compressor()
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=WINDOW.bit_length() - 1)
    return zstandard.ZstdCompressor(compression_params=parameters).compressobj()


def decompressor(format_: str) -> Any:
    if format_ == "xz":
        return lzma.LZMADecompressor()
    if format_ == "bz2":
        return bz2.BZ2Decompressor()
    return zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj()


def write_dump(path: Path, format_: str, n_bytes: int) -> tuple[int, int]:
    """Write posts of at least this many bytes; return the numbers of posts and bytes."""
    packer, posts, written = compressor(format_), 0, 0
    with path.open("wb") as file:
        for line in made_posts():
            file.write(packer.compress(line))
            posts, written = posts + 1, written + len(line)
            if written >= n_bytes:
                break
        file.write(packer.flush())
    return posts, written


def decompressed(path: Path, format_: str) -> Iterator[bytes]:
    unpacker = decompressor(format_)
    with path.open("rb") as file:
        while data := file.read(FEED_BYTES):
            yield unpacker.decompress(data)


def count_bytes(path: Path, format_: str) -> int:
    return sum(map(len, decompressed(path, format_)))


def count_plainly(path: Path, format_: str) -> tuple[int, int]:
    """Count posts, and those with karma >= 3 that are neither self posts nor over 18, with the usual simple loop."""
    posts = kept = 0
    rest = b""
    for chunk in decompressed(path, format_):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            post = json.loads(line)
            posts += 1
            kept += post["score"] >= 3 and not post["is_self"] and not post["over_18"]
    return posts, kept


def count_by_verb(path: Path) -> tuple[int, int]:
    """Return the same counts from the funnel of `webtext crawl links`."""
    with tempfile.TemporaryDirectory() as folder, LocalEngine(workers=WORKERS) as engine:
        links = collect_links([str(path)], f"{folder}/links", LinkSettings(), Run(engine, Console("quiet")))
    judged_by_url = sum(links.counts.dropped.get(reason, 0) for reason in ("links_back", "media"))
    return links.counts.records_in, links.counts.kept + judged_by_url


def timed(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return (result, wall seconds, CPU seconds of all processes)."""
    cpu, clock = sum(os.times()[:4]), time.perf_counter()
    result = function()
    return result, time.perf_counter() - clock, sum(os.times()[:4]) - cpu


def bench(format_: str, megabytes: int, folder: Path) -> None:
    dump = folder / f"RS_made.{format_}"
    n_posts, n_bytes = write_dump(dump, format_, megabytes * 1_000_000)
    size = dump.stat().st_size
    rows: dict[str, list[tuple[float, float]]] = {"ours": [], "decompressor": [], "json.loads": []}
    for _ in range(ROUNDS):
        by_verb, *seconds = timed(lambda: count_by_verb(dump))
        rows["ours"].append((seconds[0], seconds[1]))
        plainly, *seconds = timed(lambda: count_plainly(dump, format_))
        rows["json.loads"].append((seconds[0], seconds[1]))
        counted, *seconds = timed(lambda: count_bytes(dump, format_))
        rows["decompressor"].append((seconds[0], seconds[1]))
        if by_verb != plainly or (plainly[0], counted) != (n_posts, n_bytes):
            raise SystemExit(f"{format_}: ours {by_verb}, the loop {plainly}, made {n_posts, n_bytes}")
    dump.unlink()
    print(
        f"{format_}: {n_posts:,} posts, {n_bytes / 1e6:,.0f} MB of JSON in {size / 1e6:,.0f} MB, {by_verb[1]:,} counted"
    )
    best = {name: (min(wall for wall, _ in row), min(cpu for _, cpu in row)) for name, row in rows.items()}
    for name, (wall, cpu) in best.items():
        print(f"  {name:13} {n_bytes / 1e6 / wall:7.0f} MB/s {wall:8.1f} s {cpu:8.1f} s of CPU")
    ratios = [f"{wall / best['ours'][0]:.2f} times {name}" for name, (wall, _) in best.items() if name != "ours"]
    print(f"  ours: {', '.join(ratios)}", flush=True)


def main() -> None:
    given = parser(__doc__)
    given.add_argument("formats", nargs="*", choices=[*MEGABYTES, []], help="formats to measure; default: all")
    given.add_argument("--quick", action="store_true", help="small dumps; starting workers takes much of the time")
    arguments = given.parse_args()
    sizes = QUICK_MEGABYTES if arguments.quick else MEGABYTES
    with tempfile.TemporaryDirectory() as folder:
        for format_ in arguments.formats or MEGABYTES:
            bench(format_, sizes[format_], Path(folder))


if __name__ == "__main__":
    main()
