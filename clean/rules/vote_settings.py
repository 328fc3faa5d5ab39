"""Which votes count in `clean`: the section [clean.votes]. Apart from the judging, so that `--help` loads no arrays."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting, timestamp
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteSettings:
    """Which documents have enough votes, judged by their `posts` (`clean/rules/votes.py`)."""

    min_karma: int | None = setting(None, "drop documents none of whose counted posts has at least this score")
    sum_karma: bool = setting(False, "compare min_karma with the sum of the scores, not with the highest")
    before: str | None = setting(None, "count only posts made before this moment")
    communities: tuple[str, ...] = setting(
        (), "count only posts in this subreddit, or with '-' in front none of it; repeatable"
    )

    def __post_init__(self) -> None:
        _ = self.end
        for name in self.communities:
            known_as = community(name.removeprefix("-"))
            if not known_as or known_as[0] == "-" or known_as in self.wanted & self.unwanted:
                raise ConfigError(
                    f"[clean.votes] communities = {name!r}: expected the name of a community, once",
                    "write 'science' to count only its posts, '-science' to count none of them",
                )

    @property
    def end(self) -> int | None:
        """`before` in UTC seconds; posts made then or later do not count."""
        return None if self.before is None else timestamp(self.before, "[clean.votes] before")

    @property
    def wanted(self) -> frozenset[str]:
        """The communities whose posts alone count; none: those of all."""
        return frozenset(community(name) for name in self.communities if not name.startswith("-"))

    @property
    def unwanted(self) -> frozenset[str]:
        """The communities whose posts do not count."""
        return frozenset(community(name[1:]) for name in self.communities if name.startswith("-"))

    @property
    def judges(self) -> bool:
        """Whether any document can be dropped."""
        return self.min_karma is not None or self.before is not None or bool(self.communities)


def community(name: str) -> str:
    """A community's name as names are compared.

    >>> community("/r/AskScience"), community("hackernews")
    ('askscience', 'hackernews')
    """
    return name.strip().lower().removeprefix("/").removeprefix("r/")
