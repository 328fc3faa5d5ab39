"""The settings of `webtext crawl fetch`. They are apart from the fetcher, so that `--help` imports no network code."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import dataclass

from webtext.base.config import setting, timestamp
from webtext.base.errors import ConfigError, did_you_mean
from webtext.crawl.exchange.addresses import AllowedAddress
from webtext.crawl.user_agent import check_contact

WEB, COMMON_CRAWL, WAYBACK, WARC = SOURCES = ("web", "common-crawl", "wayback", "warc")

RETRY_SECONDS = 30.0
MIN_JITTER, MAX_JITTER = 0.5, 1.5  # random factor of the wait before a retry, to spread out links that failed together

REQUEST_BYTES = 2**21  # memory per request; 64 hostile answers at once took 1.2 MB each
OPEN_FILES = 16_384
FILES_PER_REQUEST = 8  # most are idle connections, kept for the next request to their host

WHOLE = (1, 1)  # the share that has all links
_SHARE = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How pages are fetched. Pace, part sizes and the location of archives are not in the recipe: they may change."""

    sources: tuple[str, ...] = setting(
        (WEB,),
        f"sources of pages in the order to try: {', '.join(SOURCES)}; separated by commas",
        flag="--from",
        group="Sources",
    )
    archive_before: str | None = setting(
        None, "take an archive's newest capture before this moment; off: the capture nearest to the vote"
    )
    take_gone_sites: bool = setting(
        False, "take archived pages of sites that are gone: the host name doesn't exist, or the site never answered"
    )
    gone_runs: int = setting(3, "runs in which a site was asked and didn't answer, before it counts as gone")
    gone_days: float = setting(30.0, "days from the first of these runs to the latest; 30 is RFC 9309's example")
    archive_delay: float = setting(1.0, "seconds between two requests to an archive, per connection", in_recipe=False)
    wayback_cdx: str = setting("https://web.archive.org/cdx/search/cdx", "URL of the CDX server that lists captures")
    wayback_replay: str = setting("https://web.archive.org/web", "URL of the replay; /TIMESTAMPid_/URL is appended")
    cc_index: tuple[str, ...] = setting(
        (), "Common Crawl's columnar index: Parquet files or folders, local or fsspec; repeatable", in_recipe=False
    )
    cc_data: str = setting(
        "https://data.commoncrawl.org", "URL or folder of Common Crawl's WARC files", in_recipe=False
    )
    cc_connections: int = setting(4, "connections to Common Crawl's file server", in_recipe=False)
    cc_max_gap: int = setting(
        128 * 1024, "largest gap, in bytes, between records that one request fetches", in_recipe=False
    )
    warc: tuple[str, ...] = setting(
        (), "WARC files to take pages from: files, folders, patterns; repeatable", in_recipe=False
    )
    contact: str | None = setting(
        None,
        "e-mail or URL for the User-Agent, so that sites can reach you; required outside loopback",
        group="Politeness",
    )
    delay: float = setting(1.0, "seconds between two requests to one host or address", in_recipe=False)
    max_delay: float = setting(
        60.0, "longest delay, in seconds, for a host that is slow, busy or doesn't answer", in_recipe=False
    )
    max_pause: float = setting(
        600.0, "longest Retry-After to wait for, in seconds; a host that asks for more is left alone"
    )
    max_host_failures: int = setting(10, "failures in a row after which a host is given up")
    retries: int = setting(2, "retries of a link after a failure that may pass")
    retry_seconds: float = setting(
        RETRY_SECONDS, "average seconds before the first retry, doubled for each further one", in_recipe=False
    )
    concurrency: int | None = setting(
        None,
        "requests at a time, over all hosts  [default: as a quarter of the memory allows, at most 2,048]",
        in_recipe=False,
    )
    max_bytes: int = setting(10 * 2**20, "largest body to keep, in bytes as sent", group="Limits")
    total_seconds: float = setting(60.0, "longest time for one answer, in seconds from connection to last byte")
    connect_seconds: float = setting(15.0, "longest time to connect, in seconds")
    min_rate: float = setting(500.0, "slowest body, in bytes per second on average after ten seconds; 0: no limit")
    max_pages_per_host: int | None = setting(None, "links to fetch per host, highest karma first")
    max_redirects: int = setting(5, "longest chain of redirects to follow")
    domain_blocklist: tuple[str, ...] = setting(
        (), "file of domains that no redirect may lead to; repeatable", in_recipe=False
    )
    allow_address: tuple[str, ...] = setting(
        (), "open an address that is not public: ADDRESS[/BITS][:PORT], e.g. 127.0.0.1:8080; repeatable"
    )
    obey_robots: bool = setting(True, "skip what robots.txt forbids to 'webtext' or to everybody", group="Opt-outs")
    obey_ai_robots: bool = setting(True, "skip what robots.txt forbids to AI-training crawlers by name")
    obey_content_signal: bool = setting(
        True, "skip pages where Content-Signal says 'ai-train=no' or Content-Usage 'train-ai=n'"
    )
    obey_tdm_reservation: bool = setting(
        True, "skip pages whose header, meta tag or tdmrep.json says 'tdm-reservation' 1"
    )
    obey_noai: bool = setting(True, "skip pages whose X-Robots-Tag or meta tag says 'noai' or 'noimageai'")
    obey_noindex: bool = setting(True, "skip pages whose X-Robots-Tag or meta tag says 'noindex'")
    share: str = setting(
        "1/1",
        "K/N: the K-th of N equal shares of the links, one per machine, each with its own --out; domains are not split, "
        "and each share asks an address N times less often",
        group="Shares and parts",
        in_recipe=False,
    )
    fetched_in: tuple[str, ...] = setting(
        (),
        "pages set of another share, whose links are not fetched again: name all of them when N or the links have "
        "changed; repeatable",
        in_recipe=False,
    )
    part_pages: int | None = setting(
        None,
        "links per part  [default: a 64th of the links, at least 500, at most 10,000]",
        in_recipe=False,
    )
    part_bytes: int = setting(256 * 2**20, "WARC bytes per part, after which it is published", in_recipe=False)
    part_seconds: float = setting(300.0, "seconds after which a part is published", in_recipe=False)

    def __post_init__(self) -> None:
        self._check_archives()
        for name in ("concurrency", "max_bytes", "max_host_failures", "max_pages_per_host", "part_pages", "part_bytes"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"[crawl.fetch] {name} = {value}: expected at least 1")
        for name in ("total_seconds", "connect_seconds", "part_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"[crawl.fetch] {name} = {getattr(self, name)}: expected more than 0")
        for name in ("delay", "max_delay", "max_pause", "retries", "retry_seconds", "min_rate", "max_redirects"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"[crawl.fetch] {name} = {getattr(self, name)}: expected 0 or more")
        check_contact(self.contact, "[crawl.fetch] contact")
        for address in self.allow_address:
            AllowedAddress.parse(address)
        self.share_of()

    def _check_archives(self) -> None:
        sources = tuple(name.strip() for text in self.sources for name in text.split(","))
        object.__setattr__(self, "sources", sources)
        _check_sources(sources)
        for source, option, given in ((COMMON_CRAWL, "cc-index", self.cc_index), (WARC, "warc", self.warc)):
            if bool(given) != (source in sources):
                raise ConfigError(f"--from {source} and --{option} go together", f"give both, e.g. --{option} FOLDER")
        if self.cc_connections < 1 or self.cc_max_gap < 0 or not self.archive_delay >= 0:
            raise ConfigError(
                f"[crawl.fetch] cc_connections = {self.cc_connections}, cc_max_gap = {self.cc_max_gap}, "
                f"archive_delay = {self.archive_delay}: expected at least 1, 0 and 0"
            )
        if self.gone_runs < 1 or not self.gone_days >= 0:
            raise ConfigError(
                f"[crawl.fetch] gone_runs = {self.gone_runs}, gone_days = {self.gone_days}: expected at least 1 and 0"
            )
        for name in ("wayback_cdx", "wayback_replay"):
            if not getattr(self, name).startswith(("http://", "https://")):
                raise ConfigError(f"[crawl.fetch] {name} = {getattr(self, name)!r}: expected an http(s) URL")
        for path in self.cc_index:
            if path.startswith(("http://", "https://")):
                raise ConfigError(f"--cc-index '{path}' is an HTTP URL", "name a folder, or s3://commoncrawl/...")
        _ = self.before

    @property
    def before(self) -> int | None:
        """`archive_before` in UTC seconds."""
        moment = self.archive_before
        return None if moment is None else timestamp(moment, "[crawl.fetch] archive_before")

    @property
    def requests_at_once(self) -> int:
        """`concurrency`, or as many requests as this machine's memory and its limit of open files allow."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return self.concurrency or max(1, min(memory // 4 // REQUEST_BYTES, open_files() // FILES_PER_REQUEST))

    def share_of(self) -> tuple[int, int]:
        """`share` as (k, n).

        >>> FetchSettings(share="2/8").share_of()
        (2, 8)
        """
        match = _SHARE.fullmatch(self.share)
        part, n_parts = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= part <= n_parts:
            raise ConfigError(f"[crawl.fetch] share = {self.share!r}: expected K/N, K from 1 to N, e.g. 2/8")
        return part, n_parts


def open_files() -> int:
    """Return the number of files and connections that a crawl may have open, which becomes its soft limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(hard % 2**63, OPEN_FILES)  # some systems have -1 for "unlimited"


def _check_sources(sources: tuple[str, ...]) -> None:
    for name in sources:
        if name not in SOURCES:
            raise ConfigError(f"--from: unknown source '{name}'", did_you_mean(name, SOURCES))
    if len(set(sources)) < len(sources) or not sources:
        raise ConfigError(f"--from '{','.join(sources)}': expected one or more sources, each once")
