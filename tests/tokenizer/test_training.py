"""Training learns HF tokenizers' merges, pair by pair."""

from __future__ import annotations

import dataclasses
import json
import lzma
import math
import random
import re
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from webtext.base.errors import ConfigError
from webtext.tokenizer import Tokenizer, Vocabulary, _bpe, _trainer, reference
from webtext.tokenizer.files.corpus import TokenizerSettings
from webtext.tokenizer.train.counts import PieceCounts
from webtext.tokenizer.train.training import train_vocabulary, with_merged

from .conftest import CORPORA, real_is_slow

Pairs = list[tuple[int, int]]


def hf_merges(
    texts: Iterable[str], n_tokens: int, min_frequency: int = 0, max_token_length: int | None = None
) -> Pairs:
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=n_tokens,
        min_frequency=min_frequency,
        max_token_length=max_token_length,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    found = json.loads(model.to_str())["model"]
    return [(found["vocab"][left], found["vocab"][right]) for left, right in found["merges"]]


def our_merges(
    texts: Iterable[str],
    n_tokens: int,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    threads: int = 1,
    base: Vocabulary | None = None,
) -> Pairs:
    vocabulary = train_vocabulary(
        texts,
        vocab_size=n_tokens,
        special_tokens=[],
        min_frequency=min_frequency,
        max_token_length=max_token_length,
        threads=threads,
        base=base,
    )
    assert vocabulary.merges is not None
    return list(vocabulary.merges)


def counts_of(pieces: dict[bytes, int]) -> _trainer.PieceCounts:
    counts = _trainer.PieceCounts()
    counts.add_pieces(list(pieces), list(pieces.values()))
    return counts


def documents(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    return ["".join(lines[start : start + 50]) for start in range(0, len(lines), 50)]


def test_the_most_frequent_pair_is_merged_first() -> None:
    """In `low lower lowest` twice, `l o` occurs 6 times and `o w` 6: the smallest pair of ids wins, `l` before `o`."""
    tokenizer = Tokenizer.train(["low lower lowest"] * 2, vocab_size=259)
    assert [tokenizer.decode([id_]) for id_ in (256, 257, 258)] == ["lo", "low", "<|endoftext|>"]


@pytest.mark.parametrize(
    ("name", "n_bytes"),
    [
        pytest.param("en", 3_000_000, marks=pytest.mark.slow),
        pytest.param("multi", 1_500_000, marks=pytest.mark.slow),
        ("code", 500_000),
    ],
)
def test_merges_equal_those_of_hf_tokenizers(data: Path, name: str, n_bytes: int) -> None:
    with lzma.open(data / "corpora" / f"{name}.txt.xz") as file:
        texts = documents(file.read(n_bytes).decode(errors="ignore"))
    expected = hf_merges(texts, 32_000)
    assert our_merges(texts, 32_000) == expected
    assert our_merges(texts, 1_000) == expected[: 1_000 - 256]


@pytest.mark.parametrize("max_token_length", [2, 3, 4, 5, 7, 16])
def test_tokens_are_as_long_as_in_hf_tokenizers(corpus_slice: Callable[[str], str], max_token_length: int) -> None:
    """Tokens are shorter than max_token_length bytes, except tokens of two bytes."""
    texts = documents(corpus_slice("multi")[:20_000])
    for min_frequency in (1, 3):
        expected = hf_merges(texts, 900, min_frequency, max_token_length)
        assert our_merges(texts, 900, min_frequency, max_token_length) == expected
    longest = max(map(len, with_merged([b"a"] * 256, expected)))
    assert longest == max(2, max_token_length - 1)


@st.composite
def tiny_texts(draw: st.DrawFn) -> list[str]:
    """Draw texts of few letters: runs that overlap themselves, many ties."""
    letters = draw(st.sampled_from(["a", "ab", "abc", "ab'", "aé", "ab 1"]))
    return draw(st.lists(st.text(letters, max_size=40), max_size=8))


@given(tiny_texts(), st.integers(256, 320), st.integers(1, 3), st.sampled_from([None, 2, 3, 4, 6, 9]))
def test_reference_and_hf_learn_the_same_from_ties(
    texts: list[str], n_tokens: int, min_frequency: int, max_token_length: int | None
) -> None:
    expected = hf_merges(texts, n_tokens, min_frequency, max_token_length)
    assert our_merges(texts, n_tokens, min_frequency, max_token_length) == expected
    longest = math.inf if max_token_length is None else max_token_length
    assert reference.train_merges(texts, n_tokens, "gpt2", min_frequency, longest) == expected


@given(
    tiny_texts(),
    st.integers(256, 320),
    st.integers(1, 3),
    st.sampled_from([None, 2, 4, 9]),
    st.integers(0, 20),
    st.data(),
)
def test_pieces_that_wait_in_a_file_learn_the_same(
    texts: list[str], n_tokens: int, min_frequency: int, max_token_length: int | None, n_known: int, data: st.DataObject
) -> None:
    """With memory for next to nothing, pieces are loaded for one threshold at a time."""
    base = train_vocabulary(data.draw(tiny_texts()), vocab_size=256 + n_known, special_tokens=[]) if n_known else None
    merges = []
    for max_memory in (1, 1 << 30):
        counts = PieceCounts(max_memory=max_memory)
        counts.add(texts)
        vocabulary = train_vocabulary(
            counts,
            vocab_size=n_tokens + n_known,
            special_tokens=[],
            min_frequency=min_frequency,
            max_token_length=max_token_length,
            base=base,
        )
        merges.append(vocabulary.merges)
    assert merges[0] == merges[1]


def test_reference_learns_the_same_from_real_text(corpus_slice: Callable[[str], str]) -> None:
    texts = [corpus_slice(name)[:20_000] for name in CORPORA]
    assert our_merges(texts, 700) == reference.train_merges(texts, 700)


@pytest.mark.parametrize("max_memory", [1 << 16, pytest.param(1 << 20, marks=pytest.mark.slow)])
def test_real_text_is_learned_in_little_memory(corpus_slice: Callable[[str], str], max_memory: int) -> None:
    text = corpus_slice("multi")[: 40_000 if max_memory < 1 << 20 else 2_000_000]
    counts = PieceCounts(max_memory=max_memory)
    counts.add([text])
    assert train_vocabulary(counts, vocab_size=2_000) == train_vocabulary([text], vocab_size=2_000)


def test_any_number_of_threads_learns_the_same(corpus_slice: Callable[[str], str]) -> None:
    texts = documents(corpus_slice("multi")[:500_000])
    assert our_merges(texts, 2_000, threads=3) == our_merges(texts, 2_000, threads=1)


def test_order_of_pieces_changes_nothing() -> None:
    pieces = {bytes(random.Random(seed).choices(b"abc", k=6)): 1 + seed % 5 for seed in range(300)}
    backwards = dict(reversed(pieces.items()))
    assert _trainer.train(counts_of(pieces), 500) == _trainer.train(counts_of(backwards), 500)


def test_another_pattern_learns_what_the_reference_learns() -> None:
    texts = ["ab12 cd34 ab12"] * 3
    vocabulary = train_vocabulary(texts, vocab_size=270, pattern=r"\w+|\s+", special_tokens=[])
    assert vocabulary.merges == reference.train_merges(texts, 270, pattern=r"\w+|\s+")
    assert b"ab12" in vocabulary.tokens


def test_counts_near_2_to_the_62_are_exact() -> None:
    """Sums differ by one: `ab` occurs 2^60 + 1 times, of which 2^59 in `abc`; `cd` occurs 2^60 times."""
    pieces = {b"ab": (1 << 59) + 1, b"abc": 1 << 59, b"cd": 1 << 60, b"xy": (1 << 60) - 1}
    a, b, c, d, x, y = (_bpe.byte_order().index(byte) for byte in b"abcdxy")
    assert _trainer.train(counts_of(pieces), 260) == [(a, b), (c, d), (x, y), (256, c)]


def test_counts_of_2_to_the_63_are_refused() -> None:
    with pytest.raises(OverflowError):
        counts_of({b"ab": 1 << 61, b"cd": 1 << 61})


@pytest.mark.usefixtures("linear_time")
@pytest.mark.parametrize("letters", [b"a", b"ab", b"0123456789"])
def test_a_piece_of_a_megabyte_is_learned_in_linear_time(letters: bytes) -> None:
    """Quadratic time would take hours."""
    piece = bytes(random.Random(0).choices(letters, k=1_000_000))
    merges = _trainer.train(counts_of({piece: 1}), 20_000)
    doublings_and_rests = 19 + (10**6).bit_count() - 1  # a million is the sum of seven powers of two
    assert len(merges) == (doublings_and_rests if letters == b"a" else 20_000 - 256)


@pytest.mark.slow
def test_a_signal_stops_training_at_once_and_breaks_nothing() -> None:
    """Both while pieces are read and while pairs merge; the counts can be used afterwards.

    "At once" means long before the end: within a quarter of the CPU time of the complete training on this machine.
    """
    piece = bytes(random.Random(0).choices(b"abcdefgh", k=2_000_000))
    counts = counts_of({piece: 1, b"xy": 2})
    expected = _trainer.train(counts, 300)
    started = time.process_time()
    _trainer.train(counts, 1_000_000)
    whole = time.process_time() - started
    for seconds in (0.001, whole / 4):
        signalled = []

        def interrupt(signum: int, frame: object, signalled: list[float] = signalled) -> None:
            signalled.append(time.process_time())
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGPROF, interrupt)
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            with pytest.raises(KeyboardInterrupt):
                _trainer.train(counts, 1_000_000)
            assert time.process_time() - signalled[0] < whole / 4
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
        assert _trainer.train(counts, 300) == expected


def test_progress_is_reported_and_may_end_training() -> None:
    piece = bytes(random.Random(0).choices(b"abcdefgh", k=1_000_000))
    told: list[int] = []
    merges = _trainer.train(counts_of({piece: 1}), 5_000, progress=lambda n_merges, loaded: told.append(n_merges))
    assert told[0] == 0
    assert told == sorted(told)
    assert 0 < told[-1] <= len(merges)

    def stop(n_merges: int, loaded: float) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        _trainer.train(counts_of({piece: 1}), 5_000, progress=stop)


def test_extending_keeps_all_ids_and_learns_more() -> None:
    """All pairs of `newer` occur three times: `e r` is the smallest, then `e w`, then `n ew`."""
    base = Tokenizer.train(["low lower lowest"] * 2, vocab_size=259)
    extended = Tokenizer.train(["newer"] * 3, vocab_size=262, base=base)
    names = ["lo", "low", "<|endoftext|>", "er", "ew", "new"]
    assert [extended.decode([id_]) for id_ in range(256, 262)] == names
    assert extended.special_tokens == base.special_tokens == {"<|endoftext|>": 258}
    assert extended.encode("low") == base.encode("low") == [257]
    assert extended.encode("newer") == [261, 259]


@given(
    tiny_texts(), tiny_texts(), st.integers(0, 40), st.integers(0, 40), st.sampled_from([None, 2, 4, 7]), st.booleans()
)
def test_extending_equals_the_reference(
    first: list[str], more: list[str], n_first: int, n_more: int, max_token_length: int | None, by_rank: bool
) -> None:
    base = train_vocabulary(first, vocab_size=257 + n_first)
    if by_rank:
        base = dataclasses.replace(base, merges=None, whole_pieces=n_first % 2 == 0)
    n_tokens = base.size + n_more
    extended = train_vocabulary(more, vocab_size=n_tokens, max_token_length=max_token_length, base=base)
    longest = math.inf if max_token_length is None else max_token_length
    learned = reference.train_merges(more, n_tokens, max_token_length=longest, base=base)
    joined = [*base.tokens, *[b""] * (base.size - len(base.tokens))]
    for left, right in learned:
        joined.append(joined[left] + joined[right])
    assert list(extended.tokens) == joined
    assert extended.merges == (None if by_rank else [*(base.merges or []), *learned])
    assert extended.special_tokens == base.special_tokens


@given(tiny_texts(), st.integers(0, 30), st.integers(0, 30))
def test_extending_with_the_same_texts_equals_longer_training(texts: list[str], n_first: int, n_more: int) -> None:
    """Extending learns what a longer training would have learned next."""
    base = train_vocabulary(texts, vocab_size=256 + n_first, special_tokens=[])
    whole = train_vocabulary(texts, vocab_size=base.size + n_more, special_tokens=[])
    assert our_merges(texts, base.size + n_more, base=base) == whole.merges


def test_extending_a_vocabulary_learns_what_its_merges_leave(
    trained: Tokenizer, corpus_slice: Callable[[str], str]
) -> None:
    texts = documents(corpus_slice("multi")[:300_000])
    extended = Tokenizer.train(texts, vocab_size=trained.vocab_size + 1_743, base=trained)
    assert extended.vocab_size == trained.vocab_size + 1_743
    assert extended.eot_id == trained.eot_id
    ids = range(trained.vocab_size)
    assert [extended.decode([id_]) for id_ in ids] == [trained.decode([id_]) for id_ in ids]
    assert sum(map(extended.count, texts)) < 0.8 * sum(map(trained.count, texts))
    first = texts[:5]
    base = trained._vocabulary
    some = train_vocabulary(first, vocab_size=base.size + 43, base=base)
    assert some.merges == [*(base.merges or []), *reference.train_merges(first, base.size + 43, base=base)]


@real_is_slow
def test_hf_tokenizers_reads_an_extended_tokenizer(
    trained: Tokenizer, corpus_slice: Callable[[str], str], tmp_path: Path
) -> None:
    text = corpus_slice("multi")[:200_000]
    extended = Tokenizer.train([text], vocab_size=trained.vocab_size + 743, base=trained)
    extended.save(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode(text).ids == extended.encode(text)
    assert Tokenizer.load(tmp_path / "tokenizer.json").hash == extended.hash


def test_special_tokens_get_the_ids_after_the_merges() -> None:
    tokenizer = Tokenizer.train(["aaaa"], vocab_size=260, special_tokens=["<|endoftext|>", "<|pad|>"])
    assert tokenizer.special_tokens == {"<|endoftext|>": 258, "<|pad|>": 259}
    assert (tokenizer.vocab_size, tokenizer.eot_id) == (260, 258)


def test_vocabulary_is_smaller_when_no_pair_is_left() -> None:
    tokenizer = Tokenizer.train(["ab ab"], vocab_size=50_257)
    assert tokenizer.vocab_size == 256 + 2 + 1  # ab, " ab"
    assert tokenizer.eot_id == 258


@pytest.mark.parametrize("name", ["|", "é", "Ġ", "hello", "Hello", "Ġhello", "42", "=="])
def test_a_special_token_that_could_be_learned_is_rejected_before_a_text_is_read(name: str) -> None:
    texts = (pytest.fail("a text was read") for _ in range(1))
    with pytest.raises(ConfigError, match=f"the special token {re.escape(repr(name))} could also be learned"):
        Tokenizer.train(texts, vocab_size=300, special_tokens=["<s>", name])
    with pytest.raises(ConfigError, match="could also be learned"):
        TokenizerSettings(special_tokens=(name,))


@pytest.mark.parametrize("name", ["<s>", "[PAD]", "<|é|>", "don't", "hello world", "中"])
def test_a_special_token_that_no_text_can_teach_is_saved(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train([name * 9], vocab_size=300, special_tokens=[name])
    tokenizer.save(tmp_path / "t.json")
    assert Tokenizer.load(tmp_path / "t.json") == tokenizer


def test_a_vocabulary_that_is_smaller_than_asked_for_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    Tokenizer.train(["aaaa"], vocab_size=259)
    assert not caplog.messages
    Tokenizer.train(["aaaa"], vocab_size=1000)
    assert caplog.messages[0].startswith("the vocabulary has 259 tokens instead of 1,000")


def test_special_tokens_in_training_text_are_text() -> None:
    tokenizer = Tokenizer.train(["<|endoftext|>"] * 9, vocab_size=300)
    assert len(tokenizer.encode("endoftext")) == 1
    assert tokenizer.eot_id not in tokenizer.encode("<|endoftext|>")


def test_without_text_there_are_only_bytes() -> None:
    tokenizer = Tokenizer.train([], vocab_size=1000)
    assert tokenizer.vocab_size == 257
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"


def test_texts_may_be_a_generator_of_str_and_bytes_with_lone_surrogates() -> None:
    texts = (text for text in ["ab", b"ab", "\ud800ab", b"\xffab"])
    assert b"ab" in train_vocabulary(texts, vocab_size=300).tokens
