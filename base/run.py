"""The environment of a stage's run: an engine, a console, and whether it is a dry run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from webtext.base.console import Console
from webtext.base.errors import DryRun

if TYPE_CHECKING:
    from webtext.base.workers.engine import LocalEngine


@dataclass(slots=True)
class Run:
    """Engine, console and dry-run flag, passed to every stage function; nothing in it can change a record."""

    engine: LocalEngine
    console: Console
    dry_run: bool = False

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
