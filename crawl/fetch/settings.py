"""The settings of `webtext crawl fetch`. They are apart from the fetcher, so that `--help` imports no network code."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

from webtext.base.config import setting, timestamp
from webtext.base.errors import ConfigError, did_you_mean
from webtext.crawl.fetch.client.addresses import AllowedAddress
from webtext.crawl.user_agent import check_contact

WEB, COMMON_CRAWL, WAYBACK, WARC = SOURCES = ("web", "common-crawl", "wayback", "warc")

RETRY_SECONDS = 30.0  # average wait before the first retry, doubled for each further one
MIN_JITTER, MAX_JITTER = 0.5, 1.5  # random factor of the wait before a retry, to spread out links that failed together

REQUEST_BYTES = 2**21  # memory per request; 64 hostile answers at once took 1.2 MB each
OPEN_FILES = 16_384
FILES_PER_REQUEST = 8  # most are idle connections, kept for the next request to their host


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How pages are fetched. Pace, part sizes and the location of archives are not in the recipe: they may change."""

    sources: tuple[str, ...] = setting((WEB,), f"sources in order: {','.join(SOURCES)}", flag="--from", group="Sources")
    archive_before: str | None = setting(None, "newest capture before this time; none: the one nearest to the vote")
    take_gone_sites: bool = setting(False, "take archived pages of sites that are gone")
    archive_delay: float = setting(
        1.0, "seconds between two requests to an archive, per connection", in_recipe=False, flag=False
    )
    wayback_cdx: str = setting(
        "https://web.archive.org/cdx/search/cdx", "URL of the CDX server that lists captures", flag=False
    )
    wayback_replay: str = setting(
        "https://web.archive.org/web", "URL of the replay; /TIMESTAMPid_/URL is appended", flag=False
    )
    cc_index: tuple[str, ...] = setting((), "Common Crawl's Parquet index; repeatable", in_recipe=False)
    cc_data: str = setting(
        "https://data.commoncrawl.org", "URL or folder of Common Crawl's WARC files", in_recipe=False, flag=False
    )
    warc: tuple[str, ...] = setting((), "WARC files, folders or patterns; repeatable", in_recipe=False)
    contact: str | None = setting(None, "e-mail or URL for the User-Agent; required", group="Politeness")
    delay: float = setting(1.0, "seconds between requests to a host or address", in_recipe=False)
    max_pause: float = setting(
        600.0, "longest Retry-After to wait for, in seconds; a host that asks for more is left alone", flag=False
    )
    retries: int = setting(2, "retries after a failure that may pass")
    concurrency: int | None = setting(None, "requests at a time  [default: by memory, at most 2,048]", in_recipe=False)
    max_bytes: int = setting(10 * 2**20, "largest body, in bytes as sent", group="Limits")
    total_seconds: float = setting(
        60.0, "longest time for one answer, in seconds from connection to last byte", flag=False
    )
    max_pages_per_host: int | None = setting(None, "links per host, highest karma first")
    domain_blocklist: tuple[str, ...] = setting((), "file of domains not to visit; repeatable", in_recipe=False)
    allow_address: tuple[str, ...] = setting((), "open an address that isn't public, e.g. 127.0.0.1:8080; repeatable")
    obey_robots: bool = setting(True, "skip pages that robots.txt disallows for 'webtext' or everybody", flag=False)
    obey_ai_robots: bool = setting(True, "skip pages that robots.txt disallows for AI-training crawlers", flag=False)
    obey_content_signal: bool = setting(
        True, "skip pages where Content-Signal says 'ai-train=no' or Content-Usage 'train-ai=n'", flag=False
    )
    obey_tdm_reservation: bool = setting(
        True, "skip pages whose header, meta tag or tdmrep.json says 'tdm-reservation' 1", flag=False
    )
    obey_noai: bool = setting(True, "skip pages whose X-Robots-Tag or meta tag says 'noai' or 'noimageai'", flag=False)
    obey_noindex: bool = setting(True, "skip pages whose X-Robots-Tag or meta tag says 'noindex'", flag=False)
    part_pages: int | None = setting(
        None,
        "links per part  [default: a 64th of the links, at least 500, at most 10,000]",
        in_recipe=False,
        flag=False,
    )

    def __post_init__(self) -> None:
        self._check_archives()
        for name in ("concurrency", "max_bytes", "max_pages_per_host", "part_pages"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"[crawl.fetch] {name} = {value}: expected at least 1")
        if not self.total_seconds > 0:
            raise ConfigError(f"[crawl.fetch] total_seconds = {self.total_seconds}: expected more than 0")
        for name in ("delay", "max_pause", "retries", "archive_delay"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"[crawl.fetch] {name} = {getattr(self, name)}: expected 0 or more")
        check_contact(self.contact, "[crawl.fetch] contact")
        for address in self.allow_address:
            AllowedAddress.parse(address)

    def _check_archives(self) -> None:
        sources = tuple(name.strip() for text in self.sources for name in text.split(","))
        object.__setattr__(self, "sources", sources)
        for name in sources:
            if name not in SOURCES:
                raise ConfigError(f"--from: unknown source '{name}'", did_you_mean(name, SOURCES))
        if len(set(sources)) < len(sources) or not sources:
            raise ConfigError(f"--from '{','.join(sources)}': expected one or more sources, each once")
        for source, option, given in ((COMMON_CRAWL, "cc-index", self.cc_index), (WARC, "warc", self.warc)):
            if bool(given) != (source in sources):
                raise ConfigError(f"--from {source} and --{option} go together", f"give both, e.g. --{option} FOLDER")
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


def open_files() -> int:
    """Return the number of files and connections that a crawl may have open, which becomes its soft limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(hard % 2**63, OPEN_FILES)  # some systems have -1 for "unlimited"
