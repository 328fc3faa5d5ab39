"""Many texts at once: as lists, as one flat array, as counts, as a padded array."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import Tokenizer

from .conftest import SAMPLES

EOT = "<|endoftext|>"


def test_flat_batch_and_single_encoding_agree(small: Tokenizer) -> None:
    many = [*SAMPLES, "", "x", *SAMPLES] * 50
    single = [small.encode(text) for text in many]
    for threads in (1, 3, None):
        tokens, offsets = small.encode_flat(many, threads=threads)
        assert (tokens.dtype, offsets.dtype) == (np.uint16, np.int64)
        assert [tokens[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)] == single
    assert small.encode_batch(many, threads=2) == single


def test_a_large_batch_keeps_its_order_over_threads(trained: Tokenizer, corpus_slice: Callable[[str], str]) -> None:
    lines = corpus_slice("en").splitlines(keepends=True) * 2
    one, two = trained.encode_flat(lines, threads=1), trained.encode_flat(lines, threads=4)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert trained.decode(one[0]) == "".join(lines)


def test_no_text_gives_no_tokens(small: Tokenizer) -> None:
    assert small.encode("") == small.encode(b"") == []
    assert small.decode([]) == ""
    tokens, offsets = small.encode_flat([])
    assert (tokens.tolist(), offsets.tolist()) == ([], [0])
    assert small.encode_batch(["", ""]) == [[], []]
    assert small.encode_numpy("").dtype == np.uint16


# Types


def test_texts_may_come_from_any_iterable(small: Tokenizer) -> None:
    expected = small.encode_batch(SAMPLES)
    collections: list[Iterable[Any]] = [
        tuple(SAMPLES),
        iter(SAMPLES),
        (text for text in SAMPLES),
        dict.fromkeys(SAMPLES),
        np.array(SAMPLES),
        [text.encode() for text in SAMPLES],
        [bytearray(text.encode()) for text in SAMPLES],
        [memoryview(text.encode()) for text in SAMPLES],
        [np.str_(text) for text in SAMPLES],
    ]
    for texts in collections:
        assert small.encode_batch(texts) == expected


def test_all_texts_of_an_iterator_are_encoded_whatever_their_type(small: Tokenizer) -> None:
    """A lone surrogate or a bytearray comes after the native code has started: no text may be missing."""
    texts = ["a", bytearray(b"b"), "\ud800", memoryview(b"c")]
    expected = [small.encode(text) for text in texts]
    assert small.encode_batch(iter(texts)) == small.encode_batch(texts) == expected
    with pytest.raises(InputError, match="text 1 is 5"):
        small.encode_batch(iter(["a", 5]))  # type: ignore[list-item]


class Name(str):
    """A subclass of str, as returned by configuration libraries."""


@pytest.mark.parametrize("pattern", ["gpt2", r"\s?\w+|\W"])
def test_every_kind_of_string_and_buffer_is_a_text(pattern: str) -> None:
    tokenizer = Tokenizer.train(SAMPLES, 300, pattern)
    text = "the dog été"
    data = text.encode()
    backwards = memoryview(data[::-1])[::-1]
    for given_ in (Name(text), np.str_(text), data, np.bytes_(data), bytearray(data), memoryview(data), backwards):
        assert tokenizer.encode(given_) == tokenizer.encode(text)
        assert tokenizer.encode_numpy(given_).tolist() == tokenizer.encode(text)
        assert tokenizer.count(given_) == len(tokenizer.encode(text))
        assert tokenizer.encode_with_offsets(given_)[0] == tokenizer.encode(text)


@pytest.mark.parametrize("bad", [None, 5, 1.5, ["a"], ("a",), object, np.arange(3)])
@pytest.mark.parametrize("pattern", ["gpt2", r"\s?\w+|\W"])
def test_a_value_of_another_type_is_an_error_that_shows_it(pattern: str, bad: Any) -> None:
    tokenizer = Tokenizer.train(SAMPLES, 300, pattern)
    calls: list[Callable[[Any], Any]] = [
        tokenizer.encode,
        tokenizer.count,
        tokenizer.encode_with_offsets,
        lambda text: tokenizer.encode(text, "all"),
    ]
    for call in calls:
        with pytest.raises(InputError, match="^the text is .*\nexpected str or bytes$"):
            call(bad)
    for batch in (tokenizer.encode_batch, tokenizer.encode_flat):
        with pytest.raises(InputError, match="^text 1 is .*\nexpected str or bytes$"):
            batch(["a", bad])


def test_one_string_or_no_iterable_is_an_error(small: Tokenizer) -> None:
    for texts in ("text", b"text", bytearray(b"text")):
        with pytest.raises(ConfigError, match="texts is one string"):
            small.encode_flat(texts)
    for nothing in (None, 5):
        with pytest.raises(InputError, match=f"texts is {nothing}"):
            small.encode_batch(nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_threads_are_one_or_more(small: Tokenizer, threads: Any) -> None:
    with pytest.raises(ConfigError, match=f"threads is {threads!r}"):
        small.encode_flat(["a"], threads=threads)
