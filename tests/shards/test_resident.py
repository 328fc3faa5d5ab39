"""Prefetched ranges: fetched once and in order, released when no longer needed, errors raised by `get`."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from webtext.shards.sampling import resident
from webtext.shards.sampling.resident import Range, Resident


class Fetcher:
    """Records what is fetched; (7, 7) fails, and nothing is fetched before the gate opens."""

    def __init__(self) -> None:
        self.fetched: list[Range] = []
        self.gate = threading.Event()
        self.begun = threading.Event()

    def __call__(self, wanted: Range) -> str:
        self.begun.set()
        assert self.gate.wait(300)
        self.fetched.append(wanted)
        if wanted == (7, 7):
            raise OSError("gone")
        return f"{wanted}"


@pytest.fixture
def fetcher() -> Fetcher:
    return Fetcher()


def test_each_range_is_fetched_once_in_the_order_given(fetcher: Fetcher) -> None:
    held = Resident(fetcher, n_threads=1)
    fetcher.gate.set()
    held.hold([(3, 1), (1, 1), (2, 1)])
    assert [held.get(each) for each in [(2, 1), (3, 1), (1, 1), (2, 1)]] == ["(2, 1)", "(3, 1)", "(1, 1)", "(2, 1)"]
    held.hold([(1, 1), (4, 1)])
    assert held.get((1, 1)) == "(1, 1)"
    assert held.get((4, 1)) == "(4, 1)"
    assert sorted(fetcher.fetched) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    held.close()


def test_a_range_that_is_waited_for_is_fetched_before_the_others(fetcher: Fetcher) -> None:
    held = Resident(fetcher, n_threads=1)
    held.hold([(0, 1)] + [(n, 1) for n in range(1, 9)])
    assert fetcher.begun.wait(300)
    waiter = threading.Thread(target=held.get, args=((8, 1),))
    waiter.start()
    while held._waiting[0] != (8, 1):  # the thread at the gate has already taken one range
        waiter.join(0.01)
    fetcher.gate.set()
    waiter.join(300)
    held.get((7, 1))
    assert fetcher.fetched.index((8, 1)) == 1
    held.close()


def test_a_range_that_is_no_longer_held_is_released_and_not_fetched(fetcher: Fetcher) -> None:
    held = Resident(fetcher, n_threads=1)
    held.hold([(1, 1), (2, 1), (3, 1)])
    held.hold([(4, 1)])
    fetcher.gate.set()
    assert held.get((4, 1)) == "(4, 1)"
    assert set(fetcher.fetched) <= {(1, 1), (4, 1)}
    with pytest.raises(KeyError):
        held.get((2, 1))
    held.close()


def test_an_error_is_raised_where_it_is_waited_for_and_the_others_come(fetcher: Fetcher) -> None:
    held = Resident(fetcher, n_threads=2)
    fetcher.gate.set()
    held.hold([(7, 7), (1, 1)])
    assert held.get((1, 1)) == "(1, 1)"
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            held.get((7, 7))
    held.close()


def test_a_file_is_read_into_the_page_cache_whole_and_only_when_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * resident.SWEEP_BYTES))
    swept: list[tuple[int, int]] = []
    read = os.preadv

    def preadv(file: int, buffers: list[Any], offset: int, flags: int = 0) -> int:
        n = read(file, buffers, offset)
        if flags == 0:
            swept.append((offset, n))
        return n

    monkeypatch.setattr(os, "preadv", preadv)
    resident.read_ahead(str(path), 100, 2 * resident.SWEEP_BYTES)
    assert swept == []
    monkeypatch.setattr(resident, "_is_cached", lambda file, at: at < 1 << 20)
    resident.read_ahead(str(path), 100, 2 * resident.SWEEP_BYTES + 7)
    assert swept == [(100, 1 << 20), (100 + (1 << 20), 1 << 20), (100 + (2 << 20), 7)]
