"""robots.txt and tdmrep.json by origin, fetched when first needed and kept for a day (RFC 9309 §2.4); silent sites.

robots.txt is fetched by the client that fetches pages, under the same limits. If it could not be fetched, it is requested
again when the first link that it blocked is retried.

RFC 9309 section 2.3.1.4: an unreachable robots.txt forbids everything until it has been unreachable "for a reasonably
long period of time (for example, 30 days)". So for `take_gone_sites` a file records sites that never answer. A line has
an origin, the times of its first and latest try, and the number of runs with a try, or 0 if it has answered since.
Several requests in one run count as one try.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from webtext.base.storage import Folder
from webtext.base.web.content_coding import BodyError, decoded_start
from webtext.base.web.opt_outs import KNOWN_TOKENS, PRODUCT_TOKEN
from webtext.crawl.fetch.client.client import NO_ANSWER, Client, RequestLimits, host_and_port
from webtext.crawl.fetch.client.headers import is_redirect, redirect_target
from webtext.crawl.fetch.robots.robots_txt import MAX_ROBOTS_BYTES, TDM_PATH, Robots, TdmFile
from webtext.crawl.fetch.settings import MIN_JITTER, RETRY_SECONDS
from webtext.crawl.pages.exchange import Exchange
from webtext.crawl.pages.visit import FetchFailed, FetchRefused

MAX_ROBOTS_REDIRECTS = 5  # RFC 9309 §2.3.1.2
KEPT_SECONDS = 24 * 3600.0
ORIGINS_KEPT = 50_000
RULES_KEPT = 500_000  # of all origins: 200 bytes each, and twice as much in short files
SMALL_BYTES = 4096  # of robots.txt as sent, which are parsed at once; others in a thread
HEADERS = {"Accept": "text/plain,*/*;q=0.1", "Accept-Encoding": "identity"}
SILENT_SITES = "silent.tsv"
DAY = 86_400.0
T = TypeVar("T")
GONE_RUNS, GONE_DAYS = 3, 30.0  # RFC 9309's example; several runs, so that one outage of ours is not a site's end


class SilentSites:
    """The origins that were asked and never answered. With `path` None, they are known in this run only."""

    def __init__(self, path: Path | None, min_runs: int, min_days: float) -> None:
        self._path = path
        self._min_runs = min_runs
        self._min_seconds = min_days * DAY
        self._known: dict[str, tuple[float, float, int]] = {}
        self._tried: set[str] = set()
        text = path.read_text(encoding="utf-8", errors="replace") if path is not None and path.exists() else ""
        for line in text.splitlines(keepends=True):
            self._take(line)
        if path is not None and text:
            known = "".join(_line(origin, *each) for origin, each in self._known.items())
            Folder(path.parent).write_bytes(path.name, known.encode())

    def did_not_answer(self, origin: str) -> None:
        """Count a try of this run, once per origin."""
        if origin not in self._tried:
            self._tried.add(origin)
            now = time.time()
            first, _, n_runs = self._known.get(origin, (now, now, 0))
            self._note(origin, first, now, n_runs + 1)

    def answered(self, origin: str) -> None:
        """Reset the tries of an origin, because it answered."""
        if origin in self._known:
            self._note(origin, 0.0, 0.0, 0)

    def is_gone(self, origin: str) -> bool:
        """Whether the origin never answered in `min_runs` runs over `min_days` days."""
        first, latest, n_runs = self._known.get(origin, (0.0, 0.0, 0))
        return n_runs >= self._min_runs and latest - first >= self._min_seconds

    def is_waiting(self, origin: str) -> bool:
        """Whether a later run may find that `origin` is gone."""
        return self._path is not None and origin in self._known and not self.is_gone(origin)

    def _note(self, origin: str, first: float, latest: float, n_runs: int) -> None:
        line = _line(origin, first, latest, n_runs)
        self._take(line)
        if self._path is not None:
            # a full disk raises an error where pages are written
            with contextlib.suppress(OSError), open(self._path, "a", encoding="utf-8") as file:
                file.write(line)

    def _take(self, line: str) -> None:
        """Read a line. An incomplete one, left by a kill, is skipped."""
        try:
            origin, first, latest, n_runs = line.split("\t")
            known = float(first), float(latest), int(n_runs)
        except ValueError:
            return
        if line.endswith("\n"):
            self._known.pop(origin, None)
            if known[2] > 0:
                self._known[origin] = known


def _line(origin: str, first: float, latest: float, n_runs: int) -> str:
    return f"{origin}\t{first:.0f}\t{latest:.0f}\t{n_runs}\n"


class KeptFiles(Generic[T]):
    """What the sites asked last have stated: of ORIGINS_KEPT sites at most, with RULES_KEPT rules together."""

    def __init__(self) -> None:
        self._known: OrderedDict[object, tuple[float, T]] = OrderedDict()
        self._n_rules = 0

    def get(self, site: object) -> tuple[float, T] | None:
        """Return when the files were kept, and the files."""
        return self._known.get(site)

    def keep(self, site: object, files: T) -> None:
        """Keep a site's files, and forget the oldest if they are too many. They must not change any more."""
        self._n_rules += _n_rules(files) - _n_rules(self._known.pop(site, (0.0, None))[1])
        self._known[site] = time.monotonic(), files
        while len(self._known) > ORIGINS_KEPT or self._n_rules > RULES_KEPT:
            self._n_rules -= _n_rules(self._known.popitem(last=False)[1][1])


def _n_rules(files: object) -> int:
    return files.n_rules if isinstance(files, Robots) else 0


class RobotsCache:
    """Fetches each origin's robots.txt once a day. Pages that need it at the same time share one request."""

    def __init__(self, client: Client, limits: RequestLimits, silent: SilentSites, max_tdm_delay: float | None) -> None:
        """Only sites with a Crawl-delay of up to `max_tdm_delay` are asked for their tdmrep.json; if None, no site."""
        self._client = client
        self._silent = silent
        self._unreachable_seconds = RETRY_SECONDS * MIN_JITTER  # so that a link's next try asks again
        self._limits = replace(limits, max_bytes=MAX_ROBOTS_BYTES, truncate=True)
        self._max_tdm_delay = max_tdm_delay
        self._known = KeptFiles[Robots | str]()
        self._running: dict[str, asyncio.Task[Robots | str]] = {}

    async def get(self, url: str) -> Robots | str:
        """Return the robots.txt that applies to `url`, or, if it could not be fetched, the reason as text.

        A robots.txt that could not be fetched forbids everything until it is requested again.
        """
        origin = origin_of(url)
        known = self._known.get(origin)
        if known is not None:
            kept = self._unreachable_seconds if isinstance(known[1], str) else KEPT_SECONDS
            if time.monotonic() - known[0] < kept:
                return known[1]
        if origin not in self._running:
            self._running[origin] = asyncio.create_task(self._ask(origin))
        return await asyncio.shield(self._running[origin])

    async def _ask(self, origin: str) -> Robots | str:
        try:
            robots = await self._fetch_robots(origin)
            if not isinstance(robots, str):
                delay = robots.group(PRODUCT_TOKEN).crawl_delay
                self._client.hosts.ask_for_delay(host_and_port(origin + "/")[0], delay)
                is_asked = self._max_tdm_delay is not None and (delay or 0.0) <= self._max_tdm_delay
                if is_asked and await robots.judged(robots.allows, TDM_PATH, PRODUCT_TOKEN):
                    robots.tdm_file = await self._fetch_tdm_file(origin)
            self._known.keep(origin, robots)
            return robots
        finally:
            del self._running[origin]

    async def _fetch_robots(self, origin: str) -> Robots | str:
        reply = await self._follow(f"{origin}/robots.txt")
        if reply is None:
            return Robots(b"")  # RFC 9309: after too many redirects, the file counts as unavailable, so all is allowed
        if isinstance(reply, str):
            return reply
        return await asyncio.to_thread(_read, reply) if len(reply.body) > SMALL_BYTES else _read(reply)

    async def _fetch_tdm_file(self, origin: str) -> TdmFile:
        """Return the site's tdmrep.json; it states nothing if the site doesn't answer with one."""
        reply = await self._follow(origin + TDM_PATH)
        self._silent.answered(origin)  # for robots.txt it has, just before
        if isinstance(reply, Exchange) and reply.has_body:
            with contextlib.suppress(BodyError):
                return TdmFile.read(_decoded(reply))
        return TdmFile()

    async def _follow(self, url: str) -> Exchange | str | None:
        """Return the answer after redirects, or why there is none as text; None after too many redirects."""
        origin = origin_of(url)
        for hop in range(1 + MAX_ROBOTS_REDIRECTS):
            try:
                reply = await self._client.get(url, HEADERS, self._limits, lambda status, _: 200 <= status < 300)
            except (FetchFailed, FetchRefused) as error:
                if hop == 0 and error.reason in NO_ANSWER:
                    self._silent.did_not_answer(origin)
                return str(error)
            self._silent.answered(origin)
            if not is_redirect(reply.status):
                return reply
            target = redirect_target(url, reply.headers)
            if target is None:
                return "bad_redirect"
            url = target
        return None


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a canonical URL.

    >>> origin_of("http://example.com:8080/a?b")
    'http://example.com:8080'
    """
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _read(reply: Exchange) -> Robots | str:
    """Parse a 2xx answer. A 4xx allows everything, except 429 ("slow down"), which counts as unreachable like 5xx."""
    if reply.has_body:
        try:
            return read_robots(reply)
        except BodyError as error:  # it may forbid everything
            return str(error)
    return Robots(b"") if 400 <= reply.status < 500 and reply.status != 429 else f"http_{reply.status}"


def read_robots(reply: Exchange) -> Robots:
    """Parse the robots.txt in an answer or a capture. Raises BodyError if it can't be decoded."""
    return Robots(_decoded(reply), KNOWN_TOKENS, reply.captured)


def _decoded(reply: Exchange) -> bytes:
    """Decompress the body, since some servers compress unasked: at most MAX_ROBOTS_BYTES, even of a bomb."""
    return decoded_start(reply.body, *reply.codings, MAX_ROBOTS_BYTES)
