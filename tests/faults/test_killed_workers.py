"""Workers killed from outside: by an operator, a batch system, or the kernel when the machine runs out of memory."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from webtext.base.console import Console
from webtext.base.errors import RunFailed
from webtext.base.parts.partset import FailedRecord, PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartTask, run_parts
from webtext.base.run import Run
from webtext.base.workers.local_engine import LocalEngine

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "base")]

import killed_functions  # noqa: E402
from stage_functions import files  # noqa: E402

PARTS = [range(0, 6), range(6, 12)]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses, which only delay retries: this makes the test harder."""
    monkeypatch.setattr("webtext.base.workers.local_engine.PAUSE_SECONDS", 0.0, raising=False)


class Killer:
    """Kills the worker whenever it has begun a record that waits for a kill."""

    def __init__(self, folder: Path, kills: Mapping[int, int], signals: Sequence[int]) -> None:
        self.folder, self.kills, self.n_killed = folder, kills, 0
        self._signals, self._stop = signals, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Killer:
        self.folder.mkdir()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        seen: set[str] = set()
        while not self._stop.is_set():
            for marker in self.folder.glob("*-*[0-9]"):
                number, begun = map(int, marker.name.rsplit("-", 1))
                if marker.name not in seen and begun < self.kills.get(number, 0):
                    os.kill(int(marker.read_text()), self._signals[self.n_killed % len(self._signals)])
                    self.n_killed += 1
                seen.add(marker.name)
            time.sleep(0.002)


def make(out: Path, folder: Path, kills: Mapping[int, int]) -> PartSet:
    tasks = [
        PartTask(index=i, sources=(), payload={"numbers": list(n), "folder": str(folder), "kills": dict(kills)})
        for i, n in enumerate(PARTS)
    ]
    with LocalEngine(2) as engine:
        return run_parts(
            killed_functions.wait_to_be_killed,
            tasks,
            recipe=Recipe(stage="test.killed", code_version=1, settings={}),
            outputs={"out": (str(out), "dropped")},
            parents=[],
            run=Run(engine, Console("quiet")),
        )["out"]


def undisturbed(tmp_path: Path) -> Path:
    (tmp_path / "undisturbed-work").mkdir()
    make(tmp_path / "undisturbed", tmp_path / "undisturbed-work", {})
    return tmp_path / "undisturbed"


@pytest.mark.slow
def test_eighteen_kills_from_outside_quarantine_nothing(tmp_path: Path) -> None:
    """Each of six records is killed in its part, and twice when it is retried alone."""
    kills = dict.fromkeys((0, 1, 5, 6, 7, 11), 3)
    with Killer(tmp_path / "work", kills, [signal.SIGKILL, signal.SIGTERM]) as killer:
        made = make(tmp_path / "out", tmp_path / "work", kills)
    assert killer.n_killed == 18
    assert made.manifest["reproducible"]
    assert files(tmp_path / "out") == files(undisturbed(tmp_path))


def test_a_record_that_is_killed_three_times_alone_is_set_aside(tmp_path: Path) -> None:
    """The kernel uses the same signal when memory runs out, so the record can't be retried forever."""
    with Killer(tmp_path / "work", {3: 4}, [signal.SIGKILL]) as killer:
        made = make(tmp_path / "out", tmp_path / "work", {3: 4})
    assert killer.n_killed == 4
    assert made.counts.failed == {"killed_worker": 1}
    assert list(made.failures()) == [FailedRecord("3", "killed_worker", "signal 9, 3 times alone")]
    assert not made.manifest["reproducible"]


@pytest.mark.slow
def test_a_part_that_is_killed_too_often_fails_and_the_next_run_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records 6 and 7 are killed again after each survived alone; that proves nothing about them, so the part fails."""
    monkeypatch.setattr("webtext.base.workers.local_engine.MAX_RETRIES_PER_PART", 7)
    kills = {6: 3, 7: 3, 8: 3}
    with (
        Killer(tmp_path / "work", kills, [signal.SIGKILL]) as killer,
        pytest.raises(RunFailed, match="1 of 2 parts failed; part 1: given up after 7 retries: 0 records set aside"),
    ):
        make(tmp_path / "out", tmp_path / "work", kills)
    assert killer.n_killed >= 6
    assert not (tmp_path / "out" / "quarantine.json").exists()
    with Killer(tmp_path / "rest", {}, [signal.SIGKILL]):
        make(tmp_path / "out", tmp_path / "rest", {})
    assert files(tmp_path / "out") == files(undisturbed(tmp_path))


def test_a_part_that_is_killed_between_records_is_retried_more_than_once(tmp_path: Path) -> None:
    """A second crash there fails the part; a kill from outside isn't charged to the part."""
    kills = {killed_functions.BETWEEN_RECORDS: 4}
    with Killer(tmp_path / "work", kills, [signal.SIGKILL]) as killer:
        made = make(tmp_path / "out", tmp_path / "work", kills)
    assert killer.n_killed == 4
    assert made.counts.kept == 12
