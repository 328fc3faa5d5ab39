"""Each crawler as a function from URLs to what it read. As a program, this file makes one measured run in its process.

    python tests/bench/crawl_clients.py NAME URLS_FILE FOLDER CHECK MODULES_FILE

Prints one JSON object: CPU milliseconds per page between the first request and the last byte written, peak memory,
bytes left on disk, and with CHECK=1 the SHA-256 of every body as the crawler decoded it. Importing isn't counted:
modules that a crawler imports only while it runs (300 for Scrapy) are returned as `modules`, and are imported before
the measurement if MODULES_FILE lists them. All crawlers send up to 100 requests at a time and keep connections open.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import json
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from arguments import words

CONCURRENCY = 100
MAX_BODY_BYTES = 64 << 20
MADE_AS_IT_RUNS = {"twisted.internet.reactor"}  # importing it selects it
Take = Callable[[str, bytes], None]
"""Called with the URL and the decoded body of a page."""


def write_links(folder: Path, urls: Sequence[str]) -> None:
    """Write a links set of these URLs."""
    from webtext.base.parts.identifiers import link_id
    from webtext.base.parts.recipe import Recipe
    from webtext.base.parts.stage import SetWriter

    writer = SetWriter(str(folder), "links", Recipe(stage="bench", code_version=1, settings={}))
    base = {"domain": "bench", "karma": 3, "karma_sum": 3, "first_created": 1, "posts": [], "split": "train"}
    with writer.part(0, key="bench") as part:
        part.write([{"link_id": link_id(url), "url": url, "url_raw": url, **base} for url in urls])
        writer.seal([part.publish()])


def webtext(urls: Sequence[str], folder: Path, take: Take | None) -> Callable[[], None]:
    from webtext.base.run import Run
    from webtext.base.storage import Folder
    from webtext.base.warc.reader import read_responses
    from webtext.crawl.fetch.run import fetch_pages
    from webtext.crawl.fetch.settings import FetchSettings

    write_links(folder / "links", urls)
    settings = FetchSettings(
        contact="bench@example.org",
        delay=0.0,
        concurrency=CONCURRENCY,
        allow_address=("127.0.0.0/8",),
        obey_noindex=False,  # some real pages opt out; opt-outs are still detected and recorded
    )

    def fetch() -> None:
        pages = fetch_pages(str(folder / "links"), str(folder / "pages"), settings, Run.quiet())
        if pages is None or pages.counts.kept != len(urls):
            raise SystemExit(f"pages are missing: {pages and pages.counts}")
        for archive in sorted((folder / "pages").glob("*.warc.gz")) if take else ():
            for response in read_responses(Folder(folder / "pages"), archive.name):
                take(response.url, response.body(MAX_BODY_BYTES))  # type: ignore[misc]

    return fetch


def bare_aiohttp(urls: Sequence[str], folder: Path, take: Take | None) -> Callable[[], None]:
    """Read the bodies as sent, and do nothing else."""
    import aiohttp

    from webtext.base.web.content_coding import decode_body

    async def fetch() -> None:
        left = iter(urls)
        is_secure = urls[0].startswith("https:")
        context = ssl.create_default_context() if is_secure else True  # created in the measured time, like webtext's
        connector = aiohttp.TCPConnector(limit=CONCURRENCY, ssl=context)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

            async def work() -> None:
                for url in left:
                    async with session.get(url) as response:
                        body = await response.read()
                    if take:
                        take(url, decode_body(body, "", response.headers.get("Content-Encoding", ""), MAX_BODY_BYTES))

            await asyncio.gather(*(work() for _ in range(CONCURRENCY)))

    return lambda: asyncio.run(fetch())


def scrapy(urls: Sequence[str], folder: Path, take: Take | None) -> Callable[[], None]:
    """Crawl with the settings that Scrapy's manual recommends for broad crawls, obey robots.txt, store nothing."""
    from scrapy import Spider
    from scrapy.crawler import CrawlerProcess

    class Pages(Spider):
        name = "pages"
        start_urls = list(urls)

        def parse(self, response: Any) -> None:
            if take:
                take(response.url, response.body)

    settings = {
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
        "CONCURRENT_REQUESTS": CONCURRENCY,
        "REACTOR_THREADPOOL_MAXSIZE": 20,
        "LOG_LEVEL": "ERROR",
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "REDIRECT_ENABLED": False,
        "DOWNLOAD_TIMEOUT": 60,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": True,
        "TELNETCONSOLE_ENABLED": False,
    }

    def fetch() -> None:
        process = CrawlerProcess(settings)
        process.crawl(Pages)
        process.start()

    return fetch


CLIENTS: dict[str, Callable[[Sequence[str], Path, Take | None], Callable[[], None]]] = {
    "webtext": webtext,
    "bare aiohttp": bare_aiohttp,
    "Scrapy": scrapy,
}


def main(name: str, urls_file: str, folder: str, check: str, modules_file: str) -> None:
    urls = Path(urls_file).read_text().split()
    found: dict[str, str] = {}

    def take(url: str, body: bytes) -> None:
        found[url] = hashlib.sha256(body).hexdigest()

    fetch = CLIENTS[name](urls, Path(folder), take if check == "1" else None)
    for module in Path(modules_file).read_text().split():
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    imported = set(sys.modules)
    start = time.process_time()
    fetch()
    milliseconds = (time.process_time() - start) / len(urls) * 1000
    n_bytes = sum(path.stat().st_size for path in Path(folder, "pages").rglob("*") if path.is_file())
    status = Path("/proc/self/status").read_text()  # getrusage's peak would include the parent's before exec
    peak = int(status.partition("VmHWM:")[2].split()[0])
    modules = [module for module in sys.modules if module not in imported | MADE_AS_IT_RUNS]
    print(
        json.dumps(
            {"milliseconds": milliseconds, "peak_kib": peak, "bytes": n_bytes, "found": found, "modules": modules}
        )
    )


if __name__ == "__main__":
    main(*words(__doc__, "name", "urls_file", "folder", "check", "modules_file"))
