"""Estimates how long a crawl would take and how much it would fetch, without a cap on pages per host and with several.

A host gets one request at a time, so each of its links takes `delay` seconds plus the time of an answer. The crawl
lasts as long as the host that takes longest, unless all hosts together take longer at the chosen concurrency. Addresses
are unknown until names are looked up. If all hosts of a registrable domain share one address, and so its pace, the
largest domain decides. The two estimates are bounds. Hosts that are slow, busy or ask for a Crawl-delay take longer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet
from webtext.crawl.pages.link_table import count_hosts
from webtext.crawl.plan.settings import PlanSettings
from webtext.crawl.visits.settings import FetchSettings

DAY = 86_400
CAPS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between two requests to one host, and requests at a time over all hosts."""

    delay: float
    concurrency: int


@dataclass(frozen=True, slots=True)
class Largest:
    """A host or domain with many links, and the days that its links take."""

    name: str
    links: int
    days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderCap:
    """The estimate for one cap on pages per host; None means no cap."""

    max_pages_per_host: int | None
    links: int
    links_ratio: float
    capped_hosts: int
    days_by_host: float  # the host that takes longest
    days_by_domain: float  # the domain that takes longest, if all its hosts share one address
    days_by_concurrency: float  # all hosts together
    wire_bytes: int
    warc_bytes: int

    @property
    def days(self) -> float:
        """Days that the crawl takes if every host has its own address."""
        return max(self.days_by_host, self.days_by_concurrency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The estimates for one crawl."""

    links: int
    hosts: int
    domains: int
    pace: Pace
    assumed: PlanSettings
    measured_in: str | None  # the pages set that the assumptions were measured in
    largest_hosts: tuple[Largest, ...]
    largest_domains: tuple[Largest, ...]
    caps: tuple[UnderCap, ...]  # without a cap first, then from the loosest cap to the tightest

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        caps = [dataclasses.asdict(cap) | {"days": cap.days} for cap in self.caps]
        return dataclasses.asdict(self) | {"caps": caps}


def make_plan(links: PartSet, settings: PlanSettings, fetch: FetchSettings, pages: PartSet | None = None) -> Plan:
    """Return the plan for a links set, from the assumptions in `settings`, or as measured in `pages` if it is given.

    The pace comes from `settings`, or from `fetch` if `settings` leaves it open. Memory is one row per host. Raises
    InputError if the pages set has no fetched page.
    """
    pace = Pace(
        fetch.delay if settings.delay is None else settings.delay,
        fetch.requests_at_once if settings.concurrency is None else settings.concurrency,
    )
    assumed = settings if pages is None else measured(pages, settings)
    table = count_hosts(links)
    n = table["n"].to_numpy()
    domains = pc.dictionary_encode(table["domain"].combine_chunks())
    domain_of, names = domains.indices.to_numpy(), domains.dictionary
    by_domain = _sums(domain_of, n, len(names))
    n_hosts = _sums(domain_of, np.ones_like(n), len(names))
    order = np.argsort(-by_domain, kind="stable")[: assumed.top]
    caps = [cap for cap in CAPS if len(n) and cap < n.max()]
    return Plan(
        links=int(n.sum()),
        hosts=len(n),
        domains=len(names),
        pace=pace,
        assumed=assumed,
        measured_in=None if pages is None else pages.folder.url,
        largest_hosts=tuple(_largest(table["host"][: assumed.top], n, np.ones_like(n), assumed, pace)),
        largest_domains=tuple(_largest(names.take(pa.array(order)), by_domain[order], n_hosts[order], assumed, pace)),
        caps=tuple(_under_cap(cap, n, domain_of, n_hosts, assumed, pace) for cap in (None, *reversed(caps))),
    )


def measured(pages: PartSet, settings: PlanSettings) -> PlanSettings:
    """Return the settings with their assumptions replaced by averages over the rows of a pages set."""
    n_asked = n_pages = n_requests = response_bytes = warc_bytes = n_timed = milliseconds = 0
    for part in pages.parts:
        warc_bytes += sum(each.bytes for each in part.attachments if each.name.endswith(".warc.gz"))
        rows = pages.table(part, ["requests", "milliseconds", "warc_length"])
        asked = rows.filter(pc.greater(rows["requests"], 0))
        n_asked += asked.num_rows
        n_requests += pc.sum(asked["requests"]).as_py() or 0
        n_timed += len(asked) - asked["milliseconds"].null_count
        milliseconds += pc.sum(asked["milliseconds"]).as_py() or 0
        n_pages += len(rows) - rows["warc_length"].null_count
        response_bytes += pc.sum(rows["warc_length"]).as_py() or 0
    if not n_asked or not n_pages or not n_timed:
        raise InputError(f"'{pages.folder.url}' has no fetched page", "leave --pages out, or name another set")
    return dataclasses.replace(
        settings,
        answer_seconds=milliseconds / 1000 / n_requests,
        requests_per_link=max(1.0, n_requests / n_asked),
        page_ratio=min(1.0, n_pages / n_asked),
        page_bytes=response_bytes // n_pages,
        record_bytes=max(0, warc_bytes - response_bytes) // n_pages,
    )


def _sums(group: npt.NDArray[np.int32], values: Counts, n_groups: int) -> Counts:
    return np.bincount(group, weights=values, minlength=n_groups).astype(np.int64)


def _days(links: Counts, hosts: Counts, assumed: PlanSettings, pace: Pace) -> npt.NDArray[np.float64]:
    """Return the days that one request after the other takes, including robots.txt of each host."""
    requests = links * assumed.requests_per_link + hosts
    days: npt.NDArray[np.float64] = requests * (pace.delay + assumed.answer_seconds) / DAY
    return days


def _largest(names: Any, links: Counts, hosts: Counts, assumed: PlanSettings, pace: Pace) -> Iterator[Largest]:
    days = _days(links, hosts, assumed, pace)
    for place, name in enumerate(names.to_pylist()):
        yield Largest(name, int(links[place]), float(days[place]))


def _under_cap(
    cap: int | None, n: Counts, domain_of: npt.NDArray[np.int32], n_hosts: Counts, assumed: PlanSettings, pace: Pace
) -> UnderCap:
    kept = n if cap is None else np.minimum(n, cap)
    by_domain = _sums(domain_of, kept, len(n_hosts))
    links, total = int(kept.sum()), int(n.sum())
    requests = links * assumed.requests_per_link + len(n)
    pages = links * assumed.page_ratio
    return UnderCap(
        max_pages_per_host=cap,
        links=links,
        links_ratio=links / total if total else 1.0,
        capped_hosts=0 if cap is None else int((n > cap).sum()),
        days_by_host=float(_days(kept, np.ones_like(n), assumed, pace).max(initial=0.0)),
        days_by_domain=float(_days(by_domain, n_hosts, assumed, pace).max(initial=0.0)),
        days_by_concurrency=requests * assumed.answer_seconds / pace.concurrency / DAY,
        wire_bytes=round(pages * assumed.page_bytes),
        warc_bytes=round(pages * (assumed.page_bytes + assumed.record_bytes)),
    )


def plan_text(plan: Plan) -> str:
    """Return the plan as text for people."""
    assumed = plan.assumed
    source = f"measured in '{plan.measured_in}'" if plan.measured_in else "assumed"
    return "\n".join(
        [
            f"{plan.links:,} links on {plan.hosts:,} hosts of {plan.domains:,} domains",
            f"pace: {plan.pace.delay:g} s between requests to a host, {plan.pace.concurrency:,} requests at a time",
            f"{source}: {assumed.answer_seconds:.3g} s per answer, {assumed.requests_per_link:.3g} requests per link, "
            f"{assumed.page_ratio:.0%} of links lead to a page, {assumed.page_bytes:,} bytes per page "
            f"and {assumed.record_bytes:,} more in WARC",
            "",
            *_lines(plan.largest_hosts, "hosts with most links"),
            "",
            *_lines(plan.largest_domains, "domains with most links, each as if at one address"),
            "",
            *_cap_lines(plan.caps),
        ]
    )


def _lines(largest: Sequence[Largest], title: str) -> list[str]:
    width = max([len(title), *(len(each.name) for each in largest)])
    rows = [f"{each.name:<{width}}  {each.links:>12,}  {_shown(each.days):>10}" for each in largest]
    return [f"{title:<{width}}  {'links':>12}  {'days':>10}", *rows]


def _cap_lines(caps: Sequence[UnderCap]) -> Iterator[str]:
    yield "max_pages_per_host         links   kept  hosts capped        days  if domains share      pages     WARC"
    yield "                                                                   an address, days     sent  on disk"
    for cap in caps:
        name = "none" if cap.max_pages_per_host is None else f"{cap.max_pages_per_host:,}"
        shared = max(cap.days_by_domain, cap.days_by_concurrency)
        yield (
            f"{name:>18}  {cap.links:>12,}  {cap.links_ratio:>5.1%}  {cap.capped_hosts:>12,}  {_shown(cap.days):>10}"
            f"  {_shown(shared):>16}  {_size(cap.wire_bytes):>9}  {_size(cap.warc_bytes):>7}"
        )


def _shown(days: float) -> str:
    return f"{days:,.2f}" if days >= 0.1 or not days else f"{days:.1g}"


def _size(n_bytes: int) -> str:
    """Return a number of bytes in the largest unit that fits.

    >>> _size(999), _size(42_000_000), _size(1_230_000_000_000)
    ('999 B', '42 MB', '1.2 TB')
    """
    value, unit = float(n_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}" if value < 10 and unit != "B" else f"{value:,.0f} {unit}"
