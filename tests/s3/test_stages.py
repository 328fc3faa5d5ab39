"""Stages that write to a store: bytes equal those on disk, whatever it answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from object_store import ObjectStore

from webtext.base.console import Console
from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.base.workers.local_engine import LocalEngine

from .conftest import files, spoiled

HERE = Path(__file__).parent
sys.path.append(str(HERE))

from doubling import double  # noqa: E402

CHILD = f"""
import sys
sys.path.append({str(HERE)!r})
from doubling import double
from webtext.base.run import Run
double(sys.argv[1], int(sys.argv[2]), Run.quiet(1))
"""


@pytest.fixture(scope="module")
def run(running: ObjectStore) -> Iterator[Run]:
    with LocalEngine(workers=1) as engine:
        yield Run(engine, Console("quiet"))


def test_a_stage_in_a_store_gives_the_bytes_of_one_on_disk(
    store: ObjectStore, place: str, tmp_path: Path, run: Run
) -> None:
    double(str(tmp_path), 3, run)
    double(place, 3, run)
    assert files(place) == files(str(tmp_path))


def test_a_rerun_that_finds_all_done_sends_two_requests_per_set(store: ObjectStore, place: str, run: Run) -> None:
    double(place, 5, run)
    store.requests.clear()
    double(place, 5, run)
    assert store.counts == {"LIST": 2, "GET": 2}
    assert {key.rpartition("/")[2] for operation, key in store.requests if operation == "GET"} == {"manifest.json"}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_store_that_spoils_a_tenth_of_its_answers_changes_no_byte(
    seed: int, store: ObjectStore, place: str, tmp_path: Path, run: Run
) -> None:
    double(str(tmp_path), 4, run)
    store.spoil = spoiled(seed, 0.1)
    double(place, 4, run).verify()
    store.clear()
    assert files(place) == files(str(tmp_path))


LAST = ["kept/_parts/00001.json", "kept/manifest.json"]
SLOW = [pytest.param(last, marks=pytest.mark.slow) for last in ("kept/part-00001.parquet", "dropped/manifest.json")]


@pytest.mark.parametrize("last", LAST + SLOW)
def test_a_run_that_dies_before_an_object_is_written_is_resumed_to_the_same_bytes(
    last: str, store: ObjectStore, place: str, tmp_path: Path, run: Run
) -> None:
    """The object is the marker of a part or of a set, or the last file before one."""

    def kill(operation: str, key: str) -> str:
        if operation == "PUT" and key.endswith(last):
            os.kill(child.pid, signal.SIGKILL)
            return "reset"
        return ""

    store.spoil = kill
    child = subprocess.Popen([sys.executable, "-c", CHILD, place, "3"])
    assert child.wait() == -signal.SIGKILL
    store.clear()
    with pytest.raises(InputError, match=r"doesn't exist|is not sealed"):
        PartSet.open(f"{place}/kept")
    double(place, 3, run)
    double(str(tmp_path), 3, run)
    assert files(place) == files(str(tmp_path))


def test_a_run_that_is_done_costs_five_requests_per_set(store: ObjectStore, place: str, run: Run) -> None:
    double(place, 12, run)
    store.requests.clear()
    double(place, 12, run)
    assert len(store.requests) <= 2 * 5 + 2 * 1, store.requests


def test_an_altered_part_in_a_store_is_rejected_by_readers(store: ObjectStore, place: str, run: Run) -> None:
    opened = double(place, 2, run)
    data = bytearray(opened.folder.read_bytes("part-00001.parquet"))
    data[len(data) // 2] ^= 1
    opened.folder.write_bytes("part-00001.parquet", bytes(data))
    assert opened.table(0).num_rows == opened.parts[0].records
    with pytest.raises(InputError, match=r"part-00001.parquet' was altered: SHA-256"):
        PartSet.open(f"{place}/kept").table(1)
