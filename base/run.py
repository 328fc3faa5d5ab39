"""The environment of a stage's run: an engine, a console, which parts to make, and whether it is a dry run."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from webtext.base.console import Console, counted
from webtext.base.errors import DryRun, RunFailed

if TYPE_CHECKING:
    from webtext.base.workers.attempt import Attempt
    from webtext.base.workers.local_engine import LocalEngine
    from webtext.base.workers.ray_engine import RayEngine

T = TypeVar("T")
R = TypeVar("R")
Engine: TypeAlias = "LocalEngine | RayEngine"


class Parts(NamedTuple):
    """The parts of one of several runs: every `of`-th, beginning with part `number` - 1; `rest` makes all and seals."""

    number: int
    of: int
    rest: str = "the same command without --parts"

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and index % self.of == self.number - 1


@dataclass(slots=True)
class Run:
    """Engine, console, dry-run flag and parts to make, passed to every stage function; nothing in it can change a record."""

    engine: Engine
    console: Console
    dry_run: bool = False
    parts: Parts | None = None  # all
    replaces: bool = True  # a set whose settings have changed is made again; else InputError

    @property
    def threads(self) -> int:
        """How many threads this process may use for its own work: the engine's workers may be on other machines."""
        from webtext.base.workers.local_engine import available_cores

        return min(self.engine.workers, available_cores())

    def would_write(self, location: str) -> None:
        """In a dry run, print the location and raise DryRun; called before a verb writes its only output."""
        if self.dry_run:
            self.console.say(f"would write '{location}'")
            raise DryRun

    def map(
        self,
        function: Callable[[Attempt, T], R],
        tasks: Sequence[T],
        label: str,
        *,
        unit: str = "part",
        names: Sequence[str] = (),
        **options: Any,
    ) -> list[R]:
        """Return function(attempt, task) for each task, in order, from the engine's workers, for results that are small.

        `options` are passed to the engine's `map`. Raises RunFailed, with the task's name if `names` has it, if a task
        failed as a whole.
        """
        results: dict[int, R] = {}
        with self.console.progress(len(tasks), label, f"{unit}s") as progress:

            def on_done(index: int, result: R) -> None:
                results[index] = result
                progress.advance()

            failures = self.engine.map(function, tasks, on_done=on_done, on_records=progress.at, **options)
        if failures:
            first = failures[0]
            name = f"'{names[first.index]}'" if names else f"{unit} {first.index}"
            raise RunFailed(
                f"{label}: {len(failures)} of {counted(len(tasks), unit)} failed; {name}: {first.error}",
                "what is finished is kept; rerun the same command to retry the others",
            )
        return [results[index] for index in range(len(tasks))]

    @classmethod
    def quiet(cls, workers: int = 1) -> Run:
        """Return a run that prints nothing but warnings, for library use and tests."""
        from webtext.base.workers.local_engine import LocalEngine

        return cls(LocalEngine(workers=workers), Console("quiet"))


def peak_bytes() -> int:
    """Return the most memory that this process has had resident since its start, in bytes."""
    if (status := Path("/proc/self/status")).exists():  # on Linux, ru_maxrss begins with the parent's
        return int(status.read_bytes().partition(b"VmHWM:")[2].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
