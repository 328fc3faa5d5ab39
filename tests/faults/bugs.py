"""Bugs planted in a copy of the package, each with the drill that catches it: drills that find nothing could find it.

A bug is an edit of one file. `make drills` plants all of them, one by one, and prints which drill caught each.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(HERE))

from drills import Caught, Drills, named  # noqa: E402
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


STORAGE, WRITER, STAGE_RUN, OPEN = (
    "base/storage.py",
    "base/parts/partwriter.py",
    "base/parts/stage.py",
    "crawl/pages/open_part.py",
)
CHECKPOINT, METRICS = "train/checkpoint/checkpoint.py", "train/metrics.py"
SYNCED = """\
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
"""
ENTRY = "        self.folder.write_object(entry_name(self.index), with_check(part.to_json()))\n"
RENAMED = "    os.replace(temporary, target)\n"
BUGS = (
    # base/storage.py
    Bug("a file isn't synced", STORAGE, SYNCED + RENAMED, RENAMED, "stage", "durable"),
    Bug(
        "a file is renamed before it is synced",
        STORAGE,
        SYNCED + RENAMED,
        RENAMED + SYNCED.replace("temporary", "target"),
        "stage",
        "promises",
    ),
    Bug(
        "a folder isn't synced after a rename",
        STORAGE,
        RENAMED + "    sync_folder(target.parent)\n",
        RENAMED,
        "stage",
        "durable",
    ),
    Bug(
        "a new folder's name isn't synced",
        STORAGE,
        "            sync_folder(path.parent)\n",
        "            pass\n",
        "stage",
        "durable",
    ),
    Bug(
        "a file is written in place",
        STORAGE,
        "with self.scratch(name) as path, no_space_is_an_error",
        "with contextlib.nullcontext(self.scratch_path(name).with_name(name)) as path, no_space_is_an_error",
        "stage",
        "promises",
    ),
    Bug(
        "a temporary file in the wrong folder",
        STORAGE,
        'return target.with_name(f".{target.name}',
        'return Path(temporary_folder()) / (f".{target.name}',
        "stage",
        "promises",
    ),
    Bug(
        "a full disk is swallowed",
        STORAGE,
        "            raise full from None\n",
        "            return\n",
        "stage",
        "failing calls",
    ),
    Bug(
        "a lock is ignored",
        "base/stores/leases.py",
        "if not _flock(handle, fcntl.LOCK_SH if name else fcntl.LOCK_EX):",
        "if False:",
        "stage",
        "locked folder",
    ),
    # part sets
    Bug(
        "the entry before its part",
        WRITER,
        "        self.folder.publish(self._path, part.name)\n" + ENTRY,
        ENTRY + "        self.folder.publish(self._path, part.name)\n",
        "stage",
        "promises",
    ),
    Bug(
        "the entry before its attachments",
        WRITER,
        "        for name, path in self._attached.items():\n            self.folder.publish(path, name)\n",
        ENTRY + "        for name, path in self._attached.items():\n            self.folder.publish(path, name)\n",
        "stage",
        "promises",
    ),
    Bug(
        "an old entry stays while its part is replaced",
        WRITER,
        "        self.folder.remove(entry_name(self.index))  # an older",
        "        # an older",
        "stage again",
        "promises",
    ),
    Bug(
        "the manifest stays while parts are replaced",
        WRITER,
        "        self.folder.remove(MANIFEST)\n",
        "",
        "stage again",
        "promises",
    ),
    Bug(
        "rows of failures are lost",
        WRITER,
        "            self._failures.close()\n        assert",
        "            pass\n        assert",
        "stage",
        "promises",
    ),
    Bug(
        "parts are trusted by their sizes",
        "base/parts/partset.py",
        " and file_sha256(file) == sha256",
        "",
        "stage",
        "flipped bytes",
    ),
    Bug(
        "parts of other settings are trusted",
        STAGE_RUN,
        " if self.keys.get(index) == part.key}",
        "}",
        "stage again",
        "power cuts",
    ),
    Bug(
        "a set is sealed although a part failed",
        STAGE_RUN,
        "            raise RunFailed(\n",
        "            print(\n",
        "stage",
        "failing calls",
    ),
    Bug(
        "quarantined records aren't written",
        STAGE_RUN,
        "        self._folder.write_object(QUARANTINE, with_check(named))\n",
        "        pass\n",
        "stage",
        "promises",
    ),
    Bug(
        "a failed record is counted twice",
        STAGE_RUN,
        "            self.main.fail(identify(record), failed.reason, failed.cause)\n",
        "            self.main.fail(identify(record), failed.reason, failed.cause)\n" * 2,
        "stage",
        "promises",
    ),
    Bug(
        "an entry's check isn't compared",
        "base/parts/recipe.py",
        "    if check is not None and check != sha256_json(rest):\n",
        "    if False:\n",
        "stage",
        "flipped bytes",
    ),
    Bug(
        "a part with another version is trusted",
        "base/parts/partset.py",
        'if any(run[VERSIONS].get(n) != there.get(n, (0, ""))[1] for n, *_ in part.files)',
        "if any(n not in run[VERSIONS] for n, *_ in part.files)",
        "stage",
        "flipped bytes",
    ),
    Bug(
        "versions of files that aren't synced are recorded",
        WRITER,
        "if self.folder.synced and not versions.items()",
        "if not versions.items()",
        "dedup",
        "promises",
    ),
    # the crawl's open part
    Bug(
        "a short write is taken for a whole one",
        OPEN,
        "n_written += os.pwrite(self._journal, data[n_written:], self._journal_bytes + n_written)",
        "n_written += len(data) + 0 * os.pwrite(self._journal, data, self._journal_bytes)",
        "crawl",
        "short writes",
    ),
    Bug(
        "the journal's position is off by one",
        OPEN,
        "self._journal_bytes = recovered.journal_bytes if recovered else 0",
        "self._journal_bytes = recovered.journal_bytes - 1 if recovered else 0",
        "crawl",
        "killed run",
    ),
    Bug(
        "rows of the open part are forgotten and fetched again",
        "crawl/pages/pages_set.py",
        "if self._recovered is not None and self._recovered.entries:",
        "if self._recovered is not None and not self._recovered.entries:",
        "crawl",
        "killed run",
    ),
    Bug(
        "clocks are renamed before they are synced",
        "crawl/exchange/clock_journal.py",
        '        Folder(self._path.parent).write_bytes(NAME, text.encode("ascii"))\n',
        '        new = self._path.with_suffix(".tmp")\n        new.write_text(text)\n        os.replace(new, self._path)\n',
        "crawl",
        "promises",
    ),
    # links
    Bug(
        "scratch files of a killed run stay",
        "crawl/links/collect.py",
        "                work.remove_all()  # a run that was killed",
        "                pass  # a run that was killed",
        "links",
        "killed run",
    ),
    Bug(
        "a damaged record of a spill ends the run",
        "crawl/links/reading.py",
        "(ValueError, TypeError, RecursionError)",
        "TypeError",
        "links",
        "flipped bytes",
    ),
    # the tokenizer
    Bug(
        "a manifest stays while its file is replaced",
        "tokenizer/files/corpus.py",
        "        self.folder.remove(self._manifest)\n",
        "        pass\n",
        "counts again",
        "promises",
    ),
    # training
    Bug(
        "tensors aren't synced",
        "train/checkpoint/storage.py",
        "            os.fsync(file.fileno())\n",
        "",
        "train",
        "promises",
    ),
    Bug(
        "a checkpoint is renamed before its folder is synced",
        STORAGE,
        RENAMED + "    sync_folder(target.parent)\n",
        RENAMED,
        "train",
        "durable",
    ),
    Bug(
        "a new checkpoint's name isn't synced",
        CHECKPOINT,
        "    sync_folder(saved.path.parent)\n",
        "",
        "train",
        "durable",
    ),
    Bug(
        "an old checkpoint is removed file by file",
        CHECKPOINT,
        "                os.rename(path, temporary_path(path))\n",
        "                shutil.rmtree(path)\n",
        "train",
        "promises",
    ),
    Bug(
        "a checkpoint's digests aren't compared",
        CHECKPOINT,
        "                if verify and file_sha256(file) != digest:\n",
        "                if False:\n",
        "train",
        "flipped bytes",
    ),
    Bug(
        "metrics aren't synced before their checkpoint",
        METRICS,
        "        os.fsync(self._file.fileno())\n",
        "        pass\n",
        "train",
        "power cuts",
    ),
    Bug(
        "metrics after the checkpoint are kept",
        METRICS,
        "if of_step is not None and of_step <= step)",
        "if of_step is not None)",
        "train",
        "killed run",
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
            named(n_cuts=20, n_faults=30, n_decays=40, seed=0)[bug.drill](drills)
            found = ""
        except Caught as error:
            found = str(error)
        except AssertionError as error:  # the undisturbed run fails, or writes where nobody looks
            found = f"{bug.story}: undisturbed: {error}"
        finally:
            stage.close()
    return found, time.monotonic() - started


def catch_all(scratch: Path, bugs: Sequence[Bug]) -> list[Bug]:
    """Plant each of these bugs and print the table; return those that no drill caught."""
    missed, width = [], max(len(bug.what) for bug in BUGS)
    sound: dict[str, Drills] = {}
    stage = Stage(scratch / "stage")
    print(f"{'planted bug':{width}}  {'caught by':28} seconds", flush=True)
    with copied_package(scratch / "package") as package:
        for bug in bugs:
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
