"""What a stage runs with: an engine, a console, and whether to do it or only to say what would be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from webtext.base.console import Console
from webtext.base.errors import DryRun

if TYPE_CHECKING:
    from webtext.base.engine import Engine


@dataclass(slots=True)
class Run:
    """Handed to every stage function; nothing in it can change a record."""

    engine: Engine
    console: Console
    dry_run: bool = False

    def would_write(self, location: str) -> None:
        """Under a dry run, say so and end it; to be called before a verb writes its one output."""
        if self.dry_run:
            self.console.say(f"would write '{location}'")
            raise DryRun

    @classmethod
    def quiet(cls, workers: int = 1) -> Run:
        """A run that shows nothing, for library use and tests."""
        from webtext.base.engine import LocalEngine

        return cls(LocalEngine(workers=workers), Console("quiet"))
