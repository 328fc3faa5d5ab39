"""The settings of `webtext crawl fetch`. Apart from the fetcher, so that `--help` loads no network code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError
from webtext.crawl.addresses import AllowedAddress
from webtext.crawl.archives.settings import ArchiveSettings

RETRY_SECONDS = 30.0
MIN_JITTER, MAX_JITTER = 0.5, 1.5  # what a wait before a retry is multiplied by: links that failed together spread out

_CONTACT = re.compile(r"[!-'*-:<-~]+(?: [!-'*-:<-~]+)*")  # printable ASCII that can stand in a header's comment


WHOLE = (1, 1)  # the share that is everything
_SHARE = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings(ArchiveSettings):
    """How pages are fetched. Pace and part sizes are no part of the recipe: a crawl may change them on the way."""

    contact: str | None = setting(
        None, "e-mail or URL for the User-Agent, so that sites can reach you; needed outside loopback"
    )
    delay: float = setting(1.0, "seconds between two requests to one host or address", in_recipe=False)
    max_delay: float = setting(
        60.0, "seconds to which the delay of a host may grow that is slow, busy or does not answer", in_recipe=False
    )
    max_pause: float = setting(
        600.0, "longest Retry-After that is waited for, in seconds; a host that asks for more is left alone"
    )
    max_host_failures: int = setting(10, "failures in a row after which a host is not asked any more")
    retries: int = setting(2, "times that a link is tried again after a failure that may pass")
    retry_seconds: float = setting(
        RETRY_SECONDS, "seconds before the first of these tries, on average; doubled for each next", in_recipe=False
    )
    concurrency: int = setting(64, "requests under way at a time, over all hosts", in_recipe=False)
    max_bytes: int = setting(10 * 2**20, "largest body that is kept, in bytes as sent")
    total_seconds: float = setting(60.0, "longest time one answer may take, from connection to last byte")
    connect_seconds: float = setting(15.0, "longest time a connection may take")
    min_rate: float = setting(500.0, "fewest bytes a second of a body, on average after its first ten seconds; 0: any")
    max_pages_per_host: int | None = setting(
        None, "links that are fetched of one host, those of highest karma first; see 'webtext crawl plan'"
    )
    max_redirects: int = setting(5, "longest chain of redirects that is followed")
    domain_blocklist: tuple[str, ...] = setting(
        (), "file of domains that no redirect may lead to; repeatable", in_recipe=False
    )
    allow_address: tuple[str, ...] = setting(
        (), "open an address that is not public: ADDRESS[/BITS][:PORT], e.g. 127.0.0.1:8080; repeatable"
    )
    obey_robots: bool = setting(True, "keep off what robots.txt forbids to 'webtext' or to everybody")
    obey_ai_robots: bool = setting(True, "keep off what robots.txt forbids to AI-training crawlers by name")
    obey_content_signal: bool = setting(True, "keep off where Content-Signal says 'ai-train=no'")
    obey_tdm_reservation: bool = setting(True, "refuse pages whose header or meta tag 'tdm-reservation' is 1")
    obey_noai: bool = setting(True, "refuse pages whose X-Robots-Tag or meta tag says 'noai'")
    obey_noindex: bool = setting(True, "refuse pages whose X-Robots-Tag or meta tag says 'noindex'")
    share: str = setting(
        "1/1",
        "K/N: fetch the K-th of N shares of the links, one a machine, each with its own --out and all of a domain",
    )
    part_pages: int | None = setting(
        None,
        "links after which a part is published  [default: a 64th of the links, at least 500, at most 10,000]",
        in_recipe=False,
    )
    part_bytes: int = setting(256 * 2**20, "WARC bytes after which a part is published", in_recipe=False)
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
    """ConfigError when a contact cannot stand in a User-Agent."""
    if contact is not None and not _CONTACT.fullmatch(contact):
        raise ConfigError(
            f"{name} = {contact!r}: cannot stand in a User-Agent",
            "give an e-mail address or a URL in ASCII, without parentheses, e.g. crawler@example.org",
        )
