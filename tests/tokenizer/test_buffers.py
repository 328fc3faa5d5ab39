"""Texts that lie in one buffer, into the caller's array."""

from __future__ import annotations

import numpy as np
import pytest

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer

from .conftest import SAMPLES


def test_a_buffer_with_offsets_encodes_like_its_texts(small: Tokenizer) -> None:
    data = [text.encode() for text in [*SAMPLES, ""]]
    offsets = np.cumsum([0, *map(len, data)])
    expected, bounds = small.encode_flat(data)
    for buffer in (b"".join(data), bytearray(b"".join(data)), np.frombuffer(b"".join(data), np.uint8)):
        tokens, starts = small.encode_buffer(buffer, offsets, threads=2)
        assert np.array_equal(tokens, expected)
        assert np.array_equal(starts, bounds)
    out = np.zeros(len(expected) + 5, np.uint16)
    tokens, _ = small.encode_buffer(b"".join(data), offsets, out=out)
    assert np.shares_memory(tokens, out)
    assert np.array_equal(out[: len(expected)], expected)
    assert not out[len(expected) :].any()


def test_a_buffer_that_is_too_small_or_of_another_type_is_an_error(small: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="expected uint16 with room for 3 ids"):
        small.encode_buffer(b"xyz", [0, 3], out=np.zeros(2, np.uint16))
    with pytest.raises(ConfigError, match="out is uint32"):
        small.encode_buffer(b"xyz", [0, 3], out=np.zeros(9, np.uint32))


@pytest.mark.parametrize("offsets", [[0, 4], [2, 1], [-1, 2]])
def test_offsets_outside_the_buffer_are_an_error(small: Tokenizer, offsets: list[int]) -> None:
    with pytest.raises(InputError, match="offsets must rise from 0 to at most 3"):
        small.encode_buffer(b"xyz", offsets)
