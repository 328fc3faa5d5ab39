"""Settings of removal lists. A module of its own, so that `--help` doesn't load their reader."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalSettings:
    """Which removal lists apply: the section [clean.remove]."""

    remove: tuple[str, ...] = setting(
        (),
        "removal list: a text file of URLs, domains and ids, the folder 'removals' of crawl refresh, or the folder "
        "'dropped' of an earlier build; repeatable",
        in_recipe=False,
    )
