"""The fetch stage: turns a links set into a pages set with a row for every link and a WARC record for every page.

Each host is one queue (`crawl/fetch/host_queues.py`). Fetching is not a pure function, so this stage writes its part
set itself (`crawl/pages/pages_set.py`), part by part. After a kill, rerun the same command to resume.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gc
import platform
import resource
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import uvloop

from webtext.base.config import recipe_settings
from webtext.base.console import Progress, counted
from webtext.base.errors import ConfigError, DryRun
from webtext.base.parts.digest import link_keys
from webtext.base.parts.partset import MANIFEST, PARENTS, PartSet, places_of
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Parts, Run, peak_bytes
from webtext.base.sample import Sample
from webtext.base.storage import Folder, disk_error, temporary_folder
from webtext.base.web.urls import is_fetchable
from webtext.crawl.blocklists import DomainBlocklists, Exclusions, unnamed_lists
from webtext.crawl.fetch.answers import Known
from webtext.crawl.fetch.client.addresses import AddressRule, AllowedAddress, is_loopback_host
from webtext.crawl.fetch.client.client import Client, host_and_port
from webtext.crawl.fetch.clock_file import ClockFile
from webtext.crawl.fetch.frontier import Frontier
from webtext.crawl.fetch.host_queues import HostQueues
from webtext.crawl.fetch.hosts import MAX_DELAY, MAX_HOST_FAILURES, Hosts, Pace
from webtext.crawl.fetch.page_source import Leftovers, PageSource, is_final
from webtext.crawl.fetch.robots.cache import GONE_DAYS, GONE_RUNS, SILENT_SITES, SilentSites
from webtext.crawl.fetch.robots.check import OptOutCheck
from webtext.crawl.fetch.settings import WEB, FetchSettings, open_files
from webtext.crawl.fetch.visitor import Visitor
from webtext.crawl.pages.link_table import ChosenLinks, LinkTable, are_fetchable, link_batches, only, over_host_cap
from webtext.crawl.pages.pages_set import PagesSet, pages_writer, take_over
from webtext.crawl.pages.reasons import BAD_URL, FETCHED, OVER_HOST_CAP, outcome_of
from webtext.crawl.pages.visit import QueuedLink, Visit
from webtext.crawl.user_agent import user_agent

CODE_VERSION = 5  # 5: binary data without a type, segmented records, further captures
CONTACT = "set contact (crawl fetch: --contact) to an e-mail address or a URL, which is sent in the User-Agent"
WINDOW_SECONDS, SAMPLE_SECONDS = 60.0, 1.0  # of the pace in the progress line

OpenArchives = Callable[
    [FetchSettings, OptOutCheck, Known, AddressRule, Hosts, contextlib.AsyncExitStack],
    Awaitable[Mapping[str, PageSource]],
]
"""Opens the archives among the sources in the settings (`crawl/archives/sources.py`)."""


class _NoPandas:
    """Makes pyarrow's first look for pandas fail, which would import it: 44 MiB that a crawl doesn't need."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError(name)


def fetch_pages(
    links: str,
    out: str,
    settings: FetchSettings,
    run: Run,
    sample: Sample | None = None,
    smaller: PartSet | None = None,
    open_archives: OpenArchives | None = None,
    parts: Parts | None = None,
) -> PartSet:
    """Fetch every link of the set `links` that has no row yet in the pages set `out`, and seal it.

    With a `sample`, only the sampled links get rows. They are the rows that a crawl of all links would write: a
    redirect to any link of the set is `redirects_to_link`. So if `out` is empty, the pages of a `smaller` sample are
    taken over. `open_archives` is needed if the settings name a source other than the web. With `parts`, only the links
    of every `of`-th host get rows, by a hash of its name, and the others are counted.

    Rows of links that have left the set are kept; their number is printed and written to `run.json`.

    Raises ConfigError, before anything is sent, if `open_archives` is missing, or if a link leaves this machine and no
    contact is set. Raises InputError if `out` was started with other settings or if the sample has no link. Ctrl-C
    publishes what is complete. Raises DryRun under `run.dry_run` if there is work.
    """
    if open_archives is None and settings.sources != (WEB,):
        named = ", ".join(settings.sources)
        raise ConfigError(f"the sources are {named}, but open_archives is not given", "pass crawl.archives' function")
    started, began = time.time(), time.process_time()
    sys.meta_path.insert(0, _NoPandas)
    pa.array([0])
    sys.meta_path.remove(_NoPandas)
    parent = PartSet.open(links, "links")
    domains = DomainBlocklists.read(settings.domain_blocklist)
    recipe = _recipe(settings, domains, sample)
    if smaller is not None and not run.dry_run and take_over(smaller, out, recipe, parent):
        run.console.say(f"crawl.fetch: starts with the {counted(smaller.records, 'link')} of '{smaller.folder.url}'")
    pages = PagesSet(out, recipe, parent, settings.part_pages)
    table = LinkTable(link_keys(batch["link_id"]) for batch in link_batches(parent, ["link_id"]))
    n_gone = pages.done.missing_from(table)
    if n_gone:
        run.console.say(f"crawl.fetch: '{out}' keeps {counted(n_gone, 'row')} of links that are no longer in '{links}'")
    if settings.contact is None:
        _check_loopback(parent)
    chosen = ChosenLinks(parent, sample, parts)
    n_links = n_all = len(table) if sample is None else ChosenLinks(parent, sample).count()
    chosen.check(n_all)
    n_missing = n_links - (len(pages.done) - n_gone)
    if parts is not None:
        n_links, n_missing = chosen.count(), chosen.count(pages.done)
        run.console.say(f"crawl.fetch: {counted(n_all - n_links, 'link')} on hosts of the other parts")
    run.console.say(f"crawl.fetch: {counted(n_links, 'link')}, {n_links - n_missing:,} done, {n_missing:,} to fetch")
    if run.dry_run:
        if n_missing or pages.recovered or not Folder(out).exists(MANIFEST):
            raise DryRun
        return PartSet.open(out, "pages")
    n_waiting = 0
    if n_missing or pages.recovered:
        n_waiting = _crawl(
            parent, chosen.batches(pages.done), table, pages, settings, domains, open_archives, n_missing, run
        )
    about = {
        "started": started,
        "seconds": time.time() - started,
        "cpu_seconds": time.process_time() - began,
        "peak_bytes": peak_bytes(),
        "host": platform.node(),
        "workers": 1,
        "links_gone": n_gone,
        "links_elsewhere": n_all - n_links,
        PARENTS: places_of([parent], Folder(out)),
    }
    if n_waiting:
        run.console.warn(
            f"{n_waiting:,} links have no row yet: archives are asked once their sites have not answered in "
            f"{GONE_RUNS} runs over {GONE_DAYS:g} days; rerun the same command on later days"
        )
    return pages.seal(about, complete=not n_waiting)


def check_pages(out: str, settings: FetchSettings, sample: Sample | None = None) -> None:
    """Raise the errors of `fetch_pages` that don't depend on the links, so that they come before links are written."""
    # allow_address is for pages on this machine
    if not (settings.contact or settings.allow_address or Folder(out).exists(MANIFEST)):
        raise ConfigError("[crawl.fetch] contact is not set, so no page may be fetched", CONTACT)
    pages_writer(out, _recipe(settings, DomainBlocklists.read(settings.domain_blocklist), sample))


def _recipe(settings: FetchSettings, domains: DomainBlocklists, sample: Sample | None) -> Recipe:
    in_recipe = recipe_settings(settings) | {"domain_blocklists": domains.about()}
    in_recipe |= {"gone_runs": GONE_RUNS, "gone_days": GONE_DAYS} if settings.take_gone_sites else {}
    in_recipe |= {"sample": str(sample)} if sample is not None else {}
    return Recipe(stage="crawl.fetch", code_version=CODE_VERSION, settings=in_recipe)


def _check_loopback(links: PartSet) -> None:
    for batch in link_batches(links, ["url"]):
        for url in filter(is_fetchable, batch["url"].to_pylist()):
            if not is_loopback_host(host_and_port(url)[0]):
                said = f"no contact: '{url}' is not on this machine, and its owner could not reach you"
                raise ConfigError(said, CONTACT)


def _exclusions(links: PartSet, domains: DomainBlocklists, run: Run) -> Exclusions:
    link_settings = links.recipe["settings"]
    for name in unnamed_lists(link_settings, domains):
        run.console.warn(
            f"the blocklist '{name}' was applied to the links but not to redirects: pass it with --domain-blocklist"
        )
    return Exclusions(link_settings, domains)


def _crawl(
    links: PartSet,
    missing: Iterator[pa.RecordBatch],
    table: LinkTable,
    pages: PagesSet,
    settings: FetchSettings,
    domains: DomainBlocklists,
    open_archives: OpenArchives | None,
    n_missing: int,
    run: Run,
) -> int:
    """Fetch the `missing` links, and return the number of links that wait for a later run."""
    with pages.writing(), run.console.progress(n_missing, "crawl.fetch", "links") as progress, _rare_collection():
        try:
            over_cap = over_host_cap(links, settings.max_pages_per_host)
            crawl = _Crawl(table, pages, settings, _exclusions(links, domains, run), open_archives, over_cap, progress)
            # asyncio's own loop takes 0.53 ms of CPU per page, uvloop 0.51; over TLS 1.71 and 1.49, and 324 and 229 MiB.
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(crawl.run(missing))
        except KeyboardInterrupt:
            pages.publish()
            raise
        except Exception as error:  # perhaps of a scratch file; pages name their own folder
            raise disk_error(error, temporary_folder()) or error from None
        pages.publish()
    return crawl.n_waiting


@contextlib.contextmanager
def _rare_collection() -> Iterator[None]:
    """Collect garbage less often, and not among existing objects: the default took a tenth of a crawl's CPU time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(20_000, *thresholds[1:])
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


class Tally:
    """The note in the progress line: the pace of the last minute, and the number of links by outcome."""

    def __init__(self) -> None:
        self._outcomes: Counter[str] = Counter()
        self._n_bytes = 0
        self._samples = deque([(time.monotonic(), 0, 0)])  # (moment, links, bytes) in the last minute
        self._note = ""

    def add(self, outcome: str, n_bytes: int) -> str:
        """Count a finished link, and return the note, which changes at most once per second."""
        self._outcomes[outcome] += 1
        self._n_bytes += n_bytes
        now = time.monotonic()
        if not self._note or now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((now, self._outcomes.total(), self._n_bytes))
            while len(self._samples) > 2 and now - self._samples[0][0] > WINDOW_SECONDS:
                self._samples.popleft()
            self._note = self.note()
        return self._note

    def note(self) -> str:
        """Return links and bytes per second, and the outcomes."""
        (then, links, n_bytes), (now, *_) = self._samples[0], self._samples[-1]
        seconds = max(now - then, 1e-3)
        n_links, n_mib = self._outcomes.total() - links, (self._n_bytes - n_bytes) / 2**20
        pace = f"{n_links / seconds:,.1f} links/s, {n_mib / seconds:,.2f} MiB/s"
        return ", ".join([pace, *(f"{count:,} {outcome}" for outcome, count in sorted(self._outcomes.items()))])


@dataclass(slots=True)
class _Crawl:
    """One run of the crawl. Sources are asked in turn, each for the links that earlier ones failed to get."""

    table: LinkTable
    pages: PagesSet
    settings: FetchSettings
    exclusions: Exclusions
    open_archives: OpenArchives | None
    over_cap: LinkTable
    progress: Progress
    tally: Tally = field(default_factory=Tally)
    n_waiting: int = 0
    opt_outs: OptOutCheck = field(init=False)

    async def run(self, links: Iterator[pa.RecordBatch]) -> None:
        """Give every link a row. Only an error in writing ends the run, nothing on the web does."""
        settings = self.settings
        pace = Pace(
            delay=settings.delay,
            concurrency=settings.requests_at_once,
            max_delay=MAX_DELAY,
            max_pause=settings.max_pause,
            max_host_failures=MAX_HOST_FAILURES,
        )
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, open_files()) if soft >= 0 else soft, hard))
        folder = self.pages.local_folder
        with contextlib.closing(Hosts(pace, ClockFile(folder) if folder else None)) as hosts:
            async with contextlib.AsyncExitStack() as stack:
                for source in await self._sources(hosts, stack):
                    left = stack.enter_context(Leftovers(self.pages.scratch_path("leftovers")))
                    is_last = source.name == settings.sources[-1]
                    with Frontier(self._under_cap(links), self.pages.scratch_path("frontier")) as frontier:
                        await source.run(frontier.queues(), functools.partial(self._finish, None if is_last else left))
                    links = left.batches()

    async def _sources(self, hosts: Hosts, stack: contextlib.AsyncExitStack) -> list[PageSource]:
        settings = self.settings
        allowed = tuple(AllowedAddress.parse(text) for text in settings.allow_address)
        rule = AddressRule(allowed, has_contact=settings.contact is not None)
        client = await stack.enter_async_context(Client(user_agent(settings.contact), rule, hosts))
        self.opt_outs = opt_outs = OptOutCheck(client, settings, self._silent_sites())
        known = Known(self.table.has_url, self.pages.held.has_url, self.exclusions.excludes)
        found: dict[str, PageSource] = {}
        if self.open_archives is not None:
            found |= await self.open_archives(settings, opt_outs, known, rule, hosts, stack)
        if WEB in settings.sources:
            visitor = Visitor(client, opt_outs, settings, known)

            def pause(url: str) -> float:
                host, _ = host_and_port(url)
                return 0.0 if hosts.refusal(host) else hosts.wait(host)

            found[WEB] = HostQueues(WEB, lambda _, visit: visitor.visit(visit), settings, pause)
        return [found[name] for name in settings.sources]

    def _silent_sites(self) -> SilentSites:
        """Return the sites that have not answered so far, from the set's folder. In a remote folder nothing is kept."""
        folder = self.pages.local_folder
        path = folder / SILENT_SITES if folder and self.settings.take_gone_sites else None
        return SilentSites(path, GONE_RUNS, GONE_DAYS)

    def _finish(self, left: Leftovers | None, link: QueuedLink, visit: Visit) -> None:
        """Write the link's row, or leave the link to the next source or to a later run."""
        settings = self.settings
        is_over = visit.reason is None or is_final(visit.reason, take_gone_sites=settings.take_gone_sites)
        if left is None and not is_over and settings.sources != (WEB,) and self.opt_outs.is_waiting(visit):
            self.n_waiting += 1
            self.progress.advance(note=self.tally.add("waiting", 0))
        elif left is None or is_over:
            self._done(link, visit)
        else:
            tried = f"{link.tried}; " if link.tried else ""
            tried += f"{visit.source}: {visit.reason}"
            left.add(dataclasses.replace(link, tried=tried, requests=link.requests + visit.requests))

    def _under_cap(self, links: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the links to visit. Links with bad URLs or over the cap on pages per host get their rows here."""
        for batch in links:
            are_left = are_fetchable(batch["url"]) & ~self.over_cap.has(batch["link_id"])
            for row in only(batch, ~are_left).to_pylist():
                reason = OVER_HOST_CAP if is_fetchable(row["url"]) else BAD_URL
                self._done(QueuedLink(**row), Visit(url=row["url"], reason=reason))
            yield only(batch, are_left)

    def _done(self, link: QueuedLink, visit: Visit) -> None:
        self.pages.add(link, visit)
        outcome = FETCHED if visit.reason is None else outcome_of(visit.reason)
        n_bytes = 0 if visit.exchange is None else len(visit.exchange.body)
        self.progress.advance(note=self.tally.add(outcome, n_bytes))
