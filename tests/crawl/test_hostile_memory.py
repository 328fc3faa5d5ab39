"""Peak memory and time of the entire verb, in its own process, while 64 hostile servers answer at once.

Memory is what they add to 64 good servers, in the same process: how much of the libraries' 100 MB counts, the system decides.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import hostile_answers as hostile
import pytest
from conftest import LocalWeb
from hostile_answers import MiB, answer

HOSTS = [f"127.0.0.{i}" for i in range(1, 65)]
HUGE = answer(b"<html>" + b"x" * (10 * MiB - 100))
MAX_GROWTH = 40 * 10**6
DEADLINE = 3.0
PATIENCE = 100 * DEADLINE  # allows for a busy machine; without deadlines it would take hours or never end

CHILD = """
import json, sys
from webtext.base.run import Run
from webtext.crawl.fetch import run
from webtext.crawl.fetch.settings import FetchSettings
port, seconds, *sets = sys.argv[1:]
settings = FetchSettings(delay=0.0, retries=0, total_seconds=float(seconds), allow_address=(f"127.0.0.0/8:{port}",))
run.MAX_DELAY, peaks = 0.0, []
for links in sets:
    pages = run.fetch_pages(links, links + "-pages", settings, Run.quiet())
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    peaks.append(int(peak.split()[1]) * 1024)
print(json.dumps({"growth": peaks[1] - peaks[0], "counts": pages.counts.to_json()}))
"""


ATTACKS: dict[str, Callable[[], list[Any]]] = {
    "gzip, brotli and zstd bombs, 100,000 empty members": lambda: [
        answer(hostile.gzip_bomb(), "Content-Encoding: gzip"),
        answer(hostile.brotli_bomb(), "Content-Encoding: br"),
        answer(hostile.zstd_bomb(), "Content-Encoding: zstd"),
        answer(hostile.empty_gzip_members(), "Content-Encoding: gzip"),
    ],
    "endless, dripping and huge bodies": lambda: [hostile.endless, hostile.body_drip, hostile.huge_chunk, HUGE],
    "chunks of one byte and of two": lambda: [hostile.tiny_chunks, hostile.small_chunks],
    "headers, trailers and interim answers without end": lambda: [
        hostile.million_headers,
        hostile.huge_header_line,
        hostile.endless_trailers,
        hostile.interim_flood,
    ],
}


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads the peak of memory in /proc")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if "headers" in name else pytest.mark.slow) for name in ATTACKS]
)
def test_hostile_servers_cost_the_fetcher_at_most_40_megabytes_and_its_deadline(name: str, make_links: Any) -> None:
    with closing(LocalWeb(HOSTS)) as web:
        answers = ATTACKS[name]()
        good = [web.plant(f"/good/{i}", answer(b"<html>good"), host=i + 1) for i in range(len(HOSTS))]
        urls = [web.plant(f"/{i}", answers[i % len(answers)], host=i + 1) for i in range(len(HOSTS))]
        sets = make_links(good, "good"), make_links(urls, "hostile")
        command = [sys.executable, "-c", CHILD, str(web.port), str(DEADLINE), *sets]
        child = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    found = json.loads(child.stdout)
    assert found["counts"]["records_in"] == len(HOSTS)
    assert found["growth"] < MAX_GROWTH
