"""Settings of `webtext crawl links` and of Reddit's API, apart so that `--help` loads neither pyarrow nor a URL parser.

A profile is a table of defaults, and a setting of the same name overrides each of them. A recipe records the effective
values, so that one rule has one recipe, whether it was chosen by profile or value by value.

    webtext        GPT-2's rule: a post that alone reaches 3 karma, created before 2018, neither over 18 nor a self post
    openwebtext    jcpeterson/openwebtext's rule: also per post, without a date limit or a self-post check
    openwebtext2   EleutherAI's rule: the sum of the scores of a URL's posts, without a date limit or an over-18 check
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from webtext.base.config import setting, timestamp
from webtext.base.errors import ConfigError, did_you_mean

MAX_PARTS = 1024
"""The number of buckets in `crawl/links/spill.py`: a part is a range of buckets."""

SOURCES = ("submissions", "csv", "jsonl", "parquet", "urls")
"""Values of `source`; `crawl/links/sources/inputs.py` has the reader for each."""

END_OF_2017 = "2018-01-01T00:00:00Z"
BEFORE = "[crawl.links] before"


@dataclass(frozen=True, slots=True, kw_only=True)
class KarmaRule:
    """The effective values of a karma rule."""

    min_karma: int | None
    sum_karma: bool
    before: str | None
    keep_over_18: bool
    keep_self_posts: bool
    keep_links_back: bool
    keep_wikipedia: bool
    keep_media: bool

    @property
    def end(self) -> int | None:
        """`before` in UTC seconds; None for no limit."""
        return None if self.before is None else timestamp(self.before, BEFORE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRule:
    """The checks of a post that do not depend on its URL; None or an empty set for no check."""

    end: int | None  # UTC seconds; exclusive
    keep_over_18: bool
    keep_self_posts: bool
    blocked_subreddits: frozenset[str]  # in lower case
    min_karma: int | None
    min_score_age: int | None


_WEBTEXT = KarmaRule(
    min_karma=3,
    sum_karma=False,
    before=END_OF_2017,
    keep_over_18=False,
    keep_self_posts=False,
    keep_links_back=False,
    keep_wikipedia=False,
    keep_media=False,
)
PROFILES: Mapping[str, KarmaRule] = {
    "webtext": _WEBTEXT,
    "openwebtext": dataclasses.replace(_WEBTEXT, before=None, keep_self_posts=True),
    "openwebtext2": dataclasses.replace(_WEBTEXT, before=None, sum_karma=True, keep_over_18=True),
}

Profile = Literal["profile"]  # the value of a setting that takes the profile's default


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Which votes count (crawl/links/karma.py); a setting left at `profile` takes the profile's default."""

    profile: str = setting("webtext", f"defaults: {', '.join(PROFILES)}", in_recipe=False, group="Karma rule")
    min_karma: int | None | Profile = setting("profile", "keep posts with at least this score", in_recipe=False)
    sum_karma: bool | Profile = setting(
        "profile", "compare min_karma with the sum over a link's posts, not with each post", in_recipe=False, flag=False
    )
    before: str | None | Profile = setting("profile", "keep posts created before this time", in_recipe=False)
    keep_over_18: bool | Profile = setting("profile", "keep posts marked over 18", in_recipe=False, flag=False)
    keep_self_posts: bool | Profile = setting(
        "profile", "keep self posts: texts without a link", in_recipe=False, flag=False
    )
    keep_links_back: bool | Profile = setting("profile", "keep links to Reddit itself", in_recipe=False, flag=False)
    keep_wikipedia: bool | Profile = setting(
        "profile", "keep links to Wikipedia and its mirrors", in_recipe=False, flag=False
    )
    keep_media: bool | Profile = setting(
        "profile", "keep links to image, audio and video files", in_recipe=False, flag=False
    )
    min_score_age: int | None = setting(
        None, "keep posts whose score was read so many seconds after posting, or at an unknown time"
    )
    subreddit_blocklist: tuple[str, ...] = setting((), "file of subreddits not to count; repeatable", in_recipe=False)
    domain_blocklist: tuple[str, ...] = setting((), "file of domains not to collect; repeatable", in_recipe=False)
    default_score: int | None = setting(None, "score of rows without one; none: drop them", group="Inputs and parts")
    default_created: str | None = setting(None, "time of rows without one; none: drop them")
    source: str | None = setting(None, f"{', '.join(SOURCES)}; none: by each file's name", in_recipe=False)
    validation_ratio: float = setting(0.05, "share of links held out")
    parts: int | None = setting(None, "number of parts; none: one per GiB of input", in_recipe=False, flag=False)

    def __post_init__(self) -> None:
        for name, value, known in ("profile", self.profile, tuple(PROFILES)), ("source", self.source, SOURCES):
            if value is not None and value not in known:
                raise ConfigError(f"[crawl.links] {name} = {value!r}: no such {name}", did_you_mean(value, known))
        _ = self.rule.end  # raises if it is invalid
        if self.default_created is not None:
            timestamp(self.default_created, "[crawl.links] default_created")
        if self.min_score_age is not None and self.min_score_age < 0:
            raise ConfigError(f"[crawl.links] min_score_age = {self.min_score_age}: expected seconds, 0 or more")
        if not 0 <= self.validation_ratio < 1:
            raise ConfigError(f"[crawl.links] validation_ratio = {self.validation_ratio}: expected 0 to below 1")
        if self.parts is not None and not 1 <= self.parts <= MAX_PARTS:
            raise ConfigError(f"[crawl.links] parts = {self.parts}: expected 1 to {MAX_PARTS:,}")

    @property
    def rule(self) -> KarmaRule:
        """The profile's rule, with every value that is set overridden."""
        names = [field.name for field in dataclasses.fields(KarmaRule)]
        given = {name: getattr(self, name) for name in names if getattr(self, name) != "profile"}
        return dataclasses.replace(PROFILES[self.profile], **given)


_REDDIT_USER = re.compile(r"(?:/?u/)?([A-Za-z0-9_-]{3,20})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How Reddit is queried.

    None of these settings is in a recipe, since a links set depends only on the answers, which are files. The secret
    itself is not a setting; only the file that contains it is named.
    """

    reddit_user: str | None = setting(
        None, "your Reddit user name, for the User-Agent", in_recipe=False, group="Reddit's API"
    )
    reddit_credentials: str | None = setting(
        None,
        "TOML file with client_id and client_secret; none: from WEBTEXT_REDDIT_CLIENT_ID and WEBTEXT_REDDIT_CLIENT_SECRET",
        in_recipe=False,
    )
    requests_per_minute: float = setting(
        100.0, "maximum requests per minute to Reddit; its own limits are obeyed, too", in_recipe=False, flag=False
    )

    def __post_init__(self) -> None:
        if self.reddit_user is not None and not _REDDIT_USER.fullmatch(self.reddit_user):
            raise ConfigError(
                f"[crawl.api] reddit_user = {self.reddit_user!r}: not a Reddit user name",
                "letters, digits, '-' and '_', e.g. --reddit-user example_name",
            )
        if not self.requests_per_minute > 0:
            raise ConfigError(f"[crawl.api] requests_per_minute = {self.requests_per_minute}: expected more than 0")

    @property
    def reddit_name(self) -> str:
        """The name without the prefix `u/` or `/u/`. Raises ConfigError if none was given."""
        match = _REDDIT_USER.fullmatch(self.reddit_user or "")
        if match is None:
            raise ConfigError(
                "no name for Reddit's User-Agent: Reddit requires the user name of whoever runs a program",
                "set --reddit-user NAME, or reddit_user in [crawl.api]",
            )
        return match[1]
