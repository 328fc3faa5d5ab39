"""Training gives HF tokenizers' merges, pair by pair."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from webtext.base.errors import ConfigError
from webtext.tokenizer import Tokenizer, _bpe, _trainer, reference
from webtext.tokenizer.training import train_vocabulary

from .conftest import CORPORA

Pairs = list[tuple[int, int]]


def hf_merges(texts: Iterable[str], n_tokens: int, min_frequency: int = 0) -> Pairs:
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=n_tokens,
        min_frequency=min_frequency,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    found = json.loads(model.to_str())["model"]
    return [(found["vocab"][left], found["vocab"][right]) for left, right in found["merges"]]


def our_merges(texts: Iterable[str], n_tokens: int, min_frequency: int = 1, threads: int = 1) -> Pairs:
    vocabulary = train_vocabulary(
        texts, vocab_size=n_tokens, special_tokens=[], min_frequency=min_frequency, threads=threads
    )
    assert vocabulary.merges is not None
    return list(vocabulary.merges)


def documents(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    return ["".join(lines[start : start + 50]) for start in range(0, len(lines), 50)]


def test_the_most_frequent_pair_is_merged_first() -> None:
    """In `low lower lowest` twice, `l o` occurs 6 times and `o w` 6: the smallest pair of ids wins, `l` before `o`."""
    tokenizer = Tokenizer.train(["low lower lowest"] * 2, vocab_size=259)
    assert [tokenizer.decode([id_]) for id_ in (256, 257, 258)] == ["lo", "low", "<|endoftext|>"]


@pytest.mark.parametrize("name", CORPORA)
def test_merges_equal_those_of_hf_tokenizers(corpus_slice: Callable[[str], str], name: str) -> None:
    texts = documents(corpus_slice(name)[:500_000])
    expected = hf_merges(texts, 10_000)
    assert our_merges(texts, 10_000) == expected
    assert our_merges(texts, 1_000) == expected[: 1_000 - 256]


@pytest.mark.parametrize("seed", range(4))
def test_merges_equal_hf_on_runs_and_ties(seed: int) -> None:
    """Two or three letters at random: overlapping pairs, ties everywhere, tokens that two merges give."""
    random_ = random.Random(seed)
    for _ in range(100):
        letters = random_.choice(["a", "ab", "abc", "ab'", "aé"])
        texts = ["".join(random_.choices(letters, k=random_.randint(1, 40))) for _ in range(random_.randint(1, 8))]
        n_tokens, min_frequency = 256 + random_.randint(0, 60), random_.randint(1, 3)
        expected = hf_merges(texts, n_tokens, min_frequency)
        assert our_merges(texts, n_tokens, min_frequency) == expected
        assert reference.train_merges(texts, n_tokens, min_frequency=min_frequency) == expected


def test_reference_learns_the_same_from_real_text(corpus_slice: Callable[[str], str]) -> None:
    texts = [corpus_slice(name)[:20_000] for name in CORPORA]
    assert our_merges(texts, 700) == reference.train_merges(texts, 700)


def test_any_number_of_threads_learns_the_same(corpus_slice: Callable[[str], str]) -> None:
    texts = documents(corpus_slice("multi")[:500_000])
    assert our_merges(texts, 2_000, threads=3) == our_merges(texts, 2_000, threads=1)


def test_another_pattern_learns_what_the_reference_learns() -> None:
    texts = ["ab12 cd34 ab12"] * 3
    vocabulary = train_vocabulary(texts, vocab_size=270, pattern=r"\w+|\s+", special_tokens=[])
    assert vocabulary.merges == reference.train_merges(texts, 270, pattern=r"\w+|\s+")
    assert b"ab12" in vocabulary.tokens


def test_counts_do_not_overflow_32_bits() -> None:
    """`ab` occurs 3 * 2^31 times, more than 32 bits hold, `cd` twice as often."""
    counts = _trainer.PieceCounts()
    counts.add_pieces([b"ab", b"cd"], [3 << 31, 6 << 31])
    order = _bpe.byte_order()
    assert _trainer.train(counts, 258, 1) == [tuple(map(order.index, b"cd")), tuple(map(order.index, b"ab"))]


def test_special_tokens_get_the_ids_after_the_merges() -> None:
    tokenizer = Tokenizer.train(["aaaa"], vocab_size=260, special_tokens=["<|endoftext|>", "<|pad|>"])
    assert tokenizer.special_tokens == {"<|endoftext|>": 258, "<|pad|>": 259}
    assert (tokenizer.vocab_size, tokenizer.eot_id) == (260, 258)


def test_vocabulary_is_smaller_when_no_pair_is_left() -> None:
    tokenizer = Tokenizer.train(["ab ab"], vocab_size=50_257)
    assert tokenizer.vocab_size == 256 + 2 + 1  # ab, " ab"
    assert tokenizer.eot_id == 258


def test_min_frequency_stops_training() -> None:
    assert len(our_merges(["ab ab cd"], 300, min_frequency=2)) == 1


def test_special_tokens_in_training_text_are_text() -> None:
    tokenizer = Tokenizer.train(["<|endoftext|>"] * 9, vocab_size=300)
    assert len(tokenizer.encode("endoftext")) == 1
    assert tokenizer.eot_id not in tokenizer.encode("<|endoftext|>")


def test_no_text_gives_the_bytes_alone() -> None:
    tokenizer = Tokenizer.train([], vocab_size=1000)
    assert tokenizer.vocab_size == 257
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"


def test_texts_may_be_a_generator_of_str_and_bytes_with_lone_surrogates() -> None:
    texts = (text for text in ["ab", b"ab", "\ud800ab", b"\xffab"])
    assert b"ab" in train_vocabulary(texts, vocab_size=300).tokens


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 256}, "vocab_size is 256\nexpected 257 or more"),
        ({"min_frequency": 0}, "min_frequency is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"pattern": "("}, "neither 'gpt2' nor a regular expression"),
    ],
)
def test_settings_that_make_no_sense_are_errors(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Tokenizer.train(["text"], **arguments)  # type: ignore[arg-type]


def test_one_string_instead_of_texts_is_an_error() -> None:
    with pytest.raises(ConfigError, match="texts is one string"):
        Tokenizer.train("text")
