"""The environment of a stage's run: an engine, a console, the share of the parts to make, and whether it is a dry run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from webtext.base.console import Console
from webtext.base.errors import DryRun

if TYPE_CHECKING:
    from webtext.base.workers.engine import LocalEngine


class Share(NamedTuple):
    """Share `number` of `of`, numbered from 1: several runs of one command, e.g. on several machines, divide its parts."""

    number: int
    of: int


@dataclass(slots=True)
class Run:
    """Engine, console, dry-run flag and share, passed to every stage function; nothing in it can change a record."""

    engine: LocalEngine
    console: Console
    dry_run: bool = False
    share: Share = Share(1, 1)

    def would_write(self, location: str) -> None:
        """In a dry run, print the location and raise DryRun; called before a verb writes its only output."""
        if self.dry_run:
            self.console.say(f"would write '{location}'")
            raise DryRun

    @classmethod
    def quiet(cls, workers: int = 1) -> Run:
        """Return a run that prints nothing but warnings, for library use and tests."""
        from webtext.base.workers.engine import LocalEngine

        return cls(LocalEngine(workers=workers), Console("quiet"))
