"""Settings of several steps. They are in a module of their own, so that `--help` loads no reader."""

from __future__ import annotations

from dataclasses import dataclass, fields

from webtext.base.config import setting, timestamp
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalSettings:
    """Which removal lists apply: the section [clean.remove]."""

    remove: tuple[str, ...] = setting((), "removal list, of URLs, domains and ids; repeatable", in_recipe=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteSettings:
    """Which documents have enough votes, by their column `posts` (`clean/rules/votes.py`)."""

    min_karma: int | None = setting(None, "drop documents without a post of this score or more")
    sum_karma: bool = setting(False, "compare min_karma with the sum of the scores instead of the highest", flag=False)
    before: str | None = setting(None, "count only posts before this time")
    communities: tuple[str, ...] = setting((), "count posts in this subreddit only; -NAME: outside it; repeatable")

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
        """The communities whose posts count; empty for all communities."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DecontaminationSettings:
    """Which evaluation sets to compare the corpus with, and how (section [clean.decontaminate])."""

    against: tuple[str, ...] = setting((), "evaluation set, as FILE or FILE#FIELD; repeatable", in_recipe=False)
    drop: bool = setting(False, "drop what the sets share an n-gram with")


MAX_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSettings:
    """The publisher's entries on the dataset card, corpus/README.md: the section [clean.card]."""

    name: str = setting("webtext corpus", "name on the dataset card", in_recipe=False, flag=False)
    license: str | None = setting(
        None,
        "licence on the dataset card, a Hugging Face identifier such as odc-by or other",
        in_recipe=False,
        flag=False,
    )
    contact: str | None = setting(None, "address on the dataset card for removal requests", in_recipe=False, flag=False)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (value.isprintable() and 0 < len(value) <= MAX_CHARACTERS):
                raise ConfigError(
                    f"clean.card.{field.name} is {value[:40]!r}",
                    f"expected one line of 1 to {MAX_CHARACTERS} printable characters",
                )
