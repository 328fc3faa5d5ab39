"""Which removal lists hold. Apart from their reading, so that `--help` need not load it."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalSettings:
    """Which removal lists hold: the section [clean.remove]."""

    remove: tuple[str, ...] = setting(
        (), "removal list, the folder 'removals' that crawl refresh wrote; repeatable", in_recipe=False
    )
