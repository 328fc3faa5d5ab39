"""Decoding ids: from sequences and arrays of any integer type; errors name a bad id and its position."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer

from .conftest import SAMPLES


def test_decoding_accepts_lists_and_arrays_of_any_integers(small: Tokenizer) -> None:
    ids = small.encode(SAMPLES[1])
    for type_ in (np.uint16, np.uint32, np.int64, np.int32, np.uint64, np.int16, ">u2", ">i8"):
        assert small.decode(np.array(ids, type_)) == SAMPLES[1]
    assert small.decode(tuple(ids)) == small.decode(np.array(ids)[::1]) == SAMPLES[1]


@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize("bad", [-1, 400, 2**40])
def test_an_unknown_id_is_an_error_with_its_position(small: Tokenizer, bad: int, as_array: bool) -> None:
    ids = [65, 66, bad]
    with pytest.raises(InputError, match=f"unknown token id {bad} at position 2\nthe vocabulary has 400 ids"):
        small.decode(np.array(ids) if as_array else ids)


def test_incomplete_characters_decode_by_the_chosen_handler(small: Tokenizer) -> None:
    ids = small.encode("é".encode()[:1])
    assert small.decode(ids) == "�"
    assert small.decode(ids, errors="ignore") == ""
    with pytest.raises(UnicodeDecodeError):
        small.decode(ids, errors="strict")


class Tensor:
    """An array of another library."""

    def __init__(self, ids: Any, type_: Any = np.int64) -> None:
        self.ids = np.array(ids, type_)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.ids


def test_ids_may_come_from_any_iterable_and_any_library(small: Tokenizer) -> None:
    ids = small.encode(SAMPLES[1])
    array = np.array(ids)
    strided = np.repeat(array, 2)[::2]
    read_only = array.copy()
    read_only.flags.writeable = False
    generator = (id_ for id_ in ids)
    rest = [Tensor(ids), Tensor(ids, np.int32), list(array), tuple(array), iter(ids), generator]
    for given in [strided, read_only, *rest]:
        assert small.decode(given) == SAMPLES[1], type(given)
    assert small.decode(range(70, 75)) == small.decode([70, 71, 72, 73, 74])
    for nothing in ([], (), np.array([]), np.array([], np.uint8), iter(())):
        assert small.decode(nothing) == ""


def test_ids_may_come_from_torch(small: Tokenizer) -> None:
    torch = pytest.importorskip("torch")
    ids = small.encode(SAMPLES[1])
    for type_ in (torch.int64, torch.int32, torch.int16):
        assert small.decode(torch.tensor(ids, dtype=type_)) == SAMPLES[1]
    assert small.decode(torch.tensor([])) == ""
    with pytest.raises(InputError, match="ids are float32"):
        small.decode(torch.tensor([1.0]))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["a"], "id 0 is 'a' (str)\nexpected an integer"),
        ([65, 1.5], "id 1 is 1.5 (float)"),
        ([65, True], "id 1 is True (bool)"),
        ([65, None], "id 1 is None"),
        ((65, [66]), "id 1 is [66] (list)"),
        ([np.float32(1)], "id 0 is np.float32(1.0) (float32)"),
        (iter([65, "a"]), "id 1 is 'a'"),
        (None, "ids are None\ngive a list or a one-dimensional array of integers"),
        (5, "ids are 5 (int)"),
        ("abc", "ids are 'abc' (str)"),
        (b"abc", "ids are b'abc' (bytes)"),
        (np.array([1.5]), "ids are float64"),
        (np.array([True]), "ids are bool"),
        (np.array(["a"]), "ids are <U1"),
        (np.array([[1, 2], [3, 4]]), "ids have the shape (2, 2)\ndecode one row (one dimension) at a time"),
        (np.array(5), "ids have the shape ()"),
        (np.array([2**64 - 1], np.uint64), "unknown token id 9223372036854775807 at position 0"),
        ([2**70], "unknown token id"),
        (Tensor([1.0], np.float32), "ids are float32"),
    ],
)
def test_a_bad_id_is_an_error_with_its_position(small: Tokenizer, bad: Any, message: str) -> None:
    for decode in (small.decode, small.decode_bytes):
        if not hasattr(bad, "__next__") or decode == small.decode:
            with pytest.raises(InputError, match="^" + re.escape(message)):
                decode(bad)


def test_an_unknown_error_handler_is_an_error(small: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="errors is 'strikt'\nexpected 'replace', 'ignore' or 'strict'"):
        small.decode(small.encode(b"\xff"), errors="strikt")
