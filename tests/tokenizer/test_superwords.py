"""Superwords: what is learned, by the readable twin; files that HF tokenizers and tiktoken read with equal ids."""

from __future__ import annotations

import itertools
import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import regex
import tiktoken
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from webtext.base.errors import ConfigError, InputError
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer, Vocabulary, _bpe, reference, reference_superwords
from webtext.tokenizer.corpus import TokenizerSettings, train_tokenizer
from webtext.tokenizer.counts import PieceCounts
from webtext.tokenizer.patterns import SUPERWORDS, SUPERWORDS_REGEX
from webtext.tokenizer.training import train_vocabulary
from webtext.tokenizer.vocabulary import BYTE_ORDER

from .conftest import CORPORA, SAMPLES

WORDS = st.sampled_from(
    ["the", "of", "dog", "it", "'s", "don", "'t", " ", " ", " ", "\n", "!", "12", "é", "京", "'", "\xa0", "x"]
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    return "".join(draw(st.lists(WORDS, max_size=40)))


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    found: Vocabulary = tokenizer._vocabulary
    return found


def pieces_of(text: str) -> list[str]:
    return [piece.decode() for piece in _bpe.split(text, SUPERWORDS)]


def test_words_in_a_row_are_one_piece() -> None:
    """A run ends before what is no word, and before a word that no blank parts from the one before it."""
    assert pieces_of("of the dog, don't\n\nthe  dog") == ["of the dog", ",", " don't", "\n", "\n", "the", " ", " dog"]
    assert pieces_of("'tis in 1980's world") == ["'t", "is in", " 1980", "'s world"]


def test_superwords_of_a_small_corpus() -> None:
    """In every text stand " end", " of", " the" in a row, 6 times, and all are one token: " of" + " the" comes first, its
    left id being smaller than that of " end"; then " end" + " of the", which occurs 6 times too."""
    corpus = ["the end of the day", "the end of the war", "an end of the day"] * 2
    plain = Tokenizer.train(corpus, vocab_size=300, special_tokens=[])
    tokenizer = Tokenizer.train(corpus, vocab_size=300 + 2, special_tokens=[], superwords=2)
    ordinary, learned = vocabulary_of(tokenizer).tokens[:-2], vocabulary_of(tokenizer).tokens[-2:]
    assert list(ordinary) == list(vocabulary_of(plain).tokens)[: len(ordinary)]
    assert list(learned) == [b" of the", b" end of the"]
    assert [tokenizer.decode([id_]) for id_ in tokenizer.encode("an end of the day")] == ["an", " end of the", " day"]


@pytest.mark.parametrize("superwords", [1, 10, 40, 200])
def test_training_equals_the_naive_twin(superwords: int) -> None:
    corpus = [*SAMPLES, "It's the dog of the man, and it's of the house. The dog of the house of the man isn't it"] * 2
    expected = reference_superwords.train(corpus, 360 + superwords, superwords)
    found = vocabulary_of(
        Tokenizer.train(corpus, vocab_size=360 + superwords, special_tokens=[], superwords=superwords)
    )
    assert list(found.merges or ()) == list(expected.merges or ())
    assert list(found.tokens) == list(expected.tokens)


def test_training_equals_the_naive_twin_on_real_text(corpus_slice: Callable[[str], str]) -> None:
    text = corpus_slice("en")[:60_000]
    corpus = [text[start : start + 3000] for start in range(0, len(text), 3000)]
    expected = reference_superwords.train(corpus, 1200, 300)
    for threads in (1, 3):
        found = vocabulary_of(
            Tokenizer.train(corpus, vocab_size=1200, special_tokens=[], superwords=300, threads=threads)
        )
        assert list(found.merges or ()) == list(expected.merges or ())


@pytest.fixture(scope="module")
def trained(corpus_slice: Callable[[str], str]) -> Tokenizer:
    """4,000 tokens of English, French, C and Chinese; 800 of them superwords."""
    corpus = [
        corpus_slice(name)[start : start + 4000] for name in CORPORA for start in range(0, 600_000, 4000)
    ] + SAMPLES
    return Tokenizer.train(corpus, vocab_size=4001, superwords=800)


def test_the_same_number_of_tokens_holds_more_text(trained: Tokenizer, corpus_slice: Callable[[str], str]) -> None:
    text = corpus_slice("en")
    corpus = [text[start : start + 4000] for start in range(0, 1_600_000, 4000)]
    plain = Tokenizer.train(corpus, vocab_size=16_000)
    joined = Tokenizer.train(corpus, vocab_size=16_000, superwords=2000)
    assert plain.vocab_size == joined.vocab_size == 16_000
    held_out = text[1_600_000:]
    assert joined.count(held_out) < 0.96 * plain.count(held_out)


@settings(max_examples=300)
@given(texts())
@example("don'tx 'tis  the 's of")
def test_encoding_equals_the_reference_and_hf_tokenizers(
    trained: Tokenizer, hf: tokenizers.Tokenizer, text: str
) -> None:
    ids = trained.encode(text)
    assert ids == reference.encode(vocabulary_of(trained), text)
    assert ids == hf.encode(text, add_special_tokens=False).ids
    assert trained.decode(ids) == text
    assert "".join(pieces_of(text)) == text
    assert pieces_of(text) == regex.findall(SUPERWORDS_REGEX, text)


@pytest.fixture(scope="module")
def hf(trained: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> tokenizers.Tokenizer:
    path = tmp_path_factory.mktemp("superwords") / "tokenizer.json"
    trained.save(path)
    return tokenizers.Tokenizer.from_file(str(path))


@pytest.mark.parametrize("name", CORPORA)
def test_hf_tokenizers_and_tiktoken_give_equal_ids_on_real_text(
    trained: Tokenizer, hf: tokenizers.Tokenizer, corpus_slice: Callable[[str], str], name: str
) -> None:
    text = corpus_slice(name)[700_000:900_000]
    lines = text.splitlines(keepends=True)
    batch = trained.encode_batch(lines)
    assert batch == [encoding.ids for encoding in hf.encode_batch(lines)]
    ranks = {token: id_ for id_, token in enumerate(vocabulary_of(trained).tokens)}
    peer = tiktoken.Encoding("x", pat_str=SUPERWORDS_REGEX, mergeable_ranks=ranks, special_tokens={})
    assert peer.encode_ordinary_batch(lines) == batch


def test_a_saved_tokenizer_is_the_same_when_read(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path / "tokenizer.json")
    read = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (read.pattern, read.hash, read.vocab_size) == (SUPERWORDS, trained.hash, trained.vocab_size)
    split = json.loads((tmp_path / "tokenizer.json").read_text())["pre_tokenizer"]["pretokenizers"][0]
    assert split["pattern"] == {"Regex": SUPERWORDS_REGEX}
    assert (
        read.encode(SAMPLES[0]) == pickle.loads(pickle.dumps(trained)).encode(SAMPLES[0]) == trained.encode(SAMPLES[0])
    )


def test_a_rank_file_holds_superwords_and_needs_the_name_of_the_pattern(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path / "superwords.tiktoken")
    with pytest.raises(InputError, match="names no pattern"):
        Tokenizer.load(tmp_path / "superwords.tiktoken")
    read = Tokenizer.load(tmp_path / "superwords.tiktoken", pattern=SUPERWORDS, special_tokens=["<|endoftext|>"])
    assert read.hash == trained.hash
    assert read.encode_batch(SAMPLES) == trained.encode_batch(SAMPLES)


def test_gpt2s_two_files_cannot_hold_superwords(trained: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="names no pattern"):
        trained.save(tmp_path / "folder")


def test_every_way_of_encoding_gives_the_same_ids(trained: Tokenizer, corpus_slice: Callable[[str], str]) -> None:
    batch = [corpus_slice("en")[start : start + 5000] for start in range(0, 200_000, 5000)]
    expected = [trained.encode(text) for text in batch]
    for threads in (1, 3):
        tokens, offsets = trained.encode_flat(batch, threads)
        assert [tokens[start:end].tolist() for start, end in itertools.pairwise(offsets)] == expected
    assert [trained.count(text) for text in batch] == [len(ids) for ids in expected]
    stream = trained.encode_stream()
    text = batch[0]
    chunks = [stream.push(text[start : start + 7]) for start in range(0, len(text), 7)]
    assert sum(chunks, []) + stream.finish() == expected[0]
    ids, offsets = trained.encode_with_offsets(text)
    assert ids == expected[0]
    assert "".join(text[start:end] for start, end in offsets) == text
    whole = "".join(batch) * 8
    assert trained.encode_flat([whole], threads=2)[0].tolist() == trained.encode(whole)
    assert "".join(trained.split(text, 20)) == text
    dropped = trained.encode(text, dropout=0.1, seed=1)
    assert dropped == reference.encode(vocabulary_of(trained), text, 0.1, 1)
    assert trained.decode(dropped) == text


def merged(*rules: tuple[bytes, bytes]) -> Tokenizer:
    """A tokenizer of these merges and no others."""
    tokens = [bytes([byte]) for byte in BYTE_ORDER]
    merges = []
    for left, right in rules:
        merges.append((tokens.index(left), tokens.index(right)))
        tokens.append(left + right)
    return Tokenizer(Vocabulary(tokens=tokens, merges=merges, pattern=SUPERWORDS))


WORD_RULES = [(b" ", b"a"), (b" ", b"b"), (b"'", b"s"), (b"\xc3", b"\xa9"), (b" b", b"b")]
ODD_RULES = {
    "superwords come last": [(b" a", b" b"), (b" a b", b" a"), (b"\xc3\xa9", b"'s"), (b" b", b"'s")],
    "half a letter and an apostrophe": [(b"\xa9", b"'"), (b" a", b" b"), (b"\xc3", b"\xa9'")],
    "half a letter and a blank": [(b"\xa9", b" "), (b" a", b" b")],
    "a word's rule after a superword's": [(b" a", b" b"), (b"a", b"b"), (b" b", b" a")],
    "a blank that belongs to the word before": [(b"a", b" "), (b"a ", b"b"), (b" a", b" b")],
    "a superword that goes on within a word": [(b" a", b" b"), (b" a b", b"b")],
    "no superword at all": [(b"a", b"b")],
}


@pytest.mark.parametrize("rules", ODD_RULES.values(), ids=list(ODD_RULES))
@given(text=st.text("ab  's'é\n!s", max_size=30))
@example(text="é's é' a b a bb a b's")
def test_any_list_of_merges_is_applied_as_plain_bpe_over_runs(rules: list[tuple[bytes, bytes]], text: str) -> None:
    tokenizer = merged(*WORD_RULES, *rules)
    assert tokenizer.encode(text) == reference.encode(vocabulary_of(tokenizer), text)
    batch = [text, text + " a b", "x" + text]
    assert tokenizer.encode_batch(batch) == [reference.encode(vocabulary_of(tokenizer), each) for each in batch]


@given(
    st.lists(
        st.sampled_from([b"a", b" ", b" b", b"'s", b"\xc3\xa9", b"\xc3", b"\xa9", b"\xe4\xba", b"\xff"]), max_size=20
    )
)
def test_invalid_bytes_encode_as_in_the_reference(trained: Tokenizer, parts: list[bytes]) -> None:
    data = b"".join(parts)
    ids = trained.encode(data)
    assert ids == reference.encode(vocabulary_of(trained), data)
    assert trained.decode_bytes(ids) == data


@pytest.mark.parametrize("text", ["the dog " * 125_000, "of the " * 140_000, "the" * 300_000, " a" * 500_000])
def test_long_runs_take_no_quadratic_time(trained: Tokenizer, text: str) -> None:
    def seconds(part: str) -> float:
        start = time.process_time()
        trained.encode_numpy(part)
        return time.process_time() - start

    few = min(seconds(text[: len(text) // 16]) for _ in range(3))
    assert any(seconds(text) < 64 * few + 0.05 for _ in range(9)), "quadratic: 256 times as much for 16 times the text"


def test_texts_that_can_be_read_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="several times"):
        Tokenizer.train(iter(SAMPLES), vocab_size=400, superwords=10)


def test_superwords_of_another_pattern_and_negative_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="pattern"):
        Tokenizer.train(SAMPLES, vocab_size=400, superwords=10, pattern=r"\w+")
    with pytest.raises(ConfigError, match="-1"):
        Tokenizer.train(SAMPLES, vocab_size=400, superwords=-1)
    with pytest.raises(ConfigError, match="vocab_size"):
        Tokenizer.train(SAMPLES, vocab_size=400, superwords=200)


def test_no_superword_crosses_the_end_of_a_text() -> None:
    corpus = ["the end", " of it"] * 20
    tokenizer = Tokenizer.train(corpus, vocab_size=290, special_tokens=[], superwords=20)
    assert not [token for token in vocabulary_of(tokenizer).tokens if b"end of" in token]


def test_a_vocabulary_without_words_in_a_row_has_no_superwords() -> None:
    tokenizer = Tokenizer.train(["12 !! 34"] * 5, vocab_size=300, special_tokens=[], superwords=20)
    assert tokenizer.encode("12 !! 34") == reference.encode(vocabulary_of(tokenizer), "12 !! 34")


def test_files_and_weights_give_the_superwords_of_their_texts(tmp_path: Path) -> None:
    """One text file, read in blocks, and JSON lines that count twice, against the same texts in memory."""
    lines = [f"The dog of the house {number} and the man of the sea.\n" for number in range(40_000)]
    (tmp_path / "whole.txt").write_text("".join(lines))
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in SAMPLES))
    settings = TokenizerSettings(
        vocab_size=420, superwords=30, weight=(f"{tmp_path / 'lines.jsonl'}=2",), special_tokens=()
    )
    inputs = [str(tmp_path / "whole.txt"), str(tmp_path / "lines.jsonl")]
    found = train_tokenizer(inputs, str(tmp_path / "tokenizer.json"), settings, Run.quiet())
    expected = Tokenizer.train(["".join(lines), *SAMPLES, *SAMPLES], vocab_size=420, special_tokens=[], superwords=30)
    assert found.hash == expected.hash == Tokenizer.load(tmp_path / "tokenizer.json").hash
    assert b" of the" in vocabulary_of(found).tokens


def test_counts_of_pieces_are_not_enough_for_superwords(tmp_path: Path) -> None:
    counts = PieceCounts()
    counts.add(SAMPLES)
    counts.save(tmp_path / "a.counts")
    settings = TokenizerSettings(vocab_size=400, superwords=10)
    with pytest.raises(InputError, match="holds counts of pieces"):
        train_tokenizer([str(tmp_path / "a.counts")], str(tmp_path / "tokenizer.json"), settings, Run.quiet())
    with pytest.raises(ConfigError, match="not counts"):
        train_vocabulary(counts, vocab_size=400, superwords=10)


@pytest.mark.parametrize("superwords", [-1, 144])
def test_settings_refuse_more_superwords_than_merges(superwords: int) -> None:
    with pytest.raises(ConfigError, match="expected 0 to 143"):
        TokenizerSettings(vocab_size=400, superwords=superwords)


def test_the_number_that_counts_give_is_that_of_merging_words_and_runs_together(
    corpus_slice: Callable[[str], str],
) -> None:
    """'auto' gives the vocabulary in which the last ordinary merge occurs as often as the next superword, or more often."""
    corpus = [corpus_slice("en")[start : start + 4000] for start in range(0, 800_000, 4000)]
    found = Tokenizer.train(corpus, vocab_size=3000, special_tokens=[], superwords="auto")
    tokens = vocabulary_of(found).tokens
    n = sum(len(_bpe.split(token)) > len(_bpe.split(token, SUPERWORDS)) for token in tokens)
    given = Tokenizer.train(corpus, vocab_size=3000, special_tokens=[], superwords=n)
    assert 20 < n < 1500
    assert found.hash == given.hash
    counts = PieceCounts()
    counts.add(corpus)
    ordinary = counts.merge_counts(3000 - n + 1, 1)
    of_last = count_of_last_superword(corpus, 3000, n)
    assert ordinary[-2] >= count_of_last_superword(corpus, 3000 + 1, n + 1)
    assert of_last > ordinary[-1]


def count_of_last_superword(corpus: list[str], vocab_size: int, superwords: int) -> int:
    """How often its two parts stand side by side where the superwords before it are merged."""
    last = vocabulary_of(Tokenizer.train(corpus, vocab_size=vocab_size, special_tokens=[], superwords=superwords))
    left, right = (last.merges or ())[-1]
    before = Tokenizer(Vocabulary(tokens=last.tokens, merges=(last.merges or ())[:-1], pattern=SUPERWORDS))
    return sum(pair == (left, right) for text in corpus for pair in itertools.pairwise(before.encode(text)))


def test_superwords_are_shorter_than_the_longest_token_allowed() -> None:
    corpus = ["the end of the day", "the end of the war", "an end of the day"] * 2
    tokenizer = Tokenizer.train(corpus, vocab_size=300, special_tokens=[], superwords=4, max_token_length=8)
    assert max(len(token) for token in vocabulary_of(tokenizer).tokens) == 7
    assert b" of the" in vocabulary_of(tokenizer).tokens
