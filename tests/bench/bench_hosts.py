"""Many hosts: those of one address beside others, hosts whose answers take a second, and the start of a large crawl.

    python tests/bench/bench_hosts.py [SHARED] [SLOW] [PAGES] [LINKS]

SHARED hosts have one address, and as many have their own (127.0.x.y); each has two pages. The crawl is stopped as soon
as the hosts with their own address are done, and is compared with a crawl of them alone. Then PAGES pages are fetched
from each of SLOW hosts that answer after a second. The crawler gets one core, the server another if there is one.
The delay is the default, a second. Times are wall times, because most of a crawl is waiting. Before that, a crawl of LINKS
links on a ninth as many hosts is started, from nothing and with half of the links done, up to the first link of 10,000
hosts. Its memory is the process's own: files that are mapped into memory, which the system may drop, are not counted.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import uvloop
from arguments import positional
from crawl_clients import write_links
from crawl_server import hosts

from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import LINK, PAGE
from webtext.crawl.blocklists import DomainBlocklists
from webtext.crawl.fetch.run import _recipe
from webtext.crawl.visits.settings import FetchSettings

PORT = 18_097
ROWS = 500_000
SHARED_ADDRESS = "127.0.0.1"
CHILD = """
import os, sys
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
from webtext.base.run import Run
from webtext.crawl.exchange import resolver
from webtext.crawl.fetch.run import fetch_pages
from webtext.crawl.visits.settings import FetchSettings
async def look_up(_, host):
    return [sys.argv[3]]
resolver.Names.look_up = look_up
allowed = ("127.0.0.0/8",)
fetch_pages(sys.argv[1], sys.argv[2], FetchSettings(contact="bench@example.org", allow_address=allowed), Run.quiet())
"""
START = """
import itertools, os, sys, time
from webtext.base.run import Run
from webtext.crawl.fetch import run
from webtext.crawl.visits.settings import FetchSettings
async def first_links(_, queues, answer):
    for queue in itertools.islice(queues, 10_000):
        next(queue())
    print(time.process_time(), flush=True)
    sys.stdin.read()
    os._exit(0)
run.HostQueues.run = first_links
run.fetch_pages(sys.argv[1], sys.argv[2], FetchSettings(contact="bench@example.org"), Run.quiet())
"""
_PAGE = b"<html><body>a page"
_ANSWERS = {
    True: b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(_PAGE), _PAGE),
    False: b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
}


class _Talk(asyncio.Protocol):
    def __init__(self, seconds: float, n_pages: dict[bool, Any]) -> None:
        self._seconds = seconds
        self._n_pages = n_pages

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._is_shared = transport.get_extra_info("sockname")[0] == SHARED_ADDRESS

    def data_received(self, data: bytes) -> None:
        is_page = b" /robots.txt " not in data and b" /.well-known/" not in data
        self._n_pages[self._is_shared].value += is_page
        asyncio.get_running_loop().call_later(self._seconds, self._transport.write, _ANSWERS[is_page])


def _serve(seconds: float, n_pages: dict[bool, Any], ready: Any) -> None:
    async def listen() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: _Talk(seconds, n_pages), "0.0.0.0", PORT, backlog=10_000)  # noqa: S104
        ready.set()
        await asyncio.Event().wait()

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    uvloop.run(listen())


@contextmanager
def serving(seconds: float) -> Iterator[dict[bool, Any]]:
    """Serve on all of 127.0.0.0/8; yield the number of pages requested from the shared address (True) and others."""
    n_pages = {is_shared: multiprocessing.Value("q", 0, lock=False) for is_shared in (True, False)}
    ready = multiprocessing.Event()
    server = multiprocessing.Process(target=_serve, args=(seconds, n_pages, ready), daemon=True)
    server.start()
    try:
        if not ready.wait(60):
            raise SystemExit(f"the server did not begin to listen on port {PORT}")
        yield n_pages
    finally:
        server.terminate()
        server.join()


def crawl(urls: Sequence[str], n_own: int, seconds: float = 0.0) -> tuple[float, float, int, str]:
    """Crawl until `n_own` pages were requested from other addresses than the shared one.

    Returns the seconds from the first of them to the middle 80 % and to the last, the requests for pages of the shared
    address in that time, and the crawler's CPU time and peak memory.
    """
    with tempfile.TemporaryDirectory() as folder, serving(seconds) as n_pages:
        write_links(Path(folder, "links"), urls)
        command = [sys.executable, "-c", CHILD, f"{folder}/links", f"{folder}/pages", SHARED_ADDRESS]
        child = subprocess.Popen(command)
        moments: list[float] = []
        try:
            for mark in (1, max(1, n_own // 10), max(1, n_own * 9 // 10), n_own):
                while n_pages[False].value < mark:
                    if child.poll() is not None:
                        raise SystemExit(f"the crawl ended after {n_pages[False].value} of {n_own} pages")
                    time.sleep(0.01)
                moments.append(time.monotonic())
            first, early, late, last = moments
            peak = next(line for line in Path(f"/proc/{child.pid}/status").read_text().splitlines() if "VmHWM" in line)
            user, system = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            cpu = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
            used = f"{cpu:.1f} s of CPU, peak {int(peak.split()[1]) >> 10} MiB"
            return max(late - early, 0.01), max(last - first, 0.01), n_pages[True].value, used
        finally:
            child.kill()
            child.wait()


def write_many_links(folder: Path, n_links: int) -> None:
    """Write `n_links` links, whose hosts' numbers of links fall like the square root of their rank."""
    writer = SetWriter(str(folder), "links", Recipe(stage="bench", code_version=1, settings={}))
    post = {"source": "bench", "post_id": "p", "subreddit": "s", "score": 3, "created": 1, "retrieved": None}
    random = np.random.default_rng(0)
    parts = []
    for first in range(0, n_links, ROWS):
        with writer.part(len(parts), key=f"bench {first}") as part:
            ranks = (n_links / 9 * random.random(min(ROWS, n_links - first)) ** 2).astype(int).tolist()
            urls = [f"http://www.host{rank}.example/a/page/{first + i}.html" for i, rank in enumerate(ranks)]
            columns: dict[str, Any] = {"link_id": [link_id(url) for url in urls], "url": urls, "url_raw": urls}
            columns |= {"domain": [f"host{rank}.example" for rank in ranks], "split": ["train"] * len(urls)}
            columns |= {name: [3] * len(urls) for name in ("karma", "karma_sum", "first_created")}
            part.write_table(pa.table(columns | {"posts": [[post]] * len(urls)}, schema=LINK))
            parts.append(part.publish())
    writer.seal(parts)


def write_half_of_the_pages(folder: Path, links: PartSet) -> None:
    """Write a pages set with a row for every other link of each part, as an unfinished crawl leaves it."""
    settings = FetchSettings(contact="bench@example.org")
    writer = SetWriter(str(folder), "pages", _recipe(settings, DomainBlocklists.read(()), None), [links])
    parts = []
    for each in links.parts:
        with writer.part(len(parts), key=each.name) as part:
            some = links.table(each)[::2]
            columns = {name: some[name] for name in PAGE.names if name in some.column_names}
            columns |= {"final_url": some["url"], "voted": some["first_created"]}
            known = {"outcome": "fetched", "source": "web", "requests": 1}
            for field in PAGE:
                if field.name not in columns:
                    value = known.get(field.name, None if field.nullable else [])
                    columns[field.name] = pa.array([value] * len(some), field.type)
            part.write_table(pa.table(columns).select(PAGE.names).cast(PAGE))
            parts.append(part.publish())
    writer.seal(parts, complete=False, reproducible=False)


def start(links: Path, pages: Path) -> str:
    """Start a crawl; return its wall and CPU time up to the first links, and its peak memory."""
    began, peak = time.monotonic(), 0
    with subprocess.Popen(
        [sys.executable, "-c", START, links, pages], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        while not select.select([child.stdout], [], [], 0.01)[0]:
            status = Path(f"/proc/{child.pid}/status").read_text()
            peak = max([peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))])
        cpu = float(child.stdout.readline() or "nan")
        return f"{time.monotonic() - began:.1f} s, {cpu:.1f} s of CPU, peak {peak >> 10} MiB"


def main(n_shared: int, n_slow: int, n_pages: int, n_links: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        links, pages = Path(folder, "links"), Path(folder, "pages")
        write_many_links(links, n_links)
        print(f"start with {n_links:,} links: {start(links, pages)}")
        write_half_of_the_pages(pages, PartSet.open(str(links), "links"))
        print(f"  with half of them done: {start(links, pages)}")
    own = [f"http://{host}:{PORT}/{i}" for host in hosts(n_shared) for i in range(2)]
    shared = [f"http://blog{i}.example:{PORT}/{n}" for i in range(n_shared) for n in range(2)]
    print(f"{n_shared:,} hosts with their own addresses, two pages each:")
    for name, urls in {"alone": own, f"beside {n_shared:,} hosts of one address": [*shared, *own]}.items():
        _, took, n_asked, used = crawl(urls, len(own))
        about = f"; {n_asked} pages of the shared address in that time" if n_asked else ""
        print(f"  {name}: {took:.1f} s, {len(own) / took:,.0f} pages/s, {used}{about}")
    slow = [f"http://{host}:{PORT}/{i}" for host in hosts(n_slow) for i in range(n_pages)]
    middle, took, _, used = crawl(slow, len(slow), seconds=1.0)
    rate = 0.8 * len(slow) / middle
    print(f"{n_slow:,} hosts that answer after a second, {n_pages} pages each, one core:")
    print(f"  {rate:,.0f} pages/s in the middle 80 %, {len(slow) / took:,.0f} over all, {used}")


if __name__ == "__main__":
    main(*positional(__doc__, shared=500, slow=500, pages=4, links=100_000))
