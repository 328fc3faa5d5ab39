"""Encoding texts that are stored in one buffer, into the caller's array."""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer

from .conftest import SAMPLES


def test_a_buffer_with_offsets_encodes_like_its_texts(small: Tokenizer, tmp_path: Path) -> None:
    data = [text.encode() for text in [*SAMPLES, ""]]
    offsets = np.cumsum([0, *map(len, data)])
    expected, bounds = small.encode_flat(data)
    joined = b"".join(data)
    (tmp_path / "data").write_bytes(joined)
    with (tmp_path / "data").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    buffers = [joined, bytearray(joined), memoryview(joined), mapped, np.frombuffer(joined, np.uint8)]
    for buffer in buffers:
        tokens, starts = small.encode_buffer(buffer, offsets, threads=2)
        assert np.array_equal(tokens, expected)
        assert np.array_equal(starts, bounds)
    out = np.zeros(len(expected) + 5, np.uint16)
    tokens, _ = small.encode_buffer(b"".join(data), offsets, out=out)
    assert np.shares_memory(tokens, out)
    assert np.array_equal(out[: len(expected)], expected)
    assert not out[len(expected) :].any()


@pytest.mark.parametrize("type_", [np.int64, np.int32, np.uint64, np.uint8, ">i4"])
def test_offsets_are_integers_of_any_size(small: Tokenizer, type_: Any) -> None:
    for offsets in (np.array([0, 3, 5], type_), np.array([0, 9, 3, 9, 5], type_)[::2]):
        tokens, starts = small.encode_buffer(b"thedo", offsets)
        assert [tokens[a:b].tolist() for a, b in zip(starts, starts[1:], strict=False)] == small.encode_batch(
            ["the", "do"]
        )
    assert small.encode_buffer(b"the", [0, 3])[0].tolist() == small.encode("the")
    assert [array.tolist() for array in small.encode_buffer(b"", [0])] == [[], [0]]


def test_texts_need_not_fill_the_buffer(small: Tokenizer) -> None:
    assert small.encode_buffer(b"xx dog yy", [2, 6])[0].tolist() == small.encode(" dog")


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 4], "offset 1 is 4\nexpected integers that rise from 0 to at most 3"),
        ([2, 1], "offset 1 is 1, the one before 2"),
        ([0, 3, 1, 3], "offset 2 is 1, the one before 3"),
        ([-1, 2], "offset 0 is -1"),
        ([0, 2**62], "offset 1 is 4611686018427387904"),
        (np.array([0, 2**64 - 1], np.uint64), "offset 1 is 9223372036854775807"),
        ([0, 2**70], "offsets are object"),
        ([], "offsets have the shape (0,)"),
        ([[0, 3]], "offsets have the shape (1, 2)"),
        (3, "offsets have the shape ()"),
        ([0.0, 3.0], "offsets are float64"),
        ([False, True], "offsets are bool"),
        (["0", "3"], "offsets are <U1"),
        ([0, [3]], "offsets are not an array"),
        (None, "offsets have the shape ()"),
    ],
)
def test_offsets_outside_the_buffer_are_an_error_with_their_place(small: Tokenizer, offsets: Any, message: str) -> None:
    out = np.full(9, 7, np.uint16)
    with pytest.raises(InputError, match="^" + re.escape(message)):
        small.encode_buffer(b"xyz", offsets, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("xyz", "data is a str"),
        (None, "data is NoneType"),
        (5, "data is int"),
        ([1, 2, 3], "data is list"),
        (np.zeros(3, np.int32), "data has items of 4 bytes in 1 dimensions"),
        (np.zeros((3, 3), np.uint8), "data has items of 1 bytes in 2 dimensions"),
        (np.zeros(6, np.uint8)[::2], "data has items of 1 bytes in 1 dimensions with gaps"),
        (memoryview(b"xyzxyz")[::2], "data has items of 1 bytes in 1 dimensions with gaps"),
    ],
)
def test_data_other_than_a_row_of_bytes_is_an_error(small: Tokenizer, data: Any, message: str) -> None:
    with pytest.raises(InputError, match="^" + re.escape(message)):
        small.encode_buffer(data, [0, 3])


def read_only() -> Any:
    out = np.zeros(9, np.uint16)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros(2, np.uint16), "out has room for 2 ids\n3 are needed"),
        (np.zeros(9, np.int64), "out is int64\nexpected a contiguous, writable"),
        (np.zeros(9, ">u2"), "out is >u2"),
        (np.zeros(18, np.uint16)[::2], "out is of shape (9,) and strides (4,)"),
        (np.zeros((3, 3), np.uint16), "out is of shape (3, 3)"),
        (np.frombuffer(bytes(21), np.uint16, offset=1, count=9), "out is read-only"),
        (np.frombuffer(bytearray(21), np.uint8)[1:19].view(np.uint16), "out is of shape (9,) and strides (2,)"),
        (read_only(), "out is read-only"),
        ([0] * 9, "out is list"),
        (bytearray(18), "out is bytearray"),
    ],
)
def test_an_array_that_cannot_be_written_to_is_an_error(small: Tokenizer, out: Any, message: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        small.encode_buffer(b"xyz", [0, 3], out=out)


@given(st.integers(0, 30), st.sampled_from([np.uint16, np.uint32]), st.integers(1, 3))
def test_nothing_is_written_outside_the_array(small: Tokenizer, room: int, type_: Any, threads: int) -> None:
    """If ids don't fit, the array stays unchanged. With room for 13 bytes' ids and 8 more, ids are written directly."""
    around = np.full(60, 9999, type_)
    out = around[10 : 10 + room]
    expected = [id_ for text in ("the", " dog xyz", " q") for id_ in small.encode(text)]
    if room < len(expected):
        with pytest.raises(ConfigError, match=f"out has room for {room} ids\n{len(expected)} are needed"):
            small.encode_buffer(b"the dog xyz q", [0, 3, 11, 13], out, threads)
        assert (around == 9999).all()
        return
    ids, _ = small.encode_buffer(b"the dog xyz q", [0, 3, 11, 13], out, threads)
    assert ids.tolist() == expected
    assert (around[:10] == 9999).all()
    assert (around[10 + room :] == 9999).all()


def test_an_array_that_overlaps_the_inputs_is_refused(small: Tokenizer) -> None:
    memory = np.zeros(64, np.uint8)
    with pytest.raises(ConfigError, match="out shares memory with data or offsets"):
        small.encode_buffer(memory[:10], [0, 10], out=memory.view(np.uint16))
    offsets = np.array([0, 10])
    with pytest.raises(ConfigError, match="out shares memory with data or offsets"):
        small.encode_buffer(bytes(10), offsets, out=offsets.view(np.uint16))


def test_a_wide_vocabulary_needs_a_wide_array(wide: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="out is uint16\nexpected .* of uint32"):
        wide.encode_buffer(b"xyz", [0, 3], out=np.zeros(9, np.uint16))
    assert wide.encode_buffer(b"xyz", [0, 3], out=np.zeros(9, np.uint32))[0].tolist() == wide.encode("xyz")
