"""Memory of collecting links by their number; it should stay constant.

    python tests/bench/bench_link_memory.py [MILLIONS ...]

For each number of millions, a dump of as many posts is generated, each with a different URL and enough karma. This is
the worst case, because nothing is dropped or merged. A single worker reads the dump and merges it into a single part,
which is also the worst case. Printed are the peaks of the worker and of the main process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zstandard
from arguments import parser
from bench_links import PeakMemory
from resources import peak_mib

from webtext.base.console import Console
from webtext.base.run import Run
from webtext.base.workers.engine import LocalEngine
from webtext.crawl.links.collect import collect_links
from webtext.crawl.links.settings import LinkSettings

MILLIONS = (1.0, 4.0)


def write_dump(path: Path, n_posts: int) -> None:
    """Write this many posts, each with a URL of 70 characters, the average on Reddit."""
    with path.open("wb") as file, zstandard.ZstdCompressor(level=1).stream_writer(file) as writer:
        for number in range(n_posts):
            post = {"id": f"{number:x}", "score": 3 + number % 90, "created_utc": 1_480_000_000 + number % 10**7}
            post |= {"url": f"https://site{number % 500_009}.example/{number * 2_654_435_761 % 2**32:032d}/story"}
            post |= {"is_self": False, "over_18": False, "subreddit": f"board{number % 300}"}
            writer.write(json.dumps(post, separators=(",", ":")).encode() + b"\n")


def measure(millions: float) -> None:
    """Collect the links of one generated dump, with one worker, and print a line."""
    n_posts = int(millions * 1e6)
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder, "RS_made.zst")
        write_dump(dump, n_posts)
        clock = time.perf_counter()
        with PeakMemory() as peak, LocalEngine(workers=1) as engine:
            run = Run(engine, Console("quiet"))
            links = collect_links([str(dump)], f"{folder}/links", LinkSettings(parts=1), run)
        seconds = time.perf_counter() - clock
        if links.records != n_posts:
            raise SystemExit(f"{n_posts:,} posts became {links.records:,} links")
        main = peak_mib() * 2**20 / 1e6
        print(
            f"{links.records:12,} links, {dump.stat().st_size / 1e6:6,.0f} MB of input, {seconds:5.0f} s wall:"
            f"  worker {peak.megabytes:5,.0f} MB, main process {main:4,.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    given = parser(__doc__)
    given.add_argument("millions", nargs="*", type=float, default=MILLIONS)
    numbers = given.parse_args().millions
    if len(numbers) == 1:
        measure(numbers[0])
    else:
        for number in numbers:  # a peak can't be reset
            subprocess.run([sys.executable, __file__, str(number)], check=True)
