"""Settings of votes in `clean`: the section [clean.votes]. A module of its own, so that `--help` doesn't load numpy."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting, timestamp
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteSettings:
    """Which documents have enough votes, by their column `posts` (`clean/rules/votes.py`)."""

    min_karma: int | None = setting(None, "minimum score: drop documents without a counted post of at least this score")
    sum_karma: bool = setting(False, "compare min_karma with the sum of the scores instead of the highest")
    before: str | None = setting(None, "count only posts made before this date or time")
    communities: tuple[str, ...] = setting(
        (), "count only posts in this subreddit, or with a leading '-' only posts outside it; repeatable"
    )

    def __post_init__(self) -> None:
        _ = self.end
        for name in self.communities:
            known_as = community(name.removeprefix("-"))
            if not known_as or known_as[0] == "-" or known_as in self.wanted & self.unwanted:
                raise ConfigError(
                    f"[clean.votes] communities = {name!r}: expected a community, either with or without '-'",
                    "write 'science' to count only its posts, '-science' to ignore them",
                )

    @property
    def end(self) -> int | None:
        """`before` in UTC seconds; posts made then or later don't count."""
        return None if self.before is None else timestamp(self.before, "[clean.votes] before")

    @property
    def wanted(self) -> frozenset[str]:
        """The communities whose posts count; empty if those of all communities count."""
        return frozenset(community(name) for name in self.communities if not name.startswith("-"))

    @property
    def unwanted(self) -> frozenset[str]:
        """The communities whose posts don't count."""
        return frozenset(community(name[1:]) for name in self.communities if name.startswith("-"))

    @property
    def judges(self) -> bool:
        """Whether any document can be dropped."""
        return self.min_karma is not None or self.before is not None or bool(self.communities)


def community(name: str) -> str:
    """Return a community's name in the form used for comparisons.

    >>> community("/r/AskScience"), community("hackernews")
    ('askscience', 'hackernews')
    """
    return name.strip().lower().removeprefix("/").removeprefix("r/")
