"""The settings of `webtext crawl plan`: the pace of the crawl, and assumptions about the web."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """What a crawl plan is estimated from. The defaults are round numbers; `--pages` measures them in a pages set."""

    delay: float | None = setting(None, "seconds between two requests to one host or address; off: as in [crawl.fetch]")
    concurrency: int | None = setting(None, "requests at a time, over all hosts; off: as in [crawl.fetch]")
    answer_seconds: float = setting(0.5, "seconds per answer")
    requests_per_link: float = setting(1.2, "requests per link, with redirects and retries")
    page_ratio: float = setting(0.6, "share of links that lead to a page, from 0 to 1")
    page_bytes: int = setting(40_000, "bytes per page as sent, which is how it is stored")
    record_bytes: int = setting(2_000, "bytes per page in WARC besides its body")
    top: int = setting(20, "number of hosts and domains to list")

    def __post_init__(self) -> None:
        for name in ("delay", "answer_seconds", "page_bytes", "record_bytes", "top"):
            if getattr(self, name) is not None and not getattr(self, name) >= 0:
                raise ConfigError(f"[crawl.plan] {name} = {getattr(self, name)}: expected 0 or more")
        if (self.concurrency is not None and self.concurrency < 1) or not self.requests_per_link >= 1:
            raise ConfigError(
                f"[crawl.plan] concurrency = {self.concurrency}, requests_per_link = {self.requests_per_link}: "
                "expected at least 1"
            )
        if not 0 <= self.page_ratio <= 1:
            raise ConfigError(f"[crawl.plan] page_ratio = {self.page_ratio}: expected 0 to 1")
