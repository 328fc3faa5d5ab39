"""Many texts at once: as lists, as one flat array, as counts, as a padded array."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

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


def test_counts_are_lengths(small: Tokenizer) -> None:
    counts = small.count_batch([*SAMPLES, ""], threads=2)
    assert counts.tolist() == [*map(small.count, SAMPLES), 0] == [len(small.encode(text)) for text in [*SAMPLES, ""]]
    assert counts.dtype == np.int64


def test_no_text_gives_no_tokens(small: Tokenizer) -> None:
    assert small.encode("") == small.encode(b"") == []
    assert small.decode([]) == ""
    tokens, offsets = small.encode_flat([])
    assert (tokens.tolist(), offsets.tolist()) == ([], [0])
    assert small.encode_batch(["", ""]) == [[], []]
    assert small.count_batch([]).tolist() == []
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
        tokenizer.encode_stream().push,
        lambda text: tokenizer.encode(text, "all"),
        lambda text: tokenizer.split(text, 9),
        lambda text: tokenizer.truncate(text, 9),
    ]
    for call in calls:
        with pytest.raises(InputError, match="^the text is .*\nexpected str or bytes$"):
            call(bad)
    for batch in (tokenizer.encode_batch, tokenizer.encode_flat, tokenizer.count_batch, tokenizer.encode_padded):
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


# Padding and truncation


def test_a_batch_is_padded_to_its_longest_text(trained: Tokenizer) -> None:
    """'Hello' is one token, 'Hello big world' three; <|endoftext|> pads."""
    hello, big, world, eot = *trained.encode("Hello big world"), trained.eot_id
    ids, mask = trained.encode_padded(["Hello", "Hello big world"])
    assert (ids.dtype, mask.dtype) == (np.uint16, np.uint8)
    assert ids.tolist() == [[hello, eot, eot], [hello, big, world]]
    assert mask.tolist() == [[1, 0, 0], [1, 1, 1]]
    ids, mask = trained.encode_padded(["Hello", "Hello big world"], max_length=2, side="left", truncation_side="left")
    assert (ids.tolist(), mask.tolist()) == ([[eot, hello], [big, world]], [[0, 1], [1, 1]])
    ids, mask = trained.encode_padded(["Hello", "Hello big world"], max_length=3, add_eot=True)
    assert (ids.tolist(), mask.tolist()) == ([[hello, eot, eot], [hello, big, eot]], [[1, 1, 0], [1, 1, 1]])
    assert [array.shape for array in trained.encode_padded([])] == [(0, 0), (0, 0)]
    assert [array.shape for array in trained.encode_padded(["", ""])] == [(2, 0), (2, 0)]


@pytest.fixture(scope="module")
def hf(hf_trained: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    found = tokenizers.Tokenizer.from_str(hf_trained.to_str())
    found.add_special_tokens([EOT])
    return found


_texts = st.lists(st.text(alphabet="the dog's 12! é", max_size=30), min_size=1, max_size=5)
_sides = st.sampled_from(["right", "left"])


@given(_texts, st.none() | st.integers(1, 12), st.booleans(), st.sampled_from([1, 8]), _sides, _sides, st.booleans())
def test_padding_and_truncation_equal_those_of_hf_tokenizers(
    trained: Tokenizer,
    hf: tokenizers.Tokenizer,
    texts: Sequence[str],
    max_length: int | None,
    to_longest: bool,
    multiple: int,
    side: Any,
    truncation_side: Any,
    add_eot: bool,
) -> None:
    fixed = None if to_longest else max_length
    hf.no_truncation()
    hf.post_processor = processors.TemplateProcessing(
        single=f"$A {EOT}" if add_eot else "$A", special_tokens=[(EOT, trained.eot_id)]
    )
    if max_length is not None:
        hf.enable_truncation(max_length, direction=truncation_side)
    hf.enable_padding(direction=side, pad_id=trained.eot_id, pad_token=EOT, length=fixed, pad_to_multiple_of=multiple)
    expected = hf.encode_batch(texts)
    ids, mask = trained.encode_padded(
        texts,
        max_length=max_length,
        padding="longest" if fixed is None else "max_length",
        pad_to_multiple_of=multiple,
        side=side,
        truncation_side=truncation_side,
        add_eot=add_eot,
    )
    assert ids.tolist() == [encoding.ids for encoding in expected]
    assert mask.tolist() == [encoding.attention_mask for encoding in expected]


def test_any_special_token_may_pad() -> None:
    tokenizer = Tokenizer.train(["the dog"], 260, special_tokens=["<pad>"])
    ids, _ = tokenizer.encode_padded(["a", "ab<pad>"], pad_token="<pad>", allowed_special="all")
    assert ids.tolist() == [[64, 259, 259], [64, 65, 259]]
    with pytest.raises(ConfigError, match=r"no special token '<\|endoftext\|>'"):
        tokenizer.encode_padded(["a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": "max_length"}, "padding='max_length' without max_length"),
        ({"padding": True}, "padding is True"),
        ({"side": "middle"}, "side is 'middle'"),
        ({"truncation_side": "top"}, "truncation_side is 'top'"),
        ({"max_length": -1}, "max_length is -1"),
        ({"max_length": 0, "add_eot": True}, "max_length is 0, with add_eot"),
        ({"max_length": 2.5}, "max_length is 2.5"),
        ({"pad_to_multiple_of": 0}, "pad_to_multiple_of is 0"),
        ({"pad_to_multiple_of": None}, "pad_to_multiple_of is None"),
        ({"pad_token": "<pad>"}, "there is no special token '<pad>'"),
    ],
)
def test_bad_padding_options_are_errors(trained: Tokenizer, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trained.encode_padded(["a"], **options)
