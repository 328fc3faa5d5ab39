"""Offsets of tokens in their text, in characters or bytes, equal HF tokenizers', also for ill-formed text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.tokenizer import Tokenizer

texts = st.text(max_size=60) | st.text(alphabet="the dog's 12!\n é東😀", max_size=60)
broken = st.text(alphabet=st.sampled_from("\ud83d\ude00😀é a"), max_size=20)


def test_a_worked_example(trained: Tokenizer) -> None:
    """'é' is one token of two bytes; '😀' is two tokens of one character, which both have its offsets."""
    text = "é 😀!"
    ids, offsets = trained.encode_with_offsets(text)
    assert [trained.decode_bytes([id_]) for id_ in ids] == [b"\xc3\xa9", b" \xf0\x9f\x98", b"\x80", b"!"]
    assert offsets == [(0, 1), (1, 3), (2, 3), (3, 4)]
    assert trained.encode_with_offsets(text, unit="bytes") == (ids, [(0, 2), (2, 6), (6, 7), (7, 8)])
    assert trained.encode_with_offsets(text.encode()) == (ids, offsets)


@given(texts)
def test_offsets_cover_each_tokens_bytes(small: Tokenizer, text: str) -> None:
    ids, offsets = small.encode_with_offsets(text)
    assert ids == small.encode(text)
    assert all(start < end for start, end in offsets)
    for id_, (start, end) in zip(ids, offsets, strict=True):
        assert small.decode_bytes([id_]) in text[start:end].encode()
    assert {place for start, end in offsets for place in range(start, end)} == set(range(len(text)))


@given(texts.map(str.encode) | st.binary(max_size=60))
def test_offsets_of_bytes_are_byte_and_character_positions(small: Tokenizer, data: bytes) -> None:
    ids, in_bytes = small.encode_with_offsets(data, unit="bytes")
    assert [data[start:end] for start, end in in_bytes] == [small.decode_bytes([id_]) for id_ in ids]
    characters = data.decode("utf-8", "surrogateescape")
    in_characters = small.encode_with_offsets(data)[1]
    for (start, end), (first, last) in zip(in_bytes, in_characters, strict=True):
        before, through = (characters[:place].encode("utf-8", "surrogateescape") for place in (first, last))
        assert len(before) <= start < len(characters[: first + 1].encode("utf-8", "surrogateescape"))
        assert len(characters[: last - 1].encode("utf-8", "surrogateescape")) < end <= len(through)


@given(broken)
def test_offsets_are_those_of_the_text_that_was_given_also_with_lone_surrogates(small: Tokenizer, text: str) -> None:
    """A surrogate pair is one character to the tokenizer and two positions in the str; a lone one is U+FFFD."""
    ids, offsets = small.encode_with_offsets(text)
    assert ids == small.encode(text)
    assert sorted({place for start, end in offsets for place in range(start, end)}) == list(range(len(text)))
    for id_, (start, end) in zip(ids, offsets, strict=True):
        shown = text[start:end].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert small.decode_bytes([id_]) in shown.encode()
    ends = [end for _, end in small.encode_with_offsets(text, unit="bytes")[1]]
    assert ends == list(itertools.accumulate(len(small.decode_bytes([id_])) for id_ in ids))


def test_nothing_has_no_offsets(small: Tokenizer) -> None:
    for unit in ("characters", "bytes"):
        assert small.encode_with_offsets("", unit=unit) == small.encode_with_offsets(b"", unit=unit) == ([], [])  # type: ignore[arg-type]


def test_an_unknown_unit_is_an_error(small: Tokenizer) -> None:
    for text in ("a", "é"):
        with pytest.raises(ConfigError, match="unit is 'words'"):
            small.encode_with_offsets(text, unit="words")  # type: ignore[arg-type]
