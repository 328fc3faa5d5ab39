"""Rows exchanged between parts: by range, in order, and never from a file with other bytes than were written."""

from __future__ import annotations

import contextlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.base.parts import exchange
from webtext.base.parts.exchange import RangeWriter, abouts, range_of_hash, read_range
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter

WORDS = pa.schema([("range", pa.uint64()), ("word", pa.string()), ("values", pa.list_(pa.uint64()))])


def rows_of(ranges: list[int], prefix: str = "") -> pa.Table:
    words = [f"{prefix}{place}" for place in range(len(ranges))]
    return pa.table([ranges, words, [[number] * (number % 3) for number in ranges]], schema=WORDS)


def exchanged(folder, parts: list[list[list[int]]], n_ranges: int) -> PartSet:
    """Write a set: for each part, the batches of rows that are added, given by their ranges."""
    writer = SetWriter(str(folder), "exchange", Recipe(stage="test", code_version=1, settings={}))
    made = []
    for index, batches in enumerate(parts):
        with writer.part(index, key=str(index)) as part:
            with RangeWriter(part, WORDS, n_ranges) as ranges:
                for number, batch in enumerate(batches):
                    ranges.add(np.array(batch, np.uint64), rows_of(batch, f"{index}-{number}-"))
            made.append(part.publish())
    return writer.seal(made)


def read(opened: PartSet, number: int) -> list[dict]:
    return [row for batch in read_range(opened, number, WORDS) for row in batch.to_pylist()]


def test_a_range_has_its_rows_of_all_parts_in_the_order_in_which_they_were_added(tmp_path):
    opened = exchanged(tmp_path, [[[2, 0, 2], [1, 2]], [], [[], [2]]], 4)
    assert [row["word"] for row in read(opened, 2)] == ["0-0-0", "0-0-2", "0-1-1", "2-1-0"]
    assert read(opened, 1) == [{"range": 1, "word": "0-1-0", "values": [1]}]
    assert read(opened, 3) == []
    assert [about["records"] for about in abouts(opened)] == [5, 0, 1]


@settings(max_examples=30)
@given(st.lists(st.lists(st.lists(st.integers(0, 4), max_size=9), max_size=4), max_size=3), st.integers(0, 200))
def test_ranges_divide_the_rows_however_few_fit_in_memory(tmp_path_factory, parts, run_bytes):
    folder = tmp_path_factory.mktemp("set")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "RUN_BYTES", run_bytes)
        opened = exchanged(folder, parts, 5)
    given = [
        (number, f"{part}-{batch}-{place}")
        for part, batches in enumerate(parts)
        for batch, ranges in enumerate(batches)
        for place, number in enumerate(ranges)
    ]
    for number in range(5):
        assert [row["word"] for row in read(opened, number)] == [word for each, word in given if each == number]


def test_memory_and_files_are_bounded_by_runs_not_by_the_part(tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "RUN_BYTES", 4096)
    opened = exchanged(tmp_path, [[list(range(8)) * 8] * 40], 8)
    (about,) = (each.about for each in opened.parts[0].attachments)
    assert about["runs"] > 10
    assert all(batch.nbytes < 4096 for batch in read_range(opened, 3, WORDS))


def test_the_same_rows_give_the_same_bytes(tmp_path):
    one, two = (exchanged(tmp_path / name, [[[2, 0, 2], [1, 2]]], 3) for name in ("one", "two"))
    assert one.hash == two.hash


def test_every_byte_of_a_range_is_checked_when_it_is_read(tmp_path):
    """Whichever byte of the file changes, the ranges that it belongs to are errors, and the others can be read."""
    opened = exchanged(tmp_path, [[[0, 1, 1]]], 3)
    path = tmp_path / "part-00000.exchange"
    data = path.read_bytes()
    footer = len(data) - 3 * 48
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        raised = []
        for number in range(3):
            try:
                read(opened, number)
            except InputError as error:
                assert "part-00000.exchange' was altered" in str(error)  # noqa: PT017
                raised.append(number)
        assert len(raised) == 1
        if place >= footer:
            assert raised == [(place - footer) // 48]


@pytest.mark.parametrize("n_bytes", [0, 10, -1, -60])
def test_a_file_that_was_cut_short_is_an_error(n_bytes, tmp_path):
    opened = exchanged(tmp_path, [[[0, 1, 1]]], 2)
    path = tmp_path / "part-00000.exchange"
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(InputError, match=r"part-00000.exchange"):
        read(opened, 1)


def test_the_file_of_another_run_with_the_same_layout_is_an_error(tmp_path):
    opened = exchanged(tmp_path / "one", [[[0, 1, 1]]], 2)
    other = exchanged(tmp_path / "two", [[[], [0, 1, 1]]], 2)
    (tmp_path / "one" / "part-00000.exchange").write_bytes((tmp_path / "two" / "part-00000.exchange").read_bytes())
    assert other.records == 0
    for number in (0, 1):
        with pytest.raises(InputError, match="was altered"):
            read(opened, number)


def test_nothing_is_published_if_the_rows_end_with_an_error(tmp_path):
    writer = SetWriter(str(tmp_path), "exchange", Recipe(stage="test", code_version=1, settings={}))
    with contextlib.suppress(ZeroDivisionError), writer.part(0, key="") as part, RangeWriter(part, WORDS, 2) as ranges:
        ranges.add(np.array([1], np.uint64), rows_of([1]))
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_hashes_fill_all_ranges_from_the_first_to_the_last():
    keys = np.array([0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1], np.uint64)
    assert range_of_hash(keys, 2).tolist() == [0, 0, 1, 1]
    assert range_of_hash(keys, 1_000_000).tolist() == [0, 499_999, 500_000, 999_999]
