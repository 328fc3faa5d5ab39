"""Arrow columns as texts and as results: every layout, other libraries, and columns that can't be read."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.tokenizer import Tokenizer, _bpe

datasets: Any = pytest.importorskip("datasets")
duckdb: Any = pytest.importorskip("duckdb")
pl: Any = pytest.importorskip("polars")
pa: Any = pytest.importorskip("pyarrow")

TEXTS = ["the dog", "", "é 東京都 🙂 and a text that a view does not hold", "<|endoftext|>", "a" * 12, "b" * 13]
TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]


def columns(texts: list[str]) -> list[Any]:
    """Return the texts in every layout: one chunk, a slice of a longer one, and many chunks."""
    found: list[Any] = [pl.Series(texts, dtype=pl.String), pl.Series(["x", *texts], dtype=pl.String)[1:]]
    for type_ in TYPES:
        found.append(pa.array(texts, type_))
        found.append(pa.array(["before", *texts, "after"], type_)[1:-1])
        found.append(pa.chunked_array([pa.array(part, type_) for part in (texts[:2], [], texts[2:])], type_))
    return found


def test_a_column_has_the_ids_of_its_texts(small: Tokenizer) -> None:
    wanted = small.encode_batch(TEXTS)
    for column in columns(TEXTS):
        ids = small.encode_arrow(column)
        assert len(ids) == len(TEXTS)
        assert pa.array(ids).to_pylist() == pl.Series(ids).to_list() == wanted
        pa.array(ids).validate(full=True)
        assert small.encode_batch(column) == wanted
        assert small.encode_flat(column, threads=2)[0].tolist() == sum(wanted, [])
        assert small.encode_batch(column, allowed_special="all") == small.encode_batch(TEXTS, allowed_special="all")


def test_training_reads_columns() -> None:
    wanted = Tokenizer.train(TEXTS, vocab_size=265)
    for column in columns(TEXTS):
        assert Tokenizer.train(column, vocab_size=265, progress=lambda *_: None) == wanted


@given(st.lists(st.text(max_size=30), max_size=6))
def test_any_texts_are_read_from_any_layout(small: Tokenizer, texts: list[str]) -> None:
    wanted = small.encode_batch(texts)
    for column in columns(texts):
        assert pa.array(small.encode_arrow(column)).to_pylist() == wanted


def test_a_list_has_a_column_of_ids_too(small: Tokenizer) -> None:
    assert pa.array(small.encode_arrow(iter(TEXTS))).to_pylist() == small.encode_batch(TEXTS)
    assert pa.array(small.encode_arrow([])).to_pylist() == []


def test_ids_have_the_type_of_arrays(small: Tokenizer) -> None:
    ids = small.encode_arrow(TEXTS)
    type_ = pa.DataType._import_from_c_capsule(ids.__arrow_c_schema__())
    assert pa.array(ids).type == type_ == pa.large_list(pa.uint16())
    wide = _bpe.IdColumn(np.array([1, 2**31], np.uint32), np.array([0, 2]))
    assert pa.array(wide).equals(pa.array([[1, 2**31]], pa.large_list(pa.uint32())))
    assert pa.array(ids).cast(pa.list_(pa.int32())).to_pylist() == small.encode_batch(TEXTS)


def test_neither_texts_nor_ids_are_copied(small: Tokenizer) -> None:
    tokens, offsets = np.arange(5, dtype=np.uint16), np.array([0, 2, 5])
    column = pa.array(_bpe.IdColumn(tokens, offsets))
    assert column.buffers()[1].address == offsets.ctypes.data
    assert column.values.buffers()[1].address == tokens.ctypes.data
    text = bytearray(b"the dog")
    buffers = [None, pa.py_buffer(np.array([0, 7], np.int32)), pa.py_buffer(text)]
    data = pa.array([b""]).from_buffers(pa.binary(), 1, buffers)
    view = _bpe.TextColumn(data)
    text[:3] = b"The"
    assert list(view) == [b"The dog"]


def test_memory_lives_as_long_as_its_last_user(small: Tokenizer) -> None:
    """A child that a consumer moved out of its parent, a capsule that nobody used, and a column without its producer."""
    wanted = small.encode_batch(TEXTS)
    values = pa.array(small.encode_arrow(TEXTS)).values
    view = _bpe.TextColumn(pa.array(TEXTS * 100))
    small.encode_arrow(TEXTS).__arrow_c_array__()
    gc.collect()
    assert values.to_pylist() == sum(wanted, [])
    assert small.encode_batch(list(view)) == wanted * 100


def test_duckdb_reads_and_writes_columns(small: Tokenizer) -> None:
    rows = duckdb.sql("select unnest(['the dog', 'a', 'naïve']) as text").to_arrow_table()
    found = pa.table({"ids": pa.array(small.encode_arrow(rows["text"]))})
    lengths = duckdb.from_arrow(found).project("len(ids), ids[1]").fetchall()
    assert lengths == [(len(ids), ids[0]) for ids in small.encode_batch(["the dog", "a", "naïve"])]


def test_datasets_map_over_arrow_batches(small: Tokenizer, tmp_path: Any) -> None:
    texts = TEXTS * 10
    data = datasets.Dataset.from_dict({"text": texts}).with_format("arrow")
    mapped = data.map(
        lambda batch: pa.table({"ids": pa.array(small.encode_arrow(batch["text"]))}),
        batched=True,
        batch_size=7,
        cache_file_name=str(tmp_path / "cache.arrow"),
        remove_columns=["text"],
    )
    assert [row["ids"] for row in mapped.with_format(None)] == small.encode_batch(texts)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["a", None]), "row 1 of the Arrow column is null"),
        (pl.Series(["a", "b", None]), "row 2 of the Arrow column is null"),
        (pa.chunked_array([["a"], [None]])[1:], "row 0 of the Arrow column is null"),
        (pa.array([1, 2]), "the Arrow column has the format 'l'"),
        (pa.array([["a"]]), "the Arrow column has the format '+l'"),
        (pa.table({"text": ["a"]}), "the Arrow column has the format '+s'"),
        (pa.array(["a"]).dictionary_encode(), "the Arrow column has the format 'i' with a dictionary"),
    ],
    ids=str,
)
def test_a_column_that_cannot_be_read_says_why(small: Tokenizer, column: Any, message: str) -> None:
    for encode in (small.encode_arrow, small.encode_flat, small.encode_batch):
        with pytest.raises(InputError) as caught:
            encode(column)
        assert str(caught.value) == f"{message}\nexpected a column of strings or bytes without nulls"


class Exported(ctypes.Structure):
    """ArrowArray, to damage it."""

    _fields_ = [(name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")] + [
        ("buffers", ctypes.POINTER(ctypes.c_void_p))
    ]


class Damaged:
    """A column with a change in its exported array."""

    def __init__(self, column: Any, change: Callable[[Any], object]) -> None:
        self.pair = column.__arrow_c_array__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        change(Exported.from_address(pointer(self.pair[1], b"arrow_array")))

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.pair


LONG = ["a text of more than 12 bytes", "another text of more than 12 bytes"]


def view_item(array: Any, at: int, value: int) -> None:
    ctypes.cast(array.buffers[1], ctypes.POINTER(ctypes.c_int32))[at] = value


@pytest.mark.parametrize(
    ("type_", "change"),
    [
        (pa.string(), lambda array: setattr(array, "length", -1)),
        (pa.string(), lambda array: setattr(array, "offset", -1)),
        (pa.string(), lambda array: setattr(array, "offset", 2**63 - 1)),
        (pa.string(), lambda array: setattr(array, "n_buffers", 2)),
        (pa.string(), lambda array: array.buffers.__setitem__(1, None)),
        (pa.string(), lambda array: array.buffers.__setitem__(2, None)),
        (pa.string(), lambda array: view_item(array, 1, -1)),
        (pa.string(), lambda array: view_item(array, 1, 2**30)),
        (pa.large_string(), lambda array: view_item(array, 3, -1)),
        (pa.string_view(), lambda array: setattr(array, "n_buffers", 2)),
        (pa.string_view(), lambda array: view_item(array, 0, -1)),
        (pa.string_view(), lambda array: view_item(array, 2, 7)),
        (pa.string_view(), lambda array: view_item(array, 2, -1)),
        (pa.string_view(), lambda array: view_item(array, 3, -1)),
        (pa.string_view(), lambda array: view_item(array, 3, 2**31 - 1)),
        (pa.string_view(), lambda array: view_item(array, 0, 2**31 - 1)),
        (pa.string_view(), lambda array: array.buffers.__setitem__(2, None)),
        (pa.string_view(), lambda array: array.buffers.__setitem__(3, None)),
    ],
)
def test_a_damaged_column_is_an_error(small: Tokenizer, type_: Any, change: Callable[[Any], object]) -> None:
    """Offsets and views are changed in place, so the column is copied for each test."""
    column = pa.concat_arrays([pa.array(LONG, type_), pa.array(LONG, type_)])
    with pytest.raises(InputError, match="the Arrow column is damaged\nexpected a column"):
        small.encode_arrow(Damaged(column, change))


def test_a_column_can_be_used_once_if_its_capsules_can(small: Tokenizer) -> None:
    once = Damaged(pa.array(LONG), lambda array: None)
    small.encode_arrow(once)
    with pytest.raises(InputError, match="the Arrow column was used before"):
        small.encode_arrow(once)


def test_the_error_of_a_stream_is_shown(small: Tokenizer) -> None:
    def batches() -> Any:
        yield pa.record_batch({"text": ["a"]})
        raise OSError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"text": pa.string()}), batches())
    with pytest.raises(InputError, match="has the format '\\+s'"):
        small.encode_arrow(reader)


def test_other_objects_are_not_columns(small: Tokenizer) -> None:
    for exported in ((1, 2), 5, (object(),), None):

        class Odd:
            def __arrow_c_array__(self, exported: object = exported) -> object:
                return exported

        with pytest.raises(InputError, match="expected a column of strings or bytes without nulls"):
            small.encode_arrow(Odd())
