"""BPE-dropout: the paper's rule, equal to the readable twin with the same random numbers, whatever the threads."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.tokenizer import Tokenizer, Vocabulary, reference
from webtext.tokenizer.dropout import encode
from webtext.tokenizer.vocabulary import BYTE_ORDER

from .conftest import SAMPLES

texts = st.text(max_size=60) | st.text(alphabet="the dog's 12!\n é東😀", max_size=60)
probabilities = st.sampled_from([0.0, 0.05, 0.1, 0.5, 0.9, 0.999, 1.0])
seeds = st.integers(0, 2**64 - 1)

A, B, C = (BYTE_ORDER.index(byte) for byte in b"abc")


def abc() -> Tokenizer:
    """Two rules: a b first, then ab c."""
    tokens = [bytes([byte]) for byte in BYTE_ORDER] + [b"ab", b"abc"]
    return Tokenizer(Vocabulary(tokens=tokens, merges=[(A, B), (256, C)]))


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    found: Vocabulary = tokenizer._vocabulary
    return found


def test_a_merge_survives_with_the_probability_that_the_rule_gives() -> None:
    """abc with p = 0.1: a|b|c when the one merge that is possible is dropped (0.1), ab|c when it is done and the next
    dropped (0.9 * 0.1), abc otherwise (0.81). 20,000 seeds; the bound is five standard deviations of a share."""
    tokenizer, n, p = abc(), 20_000, 0.1
    found = Counter(tuple(tokenizer.encode("abc", dropout=p, seed=seed)) for seed in range(n))
    expected = {(A, B, C): p, (256, C): (1 - p) * p, (257,): (1 - p) ** 2}
    assert found.keys() == expected.keys()
    for ids, share in expected.items():
        assert abs(found[ids] / n - share) < 5 * (share * (1 - share) / n) ** 0.5, ids


def test_among_equal_merges_the_leftmost_that_is_kept_is_done_and_the_dropped_one_may_come_back() -> None:
    """aa merges only. aaa with p = 0.5 has two possible merges: aa|a when the left one is kept (0.5), a|aa when it alone
    is dropped (0.25), a|a|a when both are (0.25)."""
    tokens = [bytes([byte]) for byte in BYTE_ORDER] + [b"aa"]
    tokenizer, n = Tokenizer(Vocabulary(tokens=tokens, merges=[(A, A)])), 20_000
    found = Counter(tuple(tokenizer.encode("aaa", dropout=0.5, seed=seed)) for seed in range(n))
    for ids, share in {(256, A): 0.5, (A, 256): 0.25, (A, A, A): 0.25}.items():
        assert abs(found[ids] / n - share) < 5 * (share * (1 - share) / n) ** 0.5, ids


def test_ids_of_a_known_seed_never_change(gpt2: Tokenizer) -> None:
    ids = gpt2.encode("unbelievable tokenization", dropout=0.3, seed=7)
    assert [gpt2.decode([id_]) for id_ in ids] == ["un", "bel", "iev", "able", " to", "k", "en", "i", "z", "at", "ion"]
    assert ids == reference.encode(vocabulary_of(gpt2), "unbelievable tokenization", 0.3, 7)


@given(texts, probabilities, seeds, st.integers(0, 2**63))
def test_native_equals_the_reference(small: Tokenizer, text: str, p: float, seed: int, index: int) -> None:
    vocabulary = vocabulary_of(small)
    ids = encode(small._native, [text], None, p, seed, indices=[index])[0].tolist()
    assert ids == reference.encode(vocabulary, text, p, seed, index)
    assert small.decode_bytes(ids) == text.encode("utf-8", "surrogatepass")


@given(texts, seeds)
def test_without_dropout_ids_are_the_plain_ones_and_with_certain_dropout_bytes(
    small: Tokenizer, text: str, seed: int
) -> None:
    assert small.encode(text, dropout=0, seed=seed) == small.encode(text)
    assert encode(small._native, [text], None, 0.0, seed)[0].tolist() == small.encode(text)
    assert small.encode(text, dropout=1, seed=seed) == [BYTE_ORDER.index(byte) for byte in text.encode()]


def test_a_batch_has_the_same_ids_for_any_number_of_threads_and_each_text_others(small: Tokenizer) -> None:
    batch = SAMPLES * 40
    one = small.encode_batch(batch, threads=1, dropout=0.2, seed=3)
    assert one == small.encode_batch(batch, threads=4, dropout=0.2, seed=3)
    assert one[0] == small.encode(batch[0], dropout=0.2, seed=3)
    assert one[0] != one[len(SAMPLES)]  # the same text at another place
    assert one != small.encode_batch(batch, dropout=0.2, seed=4)
    tokens, offsets = small.encode_flat(batch, threads=2, dropout=0.2, seed=3)
    assert tokens.dtype == np.uint16
    assert [tokens[start:end].tolist() for start, end in itertools.pairwise(offsets)] == one
    assert small.encode_numpy(batch[0], dropout=0.2, seed=3).tolist() == one[0]
    assert [small.decode(ids) for ids in one] == batch
    assert small.encode_batch([], dropout=0.2) == []


def test_more_dropout_gives_more_tokens(gpt2: Tokenizer, corpus_slice: Callable[[str], str]) -> None:
    text = corpus_slice("en")[:100_000]
    lengths = [len(gpt2.encode(text, dropout=p, seed=1)) for p in (0, 0.05, 0.1, 0.3, 0.6, 1)]
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(text.encode())


def test_words_fall_apart_anew_every_time_they_occur(gpt2: Tokenizer) -> None:
    """HF tokenizers keeps a word's tokens and gives them again (tokenizers#2367); here each word draws its own numbers."""
    pieces = gpt2.encode_batch([" international"] * 200, dropout=0.1, seed=0)
    assert len({tuple(ids) for ids in pieces}) > 10
    in_one_text = gpt2.encode(" international" * 200, dropout=0.1, seed=0)
    words = "".join(gpt2.decode([id_]) + "|" for id_ in in_one_text).split(" international|")
    assert 0 < len(words) - 1 < 200


def test_special_tokens_are_never_dropped(gpt2: Tokenizer) -> None:
    text = "some words<|endoftext|>and some more words<|endoftext|>"
    ids = gpt2.encode(text, {"<|endoftext|>"}, dropout=0.4, seed=5)
    assert ids.count(50256) == 2
    assert gpt2.decode(ids) == text
    plain = "no special token in here"
    assert gpt2.encode(plain, "all", dropout=0.4, seed=5) == gpt2.encode(plain, dropout=0.4, seed=5)


def test_patterns_of_the_regex_module_drop_merges_too() -> None:
    tokenizer = Tokenizer.train(SAMPLES * 3, vocab_size=350, pattern=r"\s?\w+|\W")
    for seed in range(5):
        ids = tokenizer.encode_batch(SAMPLES, dropout=0.3, seed=seed)
        expected = [
            reference.encode(vocabulary_of(tokenizer), text, 0.3, seed, index) for index, text in enumerate(SAMPLES)
        ]
        assert ids == expected


def test_whole_pieces_are_merged_from_bytes_under_dropout(small: Tokenizer) -> None:
    vocabulary = vocabulary_of(small)
    whole = Tokenizer(Vocabulary(tokens=vocabulary.tokens, merges=vocabulary.merges, whole_pieces=True))
    assert whole.encode(SAMPLES[0], dropout=0.2, seed=1) == small.encode(SAMPLES[0], dropout=0.2, seed=1)


@pytest.mark.parametrize("character", ["a", "ab", " ", "="])
@pytest.mark.parametrize("p", [0.1, 0.9])
def test_a_piece_of_a_million_characters_takes_no_quadratic_time(gpt2: Tokenizer, character: str, p: float) -> None:
    """Time for n characters and for 16 n: sixteen times as much, where a quadratic rule takes 256 times.

    Other processes make a measurement longer, never shorter: one good one of several is enough.
    """

    def seconds(n: int) -> float:
        text = character * (n // len(character))
        start = time.process_time()
        gpt2.encode_numpy(text, dropout=p, seed=2)
        return time.process_time() - start

    few = min(seconds(62_500) for _ in range(3))
    assert any(seconds(1_000_000) < 64 * few + 0.05 for _ in range(9))


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan")])
def test_a_dropout_that_is_no_probability_is_refused(small: Tokenizer, p: float) -> None:
    with pytest.raises(ConfigError, match="0 to 1"):
        small.encode("text", dropout=p)


def test_a_seed_out_of_range_is_refused(small: Tokenizer) -> None:
    for seed in (-1, 2**64):
        with pytest.raises(ConfigError, match="seed"):
            small.encode("text", dropout=0.1, seed=seed)
