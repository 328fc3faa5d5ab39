"""Collecting links from a made Zstandard dump with a window of 2 GiB, beside a plain json.loads loop over the same file.

    python tests/bench/bench_links.py [MEGABYTES]

Ours also judges the posts by all rules, makes URLs canonical, merges votes and writes the set; the loop counts the posts
that it would keep, and the counts must be equal. Speed is in MB of JSON per CPU second, all processes together. Memory
is the largest that one process of ours had; it grows with the dump until the window is full, at 2,147 MB.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import zstandard

from webtext.base.console import Console
from webtext.base.engine import LocalEngine
from webtext.base.run import Run
from webtext.crawl.link_settings import LinkSettings
from webtext.crawl.links import collect_links

MEGABYTES = 300
WINDOW_LOG = 31
WORDS = "the of and to in is that for it was as with on by this from at are but not you have we all they their"
ALIKE = dict.fromkeys(("archived", "brand_safe", "can_gild", "send_replies", "is_crosspostable", "no_follow"), True)
ALIKE |= dict.fromkeys(("contest_mode", "edited", "hidden", "hide_score", "is_video", "locked", "spoiler"), False)
EMPTY: dict[str, object] = {
    f"{where}_flair_{what}": None for where in ("author", "link") for what in ("css_class", "text", "richtext")
}
EMPTY |= {"media": None, "secure_media": None, "media_embed": {}, "secure_media_embed": {}}


def made_post(number: int, chance: random.Random) -> bytes:
    """A line as long as Reddit's are on average, one in eight a self post, two in five with too little karma."""
    host = f"site{number % 5000}.example"
    post = ALIKE | EMPTY | {"id": f"{number:x}", "created_utc": 1_480_000_000 + number, "gilded": 0, "over_18": False}
    post |= {"is_self": number % 8 == 0, "score": number % 5 * 2 - 2, "num_comments": number % 90, "domain": host}
    post |= {"subreddit": f"board{number % 300}", "title": " ".join(chance.choices(WORDS.split(), k=12))}
    post |= {"url": f"https://{host}/{number}/story?a=1&amp;b=2", "author": f"person{number % 70_000}"}
    post |= {"preview": {"images": [{"id": f"{chance.getrandbits(128):032x}", "width": 640, "height": 480}] * 13}}
    return json.dumps(post | {"selftext": ""}, separators=(",", ":")).encode() + b"\n"


def write_dump(path: Path, n_bytes: int) -> int:
    """Write posts of so many bytes; returns how many posts."""
    chance = random.Random(1)
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=WINDOW_LOG)
    written = number = 0
    with path.open("wb") as file, zstandard.ZstdCompressor(compression_params=parameters).stream_writer(file) as writer:
        while written < n_bytes:
            line = made_post(number, chance)
            writer.write(line)
            written, number = written + len(line), number + 1
    return number


def count_plainly(path: Path) -> tuple[int, int, int]:
    """Posts, those that link elsewhere with karma of 3 or more, and bytes, by the loop that everybody writes."""
    posts = kept = n_bytes = 0
    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG).stream_reader(file)
        for line in io.BufferedReader(reader, 1 << 20):
            post = json.loads(line)
            posts, n_bytes = posts + 1, n_bytes + len(line)
            kept += post["score"] >= 3 and not post["is_self"] and not post["over_18"]
    return posts, kept, n_bytes


class PeakMemory:
    """Watches the processes below this one; `megabytes` is the most that one of them ever had."""

    def __enter__(self) -> PeakMemory:
        self.megabytes = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            for status in _statuses_below(os.getpid()):
                peak = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
                self.megabytes = max(self.megabytes, int(peak.split()[1]) * 1024 / 1e6)


def _statuses_below(process: int) -> list[str]:
    statuses = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
            statuses += [Path(f"/proc/{child}/status").read_text() for child in children]
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        statuses += [status for child in children for status in _statuses_below(child)]
    return statuses


def cpu_seconds() -> float:
    return sum(os.times()[:4])


def main(megabytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder, "RS_made.zst")
        n_posts = write_dump(dump, megabytes * 1_000_000)
        started, clock = cpu_seconds(), time.perf_counter()
        with PeakMemory() as peak, LocalEngine(workers=1) as engine:
            links = collect_links([str(dump)], f"{folder}/links", LinkSettings(), Run(engine, Console("quiet")))
        ours, wall = cpu_seconds() - started, time.perf_counter() - clock
        started = cpu_seconds()
        posts, kept, n_bytes = count_plainly(dump)
        plain = cpu_seconds() - started
        if (links.counts.records_in, links.counts.kept) != (posts, kept) or posts != n_posts:
            raise SystemExit(f"the two differ: {links.counts}, {posts:,} posts, {kept:,} kept")
        size = dump.stat().st_size
        print(
            f"{posts:,} posts, {n_bytes / 1e6:,.0f} MB of JSON in {size / 1e6:,.0f} MB, {kept:,} kept, {wall:.1f} s wall"
        )
        print(f"webtext crawl links   {n_bytes / 1e6 / ours:5.0f} MB/s of CPU   {plain / ours:.2f} times json.loads")
        print(f"plain json.loads loop {n_bytes / 1e6 / plain:5.0f} MB/s of CPU")
        print(f"peak memory of a worker {peak.megabytes:,.0f} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MEGABYTES)
