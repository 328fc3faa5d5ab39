"""Bugs planted in a copy of the package, each with the drill that catches it: drills that find nothing could find it.

A bug is an edit of one file. `make drills` plants all of them, one by one, and prints which drill caught each.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(HERE))

from drills import Drills, named  # noqa: E402
from stage import Stage  # noqa: E402
from stories import STORIES  # noqa: E402

STAGES = ("base", "crawl", "clean", "tokenizer", "shards", "train", "app")


@dataclass(frozen=True, slots=True)
class Bug:
    """What is wrong, the edit (`old` is in `file` exactly once), and where it shows: which drill of which story."""

    what: str
    file: str
    old: str
    new: str
    story: str
    drill: str

    def edited(self, source: str) -> str:
        """Return a source with the bug; AssertionError if the edit doesn't fit."""
        n = source.count(self.old)
        assert n == 1, f"{self.file} has the planted bug's text {n} times, not once ({self.what}):\n{self.old}"
        return source.replace(self.old, self.new)


BUGS = (
    Bug(
        "a file isn't synced before it gets its name",
        "base/storage.py",
        "        os.fsync(file.fileno())\n    os.replace(temporary, target)\n",
        "    os.replace(temporary, target)\n".replace("    ", "        ", 1),
        "stage",
        "promises",
    ),
)


@contextlib.contextmanager
def copied_package(folder: Path) -> Iterator[Path]:
    """Make a folder with a copy of the package: its Python files can be edited, its native modules are links."""
    import webtext

    package = folder / "webtext"
    for place in (*map(Path, webtext.__path__), REPOSITORY):
        for stage in STAGES:
            for pattern in ("*.so", "*.py", "*.json", "*.txt", "*.bin"):
                for path in (place / stage).rglob(pattern):
                    target = package / path.relative_to(place)
                    if "build" not in path.parts[len(place.parts) :] and not target.exists():
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.symlink_to(path)
    (package / "__init__.py").symlink_to(REPOSITORY / "app/_package.py")
    yield folder


@contextlib.contextmanager
def planted(bug: Bug, package: Path) -> Iterator[None]:
    """Plant a bug in a copy of the package."""
    target, source = package / "webtext" / bug.file, REPOSITORY / bug.file
    target.unlink()
    target.write_text(bug.edited(source.read_text()))
    try:
        yield
    finally:
        target.unlink()
        target.symlink_to(source)


def caught(bug: Bug, sound: Drills, package: Path, scratch: Path) -> tuple[str, float]:
    """Return what the bug's drill says about it, "" if nothing, and the seconds that it took."""
    started = time.monotonic()
    with planted(bug, package):
        stage = Stage(scratch / "stage-with-a-bug", package=package)
        try:
            drills = Drills(stage, STORIES[bug.story], scratch, sound)
            if not drills.summary.wrong:
                named(n_cuts=12, n_faults=30, n_decays=30, seed=0)[bug.drill](drills)
            found = drills.summary.wrong
        except AssertionError as error:  # the undisturbed run fails, or writes where nobody looks
            found = [f"{bug.story}: undisturbed: {error}"]
        finally:
            stage.close()
    return found[0] if found else "", time.monotonic() - started


def catch_all(scratch: Path) -> list[Bug]:
    """Plant every bug and print the table; return those that no drill caught."""
    missed, width = [], max(len(bug.what) for bug in BUGS)
    sound: dict[str, Drills] = {}
    stage = Stage(scratch / "stage")
    print(f"{'planted bug':{width}}  {'caught by':28} seconds", flush=True)
    with copied_package(scratch / "package") as package:
        for bug in BUGS:
            if bug.story not in sound:
                sound[bug.story] = Drills(stage, STORIES[bug.story], scratch)
            said, seconds = caught(bug, sound[bug.story], package, scratch)
            drill = "undisturbed" if "undisturbed" in said else bug.drill
            print(f"{bug.what:{width}}  {f'{drill} ({bug.story})' if said else 'MISSED':28} {seconds:7.1f}", flush=True)
            if os.environ.get("FAULTS_SAY"):
                print("    " + said[:600])
            missed += [] if said else [bug]
    stage.close()
    return missed
