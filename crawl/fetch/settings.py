"""The settings of `webtext crawl fetch`. They are apart from the fetcher, so that `--help` imports no network code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError
from webtext.crawl.addresses import AllowedAddress
from webtext.crawl.archives.settings import ArchiveSettings

RETRY_SECONDS = 30.0
MIN_JITTER, MAX_JITTER = 0.5, 1.5  # random factor of the wait before a retry, to spread out links that failed together

_CONTACT = re.compile(r"[!-'*-:<-~]+(?: [!-'*-:<-~]+)*")  # printable ASCII allowed in a header's comment


WHOLE = (1, 1)  # the share that has all links
_SHARE = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings(ArchiveSettings):
    """How pages are fetched. Pace and part sizes are not in the recipe, so they may change during a crawl."""

    contact: str | None = setting(
        None, "e-mail or URL for the User-Agent, so that sites can reach you; required outside loopback"
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
    concurrency: int = setting(64, "requests at a time, over all hosts", in_recipe=False)
    max_bytes: int = setting(10 * 2**20, "largest body to keep, in bytes as sent")
    total_seconds: float = setting(60.0, "longest time for one answer, in seconds from connection to last byte")
    connect_seconds: float = setting(15.0, "longest time to connect, in seconds")
    min_rate: float = setting(500.0, "slowest body, in bytes per second on average after ten seconds; 0: no limit")
    max_pages_per_host: int | None = setting(
        None, "links to fetch per host, highest karma first; see 'webtext crawl plan'"
    )
    max_redirects: int = setting(5, "longest chain of redirects to follow")
    domain_blocklist: tuple[str, ...] = setting(
        (), "file of domains that no redirect may lead to; repeatable", in_recipe=False
    )
    allow_address: tuple[str, ...] = setting(
        (), "open an address that is not public: ADDRESS[/BITS][:PORT], e.g. 127.0.0.1:8080; repeatable"
    )
    obey_robots: bool = setting(True, "skip what robots.txt forbids to 'webtext' or to everybody")
    obey_ai_robots: bool = setting(True, "skip what robots.txt forbids to AI-training crawlers by name")
    obey_content_signal: bool = setting(True, "skip pages where Content-Signal says 'ai-train=no'")
    obey_tdm_reservation: bool = setting(True, "skip pages whose header or meta tag 'tdm-reservation' is 1")
    obey_noai: bool = setting(True, "skip pages whose X-Robots-Tag or meta tag says 'noai'")
    obey_noindex: bool = setting(True, "skip pages whose X-Robots-Tag or meta tag says 'noindex'")
    share: str = setting(
        "1/1",
        "K/N: the K-th of N shares of the links, one per machine, each with its own --out; domains are not split",
    )
    part_pages: int | None = setting(
        None,
        "links per part  [default: a 64th of the links, at least 500, at most 10,000]",
        in_recipe=False,
    )
    part_bytes: int = setting(256 * 2**20, "WARC bytes per part, after which it is published", in_recipe=False)
    part_seconds: float = setting(300.0, "seconds after which a part is published", in_recipe=False)

    def __post_init__(self) -> None:
        ArchiveSettings.__post_init__(self)  # a dataclass with slots has no super()
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


def check_contact(contact: str | None, name: str) -> None:
    """Raise ConfigError if a contact is not allowed in a User-Agent."""
    if contact is not None and not _CONTACT.fullmatch(contact):
        raise ConfigError(
            f"{name} = {contact!r}: not allowed in a User-Agent",
            "use an e-mail address or a URL in ASCII, without parentheses, e.g. crawler@example.org",
        )
