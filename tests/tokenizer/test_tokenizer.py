"""Encoding and decoding equal tiktoken and HF tokenizers with GPT-2's vocabulary, and always the Python reference."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import random
from collections.abc import Callable

import numpy as np
import pytest
import tiktoken
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.tokenizer import Tokenizer, Vocabulary, reference

from .conftest import CORPORA, SAMPLES

texts = st.text(max_size=60) | st.text(alphabet="the dog's 12!\n é東😀", max_size=60)


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    found: Vocabulary = tokenizer._vocabulary
    return found


def test_gpt2_ids_of_known_texts(gpt2: Tokenizer) -> None:
    """'hello world' from tiktoken's README; the special token's id from the paper's released vocabulary."""
    assert gpt2.encode("hello world") == [31373, 995]
    assert gpt2.decode([31373, 995]) == "hello world"
    assert gpt2.encode("hello <|endoftext|>", allowed_special={"<|endoftext|>"}) == [31373, 220, 50256]
    assert (gpt2.vocab_size, gpt2.eot_id, gpt2.pattern, gpt2.unicode_version) == (50257, 50256, "gpt2", "16.0.0")


@pytest.mark.parametrize("name", CORPORA)
def test_ids_equal_those_of_tiktoken_and_decode_to_the_text(
    trained: Tokenizer, tiktoken_trained: tiktoken.Encoding, corpus_slice: Callable[[str], str], name: str
) -> None:
    text = corpus_slice(name)[:300_000]
    ids = trained.encode(text)
    assert ids == tiktoken_trained.encode_ordinary(text)
    assert trained.decode(ids) == text
    assert trained.count(text) == len(ids)
    assert trained.encode_numpy(text).tolist() == ids


@pytest.mark.parametrize("name", CORPORA)
def test_ids_and_offsets_equal_those_of_hf_tokenizers(
    trained: Tokenizer, hf_trained: tokenizers.Tokenizer, corpus_slice: Callable[[str], str], name: str
) -> None:
    text = corpus_slice(name)[:50_000]
    lines = text.splitlines(keepends=True)
    expected = hf_trained.encode_batch(lines)
    assert trained.encode_batch(lines) == [encoding.ids for encoding in expected]
    for line, encoding in zip(lines[:2000], expected[:2000], strict=True):
        assert trained.encode_with_offsets(line) == (encoding.ids, encoding.offsets), repr(line)


@given(texts)
def test_native_equals_the_reference(small: Tokenizer, text: str) -> None:
    vocabulary = vocabulary_of(small)
    ids = small.encode(text)
    assert ids == reference.encode(vocabulary, text)
    assert small.decode_bytes(ids) == reference.decode_bytes(vocabulary, ids) == text.encode("utf-8", "surrogatepass")


@given(st.binary(max_size=60))
def test_any_bytes_encode_and_come_back(small: Tokenizer, data: bytes) -> None:
    ids = small.encode(data)
    assert ids == reference.encode(vocabulary_of(small), data)
    assert small.decode_bytes(ids) == data


@given(st.text(alphabet="ab ", min_size=1, max_size=300))
def test_long_pieces_equal_the_reference(text: str) -> None:
    """Pieces of 64 bytes and more are merged with lists, shorter ones by scanning; both equal the reference."""
    tokenizer = Tokenizer.train(["abababbaaabbbab" * 9, "aaaa bbbb ab" * 9], vocab_size=290)
    piece = text.replace(" ", "")
    for each in (text, piece):
        assert tokenizer.encode(each) == reference.encode(vocabulary_of(tokenizer), each)


@given(texts)
def test_ranks_alone_merge_as_the_reference_says(text: str) -> None:
    """Without a list, any two tokens whose joined bytes are a token merge: here 'abc' also from 'a' and 'bc'."""
    tokens = [bytes([byte]) for byte in range(256)] + b"ab,bc,abc,th,the, the,dog,\xf0\x9f".split(b",")
    for whole_pieces in (False, True):
        vocabulary = Vocabulary(tokens=tokens, merges=None, whole_pieces=whole_pieces)
        assert Tokenizer(vocabulary).encode(text + "abc dog") == reference.encode(vocabulary, text + "abc dog")


def test_ids_above_65535_are_uint32(wide: Tokenizer) -> None:
    assert wide.vocab_size > 65_536
    assert wide.encode_numpy("text").dtype == np.uint32
    without_0xff = Vocabulary(tokens=[bytes([byte]) for byte in range(255)], merges=None, special_tokens={"<>": 65_535})
    assert Tokenizer(without_0xff).encode_numpy("text").dtype == np.uint16


def test_lone_surrogates_become_the_replacement_character(trained: Tokenizer) -> None:
    for text in ("\ud83d", "a\udc00b", "\ud83d\ude00", "\udc00\ud800 \ud83dx"):
        ids = trained.encode(text)
        assert (trained.encode_numpy(text).tolist(), trained.count(text)) == (ids, len(ids))
    assert trained.decode(trained.encode("\ud83d\ude00")) == "😀"
    assert trained.encode_with_offsets("a\ud800b")[1][0] == (0, 1)


# Ugly inputs

_RANDOM = random.Random(5)
PATHOLOGICAL = {
    "one letter": "a" * 10**6,
    "one sign": "^" * 10**6,
    "blanks": " " * 10**6,
    "random digits": "".join(_RANDOM.choices("0123456789", k=300_000)),
    "line ends and blanks": "\n " * 500_000,
    "emoji": "😀" * 250_000,
    "letter and accent": "a\u0301" * 100_000,
}


@pytest.mark.usefixtures("linear_time")
@pytest.mark.parametrize("name", ["random digits", *(pytest.param(n, marks=pytest.mark.slow) for n in PATHOLOGICAL)])
def test_a_million_characters_without_a_cut_are_fast(
    trained: Tokenizer, tiktoken_trained: tiktoken.Encoding, name: str
) -> None:
    """Quadratic merging would take minutes to hours; the measured time was at most 0.4 s."""
    text = PATHOLOGICAL[name]
    ids = trained.encode_numpy(text)
    assert ids.tolist() == tiktoken_trained.encode_ordinary(text)


def test_nul_and_controls_survive(small: Tokenizer) -> None:
    text = "".join(map(chr, range(256)))
    assert small.decode(small.encode(text)) == text


# Properties


def test_hash_names_vocabulary_pattern_and_special_tokens() -> None:
    def train(**changes: object) -> str:
        arguments = {"vocab_size": 300, "special_tokens": ["<|endoftext|>"], "pattern": "gpt2"} | changes
        return Tokenizer.train(SAMPLES, **arguments).hash  # type: ignore[arg-type]

    hashes = [train(), train(vocab_size=301), train(special_tokens=["<eot>"]), train(pattern=r"\s?\S+")]
    assert len(set(hashes)) == 4
    assert train() == hashes[0]
    assert all(len(hash_) == 64 for hash_ in hashes)


def test_a_vocabulary_without_some_byte_is_an_error() -> None:
    with pytest.raises(InputError, match="no token for the byte 244"):
        Tokenizer(Vocabulary(tokens=[bytes([byte]) for byte in range(244)], merges=[]))


@pytest.mark.parametrize(
    ("extra", "merges", "message"),
    [
        ([b"a"], [], "token 97 and token 256 have the same bytes"),
        ([b"ab"], [(97, 999)], "merge 0 names an unused or special id"),
        ([b"ab"], [(97, 300)], "merge 0 names an unused or special id"),
        ([b"ab"], [(98, 97)], "merge 0 produces bytes that are not a token"),
    ],
)
def test_damaged_vocabularies_are_errors(extra: list[bytes], merges: list[tuple[int, int]], message: str) -> None:
    tokens = [bytes([byte]) for byte in range(256)] + extra
    with pytest.raises(InputError, match=message):
        Tokenizer(Vocabulary(tokens=tokens, merges=merges, special_tokens={"b": 300}))


@pytest.mark.parametrize("ends", [[-1], [0, 2], [1, 1], [2, 1], [3]])
def test_pieces_that_do_not_rise_within_their_text_are_an_error(small: Tokenizer, ends: list[int]) -> None:
    with pytest.raises(ValueError, match="piece ends must rise within the text"):
        small._native.encode_pieces("ab", ends)


def test_a_special_token_cannot_take_the_id_of_another() -> None:
    with pytest.raises(InputError, match="special token 65 has the id of another token"):
        Tokenizer(Vocabulary(tokens=[bytes([byte]) for byte in range(256)], merges=[], special_tokens={"<s>": 65}))


def test_examples_in_docstrings_hold() -> None:
    package = importlib.import_module("webtext.tokenizer")
    names = [found.name for found in pkgutil.walk_packages(package.__path__, "webtext.tokenizer.")]
    results = [doctest.testmod(importlib.import_module(name)) for name in names]
    assert sum(found.attempted for found in results) > 12
    assert not any(found.failed for found in results)
