"""Bytes are hashed by the worker that writes them and by readers: the driver and reruns read none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from test_stage import SCRIPT, double, files, tasks  # noqa: E402

from webtext.base.console import Console  # noqa: E402
from webtext.base.errors import InputError  # noqa: E402
from webtext.base.parts import partset, partwriter  # noqa: E402
from webtext.base.parts.partset import PartSet  # noqa: E402
from webtext.base.run import Run  # noqa: E402
from webtext.base.workers.local_engine import LocalEngine, TaskFailure  # noqa: E402

NUMBERS = [[1, 2], [3, 4], [5, 6]]


class CountingEngine(LocalEngine):
    """An engine that notes the function and the number of tasks of each map."""

    def __init__(self) -> None:
        super().__init__(2)
        self.maps: list[tuple[str, int]] = []

    def map(self, function: Callable[..., Any], tasks: Sequence[Any], **options: Any) -> list[TaskFailure]:
        self.maps.append((function.__name__, len(tasks)))
        return super().map(function, tasks, **options)


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
def test_a_rerun_trusts_files_that_have_their_sizes_whatever_their_times(
    engine: CountingEngine, run: Run, tmp_path: Path
) -> None:
    double(tmp_path, tasks(NUMBERS), run)
    before = files(tmp_path)
    for path in tmp_path.rglob("part-*"):
        os.utime(path)
    (tmp_path / "dropped/part-00002.parquet").write_bytes(b"cut short")
    engine.maps.clear()
    for _ in range(2):
        double(tmp_path, tasks(NUMBERS), run)
    assert engine.maps == [("_make_part", 1)]
    assert files(tmp_path) == before


def test_what_a_killed_run_left_is_not_made_again(engine: CountingEngine, run: Run, tmp_path: Path) -> None:
    script = SCRIPT.format(here=str(HERE), folder=str(tmp_path / "killed"), endless=[3, 4, 5, 6, 7])
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    entries = tmp_path / "killed" / "kept" / "_parts"
    while len(list(entries.glob("*.json"))) < 3 and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    numbers = [range(i, i + 10) for i in range(0, 80, 10)]
    double(tmp_path / "killed", tasks(numbers), run)
    assert engine.maps == [("_make_part", 5)]
    double(tmp_path / "whole", tasks(numbers), run)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_an_altered_part_is_rejected_by_readers_and_by_verify_until_it_is_removed_and_made_again(
    engine: CountingEngine, run: Run, tmp_path: Path
) -> None:
    opened = double(tmp_path, tasks(NUMBERS), run)["kept"]
    before = files(tmp_path)
    alter(tmp_path / "kept/part-00002.parquet", keeps_time=True)
    double(tmp_path, tasks(NUMBERS), run)
    altered = r"part-00002.parquet' was altered: SHA-256 .*\nremove that file, then rerun the command that made the set"
    for reads in (lambda: PartSet.open(str(tmp_path / "kept")).table(2), opened.verify, partial(opened.verify, run)):
        with pytest.raises(InputError, match=altered):
            reads()
    (tmp_path / "kept/part-00002.parquet").unlink()
    double(tmp_path, tasks(NUMBERS), run)["kept"].verify(run)
    assert files(tmp_path) == before


def test_a_process_hashes_a_file_once_while_its_place_size_and_time_stay(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double(tmp_path, tasks(NUMBERS), run)
    place, hashed = tmp_path / "kept", list[str]()
    whole = partset.file_sha256
    monkeypatch.setattr(partset, "file_sha256", lambda file: (hashed.append(file.name), whole(file))[1])
    for _ in range(2):
        opened = PartSet.open(str(place))
        opened.table(0)
        list(opened.batches(0))
        opened.verify()
    assert [Path(name).name for name in hashed] == [f"part-{i:05d}.parquet" for i in range(3)]
    os.utime(place / "part-00001.parquet", ns=(1, 1))
    PartSet.open(str(place)).verify()
    assert [Path(name).name for name in hashed[3:]] == ["part-00001.parquet"]
