"""Untrusted Parquet files: rows that aren't UTF-8, and small files that decode to gigabytes."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from webtext.base.parts.untrusted_parquet import BATCH_BYTES, Expands, parquet_batches, rows_of


def strings(values: Sequence[bytes | None]) -> pa.Array:
    """Return a string column with these bytes, UTF-8 or not."""
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def parquet(columns: dict[str, Any], **options: Any) -> io.BytesIO:
    data = io.BytesIO()
    pq.write_table(pa.table(columns), data, **options)
    return data


def repeated(value: str, n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([value]))


def read(data: io.BytesIO, *columns: str) -> list[dict[str, Any] | Exception]:
    return [row for batch in parquet_batches(data, columns) for row in rows_of(batch)]


# --- rows -----------------------------------------------------------------------------------------------------------------


def test_a_row_that_is_not_utf8_costs_itself_alone() -> None:
    texts = strings([b"row %d" % i if i != 700 else b"r\xf6w" for i in range(1000)])
    rows = read(parquet({"text": texts, "n": list(range(1000))}), "text", "n")
    assert [i for i, row in enumerate(rows) if isinstance(row, Exception)] == [700]
    assert isinstance(rows[700], UnicodeDecodeError)
    assert rows[701] == {"text": "row 701", "n": 701}


def test_strings_in_lists_and_structs_and_dictionaries_are_looked_at_too() -> None:
    bad, good = strings([b"\xff", b"good"]), [{"a": ["good"]}, None]
    large = bad.cast(pa.binary()).cast(pa.large_binary()).view(pa.large_string())
    columns = {
        "list": pa.ListArray.from_arrays([0, 1, 2], bad),
        "struct": pa.StructArray.from_arrays([bad], ["a"]),
        "dictionary": pa.DictionaryArray.from_arrays([0, 1], bad),
        "map": pa.MapArray.from_arrays([0, 1, 2], strings([b"k", b"k"]), bad),
        "dictionary of a large type": pa.DictionaryArray.from_arrays([0, 1], large),
        "view": bad.cast(pa.binary()).cast(pa.binary_view()).view(pa.string_view()),
        "large": large,
    }
    for name, column in columns.items():
        first, second = read(parquet({name: column, "other": good}), name, "other")
        assert isinstance(first, UnicodeDecodeError), name
        assert isinstance(second, dict), name


def test_a_time_that_python_cannot_hold_costs_its_row_alone() -> None:
    rows = read(parquet({"date": pa.array([2**62, 5], pa.timestamp("us"))}), "date")
    assert isinstance(rows[0], OverflowError)
    assert isinstance(rows[1], dict)


# --- sizes ----------------------------------------------------------------------------------------------------------------

BOMBS = {
    "one long value for many rows": ({"text": repeated("x" * 1_000_000, 50_000)}, {}),
    "one short value for very many rows": ({"text": repeated("x" * 2_000, 500_000)}, {}),
    "a dictionary that is large itself": ({"text": repeated("x" * 200_000_000, 9)}, {}),
    "values that repeat the one before": (
        {"text": ["x" * 1_000_000] * 200},
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}, "data_page_size": 1 << 30},
    ),
    "a value in lists": ({"text": [["x" * 1_000_000]] * 200}, {}),
    "binary values": ({"text": repeated("x" * 1_000_000, 50_000).cast(pa.dictionary(pa.int32(), pa.binary()))}, {}),
}
MEASURE = """
import resource, sys, time
from webtext.base.parts.untrusted_parquet import Expands, parquet_batches
before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    next(parquet_batches(open(sys.argv[1], "rb"), ["text"]))
except Expands as error:
    seconds = time.process_time() - begun
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10, seconds)
"""
SLOW = [pytest.param(what, marks=pytest.mark.slow) for what in [*BOMBS][1:]]


@pytest.mark.parametrize("what", [next(iter(BOMBS)), *SLOW])
def test_a_small_file_that_decodes_to_gigabytes_is_rejected_in_bounded_memory(what: str, tmp_path: Path) -> None:
    columns, options = BOMBS[what]
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", **{"dictionary_pagesize_limit": 1 << 30} | options)
    assert path.stat().st_size < 200_000
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    megabytes, seconds = map(float, done.stdout.split())
    assert megabytes < 200
    assert seconds < 10  # less than one on an idle machine


def test_batches_are_as_small_as_the_largest_row_demands() -> None:
    texts = [f"{i} " + "word " * (100_000 if i == 700 else 10) for i in range(2000)]
    data = parquet({"text": texts})
    batches = list(parquet_batches(data, ["text"]))
    assert max(batch.num_rows for batch in batches) == BATCH_BYTES // len(texts[700])
    assert [row["text"] for batch in batches for row in batch.to_pylist()] == texts


def test_a_file_that_repeats_itself_as_real_ones_do_is_read() -> None:
    columns = {"text": ["the same text again and again"] * 300_000, "split": ["train"] * 300_000}
    data = parquet(columns, compression="zstd")
    assert data.getbuffer().nbytes < 100_000
    assert len(read(data, "text", "split")) == 300_000


@pytest.mark.parametrize("values", [[], [None, None], ["", None]])
def test_a_file_with_nothing_in_it_has_no_more_rows_than_it_has(values: list[str | None]) -> None:
    assert read(parquet({"text": pa.array(values, pa.string())}), "text") == [{"text": value} for value in values]


def test_a_limit_names_what_is_above_it() -> None:
    with pytest.raises(Expands, match="column 'text' takes 20,000,0.. bytes, more than 16,777,216"):
        read(parquet({"text": repeated("x" * 20_000_000, 9)}, compression="zstd"), "text")
    with pytest.raises(Expands, match="its rows take more than 16,777,216 bytes"):
        read(parquet({"text": repeated("x" * 2_000_000, 9)}, compression="zstd"), "text")
