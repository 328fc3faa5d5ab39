"""The digest of records depends on every value, and on nothing but the values."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.parts.digest import DIGEST_ROWS, RecordDigest
from webtext.base.parts.schemas import SCHEMAS

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("n", pa.int64()),
        pa.field("flag", pa.bool_()),
        pa.field("links", pa.list_(pa.string())),
        pa.field("posts", pa.list_(pa.struct([("id", pa.string()), ("score", pa.int64())]))),
    ]
)
ROW: dict[str, Any] = {"name": "a", "score": 0.5, "n": 3, "flag": True}
ROW |= {"links": ["x", "yz"], "posts": [{"id": "p", "score": 4}]}


def digest(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> str:
    made = RecordDigest()
    for start in range(0, len(rows), DIGEST_ROWS):
        made.update(pa.Table.from_pylist(rows[start : start + DIGEST_ROWS], schema=schema))
    return made.hexdigest()


def test_the_digest_of_one_column_is_the_sha256_that_its_definition_gives() -> None:
    """Name and a zero byte; packed validity bits (1, 0 of 8); lengths as int64 (null: 0); the bytes of the values."""
    table = pa.table({"t": pa.array(["é", None], pa.string())})
    expected = hashlib.sha256(b"t\0" + b"\x80" + (2).to_bytes(8, "little") + bytes(8) + "é".encode())
    made = RecordDigest()
    made.update(table)
    assert made.hexdigest() == expected.hexdigest()


GOLDEN = "a611998720d5eee986e19fa10ec723e13b35c15413622652fa6924e048feeedd"


def test_the_digest_stays_what_it_is_from_version_to_version() -> None:
    """A golden value: manifests contain it, so it may change only together with the format."""
    assert digest([ROW, dict.fromkeys(SCHEMA.names)]) == GOLDEN


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"name": None},
        {"name": ""},
        {"score": 0.25},
        {"n": 4},
        {"n": 0},
        {"n": None},
        {"flag": False},
        {"flag": None},
        {"links": ["xy", "z"]},
        {"links": ["x"]},
        {"links": []},
        {"links": None},
        {"posts": [{"id": "p", "score": 5}]},
        {"posts": [{"id": "p", "score": None}]},
        {"posts": []},
    ],
)
def test_any_changed_value_changes_it(change: dict[str, Any]) -> None:
    rows = [ROW, ROW | change, ROW | {"n": 9}]
    assert digest(rows) != digest([ROW, ROW, ROW | {"n": 9}])


def test_nothing_null_and_empty_are_three_things() -> None:
    digests = {digest([ROW | {key: value}]) for key in ("name", "links") for value in (None, type(ROW[key])())}
    assert len(digests) == 4
    assert digest([]) not in digests


def test_the_order_of_rows_counts() -> None:
    assert digest([ROW, ROW | {"n": 4}]) != digest([ROW | {"n": 4}, ROW])


rows_strategy = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.none() | st.text(max_size=4),
            "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            "links": st.none() | st.lists(st.text(max_size=3), max_size=3),
        }
    ),
    max_size=12,
)


@given(rows=rows_strategy, cut=st.integers(0, 12))
def test_it_does_not_depend_on_how_a_block_is_stored(rows: list[dict[str, Any]], cut: int) -> None:
    """Chunks, slices of a larger table, and another table with the same values give the same digest."""
    schema = pa.schema([SCHEMA.field(name) for name in ("name", "n", "links")])
    whole = pa.Table.from_pylist(rows, schema=schema)
    chunked = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    padded = pa.concat_tables([pa.Table.from_pylist([{"name": "pad"}] * 3, schema=schema), whole]).combine_chunks()
    digests = set()
    for table in (whole, chunked, padded.slice(3)):
        made = RecordDigest()
        made.update(table)
        digests.add(made.hexdigest())
    assert len(digests) == 1


def test_bytes_under_a_null_and_outside_a_slice_are_not_digested() -> None:
    """In Arrow a null may cover bytes, here three; the slice leaves out the first and the last value of the array."""
    buffers = [
        pa.py_buffer(bytes([0b11011])),
        pa.array([0, 1, 2, 5, 6, 7], pa.int32()).buffers()[1],
        pa.py_buffer(b"abxyzcd"),
    ]
    for type_ in (pa.string(), pa.binary()):
        covered = pa.Array.from_buffers(type_, 5, buffers).slice(1, 3)
        plain = pa.array(["b", None, "c"]).cast(type_)
        assert covered.equals(plain)
        assert _digest_of(covered) == _digest_of(plain)
        assert _digest_of(covered.cast(pa.large_string())) == _digest_of(plain)


def _digest_of(column: pa.Array) -> str:
    made = RecordDigest()
    made.update(pa.table({"t": column}))
    return made.hexdigest()


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_kind_of_record_can_be_digested(kind: str) -> None:
    made = RecordDigest()
    made.update(SCHEMAS[kind].empty_table())
    assert len(made.hexdigest()) == 64
