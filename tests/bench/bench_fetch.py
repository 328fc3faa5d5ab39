"""CPU of fetching: pages of one size from 200 local hosts, through `fetch_pages` and through bare aiohttp in the same run.

    python tests/bench/bench_fetch.py [PAGES]

Ours does more: robots.txt, address check, limits, WARC, index, fetch log. The server runs in another process. Prints the
median of five runs, and the peak memory of the first of ours; wall time depends on the neighbours, CPU hardly.
"""

from __future__ import annotations

import asyncio
import gzip
import multiprocessing
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from webtext.base.partwriter import SetWriter
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import link_id
from webtext.crawl.fetch import FetchSettings, fetch_pages

PORT = 18_099
HOSTS = [f"127.0.1.{i}" for i in range(1, 201)]
CONCURRENCY = 100
RUNS = 5


def page() -> bytes:
    """About 150 KB of words, gzipped."""
    chance = random.Random(1)
    words = ("alpha", "beta", "gamma", "delta", *(f"word{i}" for i in range(5000)))
    return gzip.compress(("<html>" + " ".join(chance.choice(words) for _ in range(17_500))).encode(), 6)


def serve(body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    answer = head % len(body) + body
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(missing if request.startswith(b"GET /robots.txt") else answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def listen() -> None:
        for host in HOSTS:
            await asyncio.start_server(talk, host, PORT)
        await asyncio.Event().wait()

    asyncio.run(listen())


async def bare_aiohttp(urls: list[str]) -> None:
    queue = iter(urls)
    connector = aiohttp.TCPConnector(limit=CONCURRENCY)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

        async def work() -> None:
            for url in queue:
                async with session.get(url) as response:
                    await response.read()

        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))


def make_links(urls: list[str], folder: Path) -> None:
    writer = SetWriter(str(folder), "links", Recipe(stage="bench", code_version=1, settings={}))
    base = {"domain": "bench", "karma": 3, "karma_sum": 3, "first_created": 1, "posts": [], "split": "train"}
    with writer.part(0, key="bench") as part:
        part.write([{"link_id": link_id(url), "url": url, "url_raw": url, **base} for url in urls])
        published = part.publish()
    writer.seal([published])


def main(n_pages: int) -> None:
    body = page()
    server = multiprocessing.Process(target=serve, args=(body,), daemon=True)
    server.start()
    time.sleep(2)
    urls = [f"http://{HOSTS[i % len(HOSTS)]}:{PORT}/page/{i}" for i in range(n_pages)]
    settings = FetchSettings(delay=0.0, concurrency=CONCURRENCY, allow_address=("127.0.0.0/8",))
    cpu: dict[str, list[float]] = {"webtext": [], "bare aiohttp": []}
    peak = 0
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            make_links(urls, Path(folder, "links"))
            start = time.process_time()
            pages = fetch_pages(f"{folder}/links", f"{folder}/pages", settings, Run.quiet())
            cpu["webtext"].append(time.process_time() - start)
            peak = peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if pages is None or pages.counts.kept != n_pages:
                raise SystemExit(f"pages are missing: {pages and pages.counts}")
        start = time.process_time()
        asyncio.run(bare_aiohttp(urls))
        cpu["bare aiohttp"].append(time.process_time() - start)
    print(f"{n_pages:,} pages of {len(gzip.decompress(body)):,} bytes, {len(body):,} gzipped, {len(HOSTS)} hosts")
    ours, bare = (statistics.median(seconds) / n_pages * 1000 for seconds in cpu.values())
    print(
        f"webtext        {ours:.2f} ms CPU a page, {ours / bare:.1f} times bare aiohttp; peak memory {peak / 1024:.0f} MiB"
    )
    print(f"bare aiohttp   {bare:.2f} ms CPU a page, the bodies read and nothing else")
    server.terminate()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
