"""Bytes are hashed by the worker that writes them: the driver reads none, and reruns verify only what was touched."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from test_stage import SCRIPT, double, files, tasks  # noqa: E402

from webtext.base.console import Console  # noqa: E402
from webtext.base.errors import InputError, RunFailed  # noqa: E402
from webtext.base.parts import partset, partwriter  # noqa: E402
from webtext.base.parts.partset import PartSet  # noqa: E402
from webtext.base.parts.stage import PartTask  # noqa: E402
from webtext.base.run import Run  # noqa: E402
from webtext.base.workers.engine import LocalEngine, TaskFailure  # noqa: E402
from webtext.base.workers.journal import Journal  # noqa: E402

NUMBERS = [[1, 2], [3, 4], [5, 6]]


class CountingEngine(LocalEngine):
    """An engine that notes the function and the number of tasks of each map."""

    def __init__(self) -> None:
        super().__init__(2)
        self.maps: list[tuple[str, int]] = []

    def map(self, function: Callable[..., Any], tasks: Sequence[Any], **options: Any) -> list[TaskFailure]:
        self.maps.append((function.__name__, len(tasks)))
        return super().map(function, tasks, **options)


class InProcess:
    """An engine without workers."""

    workers = 1

    def map(self, function: Any, tasks: Any, *, on_done: Any, **_: Any) -> list[Any]:
        for number, task in enumerate(tasks):
            on_done(number, function(Journal(), task))
        return []


@pytest.fixture
def engine() -> Iterator[CountingEngine]:
    with CountingEngine() as engine:
        yield engine


@pytest.fixture
def run(engine: CountingEngine) -> Run:
    return Run(engine, Console("quiet"))


@pytest.fixture
def driver_hashes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> str:
        raise AssertionError("the driver hashes a file")

    for module in (partset, partwriter):
        monkeypatch.setattr(module, "file_sha256", fail)


def alter(path: Path, *, keeps_time: bool) -> None:
    """Flip a bit in the middle of a file."""
    time_ns = path.stat().st_mtime_ns
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    if keeps_time:
        os.utime(path, ns=(time_ns, time_ns))


@pytest.mark.usefixtures("driver_hashes_nothing")
def test_the_driver_hashes_nothing_and_a_rerun_reads_nothing(engine: CountingEngine, run: Run, tmp_path: Path) -> None:
    double(tmp_path, tasks(NUMBERS), run)
    assert engine.maps == [("_make_part", 3)]
    double(tmp_path, tasks(NUMBERS), run)
    double(tmp_path, tasks(NUMBERS), Run(engine, run.console, dry_run=True))
    assert engine.maps == [("_make_part", 3)]


@pytest.mark.usefixtures("driver_hashes_nothing")
def test_a_touched_part_alone_is_verified_and_an_altered_one_alone_is_made_again(
    engine: CountingEngine, run: Run, tmp_path: Path
) -> None:
    double(tmp_path, tasks(NUMBERS), run)
    before = files(tmp_path)
    os.utime(tmp_path / "kept/part-00000.parquet")
    alter(tmp_path / "dropped/part-00002.parquet", keeps_time=False)
    engine.maps.clear()
    double(tmp_path, tasks(NUMBERS), run)
    assert engine.maps == [("altered_files", 1), ("altered_files", 1), ("_make_part", 1)]
    assert files(tmp_path) == before
    engine.maps.clear()
    double(tmp_path, tasks(NUMBERS), run)
    assert engine.maps == []


def test_a_touched_set_is_verified_once_and_stays_sealed(engine: CountingEngine, run: Run, tmp_path: Path) -> None:
    double(tmp_path, tasks(NUMBERS), run)
    for path in tmp_path.rglob("part-*"):
        os.utime(path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json") if path.name != "run.json"}
    engine.maps.clear()
    for _ in range(2):
        double(tmp_path, tasks(NUMBERS), run)
    assert engine.maps == [("altered_files", 1), ("altered_files", 1)]
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_scratch_is_never_synced_and_its_bytes_are_verified_whatever_their_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A power cut may leave zeros in a file with its size and time, in any file of the set."""
    here: Any = InProcess()
    run, synced = Run(here, Console("quiet")), list[int]()
    monkeypatch.setattr(os, "fsync", synced.append)
    double(tmp_path, tasks(NUMBERS), run, scratch=True)
    before = files(tmp_path)
    assert synced == []
    for name in sorted(before):
        path = tmp_path / name
        time_ns = path.stat().st_mtime_ns
        path.write_bytes(bytes(path.stat().st_size))
        os.utime(path, ns=(time_ns, time_ns))
        double(tmp_path, tasks(NUMBERS), run, scratch=True)
        assert files(tmp_path) == before, name
    assert synced == []


def test_parts_are_verified_in_groups_of_a_bounded_size(engine: CountingEngine, run: Run, tmp_path: Path) -> None:
    opened = double(tmp_path, tasks([[i] for i in range(130)]), run)["dropped"]
    engine.maps.clear()
    assert partset.find_altered(opened.folder, opened.parts, run) == {}
    large = [dataclasses.replace(part, bytes=part.bytes + partset.TASK_BYTES) for part in opened.parts[:3]]
    assert list(partset.find_altered(opened.folder, large, run)) == [part.name for part in large]
    assert engine.maps == [("altered_files", 3), ("altered_files", 3)]


def test_a_set_of_an_earlier_version_is_verified_once(engine: CountingEngine, run: Run, tmp_path: Path) -> None:
    double(tmp_path, tasks(NUMBERS), run)
    for path in tmp_path.glob("*/run.json"):
        facts = json.loads(path.read_text())
        del facts["versions"]
        path.write_text(json.dumps(facts))
    engine.maps.clear()
    for _ in range(2):
        double(tmp_path, tasks(NUMBERS), run)
    assert engine.maps == [("altered_files", 1), ("altered_files", 1)]
    facts = json.loads((tmp_path / "kept/run.json").read_text())
    assert facts["workers"] == 2
    assert set(facts["versions"]) == {f"part-{i:05d}.parquet" for i in range(3)} | {
        f"_parts/{i:05d}.json" for i in range(3)
    }


@pytest.mark.usefixtures("driver_hashes_nothing")
def test_what_a_killed_run_left_is_verified_even_if_its_time_is_unchanged(
    engine: CountingEngine, run: Run, tmp_path: Path
) -> None:
    script = SCRIPT.format(here=str(HERE), folder=str(tmp_path / "killed"), endless=[3, 4, 5, 6, 7])
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    entries = tmp_path / "killed" / "kept" / "_parts"
    while len(list(entries.glob("*.json"))) < 3 and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    alter(tmp_path / "killed/kept/part-00001.parquet", keeps_time=True)
    numbers = [range(i, i + 10) for i in range(0, 80, 10)]
    double(tmp_path / "killed", tasks(numbers), run)
    assert engine.maps == [("altered_files", 1), ("altered_files", 1), ("_make_part", 6)]
    double(tmp_path / "whole", tasks(numbers), run)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_parts_of_a_run_that_failed_are_not_verified_again(engine: CountingEngine, run: Run, tmp_path: Path) -> None:
    broken = [*tasks([[2, 4]]), PartTask(index=1, sources=(), payload={"numbers": [6], "breaks": True})]
    for _ in range(2):
        with pytest.raises(RunFailed):
            double(tmp_path, broken, run)
    assert engine.maps == [("_make_part", 2), ("_make_part", 1)]


def test_bytes_that_changed_without_a_new_time_are_found_by_readers_and_by_a_check_of_every_byte(
    run: Run, tmp_path: Path
) -> None:
    opened = double(tmp_path, tasks(NUMBERS), run)["kept"]
    opened.check(opened.parts, run, every_byte=True)
    for name in ("part-00000.parquet", "part-00002.parquet"):
        alter(tmp_path / "kept" / name, keeps_time=True)
    opened.check(opened.parts, run)
    with pytest.raises(InputError, match=r"2 files of '.*kept' altered: 'part-00000.parquet', 'part-00002.parquet'"):
        opened.check(opened.parts, run, every_byte=True)
    with pytest.raises(InputError, match=r"part-00002.parquet' was altered"):
        PartSet.open(str(tmp_path / "kept")).table(2)
