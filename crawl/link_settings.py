"""The settings of `webtext crawl links`. Apart from the rule itself, so that `--help` loads neither pyarrow nor a URL parser."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime

from webtext.base.config import setting
from webtext.base.errors import ConfigError, did_you_mean

PROFILES = {"webtext": "a post counts when it reaches min_karma by itself"}
MAX_PARTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Which votes count; the defaults are the profile `webtext` (crawl/karma.py)."""

    profile: str = setting("webtext", "how karma is counted: webtext (a post that reaches --min-karma by itself)")
    min_karma: int | None = setting(3, "keep posts with at least this score")
    before: str | None = setting("2018-01-01T00:00:00Z", "keep posts made before this moment; none for no limit")
    keep_over_18: bool = setting(False, "keep posts marked over 18")
    keep_wikipedia: bool = setting(False, "keep links to Wikipedia and its mirrors")
    keep_media: bool = setting(False, "keep links to image, audio and video files")
    validation_ratio: float = setting(0.05, "share of links held out for validation, from 0 to below 1")
    parts: int | None = setting(None, "parts to write; off: one for each GiB of input", in_recipe=False)

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ConfigError(
                f"[crawl.links] profile = {self.profile!r}: no such profile", did_you_mean(self.profile, PROFILES)
            )
        if self.before is not None:
            timestamp(self.before)
        if not 0 <= self.validation_ratio < 1:
            raise ConfigError(f"[crawl.links] validation_ratio = {self.validation_ratio}: expected 0 to below 1")
        if self.parts is not None and not 1 <= self.parts <= MAX_PARTS:
            raise ConfigError(f"[crawl.links] parts = {self.parts}: expected 1 to {MAX_PARTS:,}")


@functools.cache
def timestamp(moment: str) -> int:
    """UTC seconds of an ISO 8601 date or time; without a zone it is UTC.

    >>> timestamp("2018-01-01T00:00:00Z"), timestamp("2018-01-01")
    (1514764800, 1514764800)
    """
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        raise ConfigError(
            f"[crawl.links] before = {moment!r}: no date or time", "write it as 2018-01-01T00:00:00Z"
        ) from None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp())
