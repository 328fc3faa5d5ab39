"""Splitting a text into parts that have at most n tokens each when they are encoded on their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.tokenizer import Tokenizer, Vocabulary

from .conftest import CORPORA, native_pieces

texts = st.text(max_size=60) | st.text(alphabet="the dog's 12!\n é東😀\t\r\ud83d\ude00", max_size=80)


@pytest.fixture(scope="module", params=["gpt2", r"\s?\w+|\W(?!x)|(?<=q)\W"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(["the dog's 12 dogs!\n\n été 東東 😀"] * 3, vocab_size=320, pattern=request.param)


def test_parts_end_where_pieces_do(gpt2: Tokenizer) -> None:
    text = "The quick brown fox jumps over the lazy dog"
    assert gpt2.split(text, 4) == ["The quick brown fox", " jumps over the lazy", " dog"]
    assert gpt2.truncate(text, 4) == "The quick brown fox"
    assert gpt2.split("unbelievably so", 2) == ["unbel", "ievably", " so"]
    assert gpt2.split(text.encode(), 4) == [b"The quick brown fox", b" jumps over the lazy", b" dog"]


@given(texts, st.integers(4, 30))
def test_parts_are_the_text_and_have_at_most_n_tokens(tokenizer: Tokenizer, text: str, n: int) -> None:
    parts = tokenizer.split(text, n)
    assert "".join(parts) == text
    assert all(parts)
    assert all(tokenizer.count(part) <= n for part in parts)
    assert tokenizer.truncate(text, n) == "".join(parts[:1])


@given(texts.map(lambda text: text.encode("utf-8", "replace")) | st.binary(max_size=60), st.integers(4, 30))
def test_parts_of_bytes_cut_no_character(tokenizer: Tokenizer, data: bytes, n: int) -> None:
    parts = tokenizer.split(data, n)
    assert b"".join(parts) == data
    assert all(tokenizer.count(part) <= n for part in parts)
    assert "".join(part.decode("utf-8", "surrogateescape") for part in parts) == data.decode("utf-8", "surrogateescape")


@given(texts.filter(lambda text: text.isascii()), st.integers(1, 3))
def test_any_n_works_if_characters_have_one_byte(tokenizer: Tokenizer, text: str, n: int) -> None:
    parts = tokenizer.split(text, n)
    assert "".join(parts) == text
    assert all(tokenizer.count(part) <= n for part in parts)


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("n", [16, 512])
def test_real_text_fills_its_parts(trained: Tokenizer, corpus_slice: Callable[[str], str], name: str, n: int) -> None:
    """Cuts are at the ends of pieces, unless a piece has more than n tokens; the parts are nearly full anyway."""
    text = corpus_slice(name)[:30_000]
    parts = trained.split(text, n)
    counts = trained.count_batch(parts)
    assert "".join(parts) == text
    assert counts.max() <= n
    assert counts[:-1].mean() > 0.8 * n
    ends = set(itertools.accumulate(map(len, native_pieces(text))))
    data, at = text.encode(), 0
    for part in parts:
        at += len(part.encode())
        assert at in ends or max(map(trained.count, native_pieces(data[at - len(part.encode()) :][:10_000]))) > n


def test_one_long_piece_is_cut_inside(trained: Tokenizer) -> None:
    text = "abc" * 100_000
    parts = trained.split(text, 1000)
    assert "".join(parts) == text
    assert max(map(trained.count, parts)) <= 1000
    assert len(parts) <= 1.1 * trained.count(text) / 1000


def test_a_part_that_has_more_tokens_alone_is_cut_shorter() -> None:
    """'ab' is a piece before a blank, which the lookahead requires; at the end of a text 'a' and 'b' are separate."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"ab"]
    tokenizer = Tokenizer(Vocabulary(tokens=tokens, merges=None, pattern=r"ab(?= )|\S|\s"))
    assert [tokenizer.encode("ab"), tokenizer.encode("ab ")] == [[97, 98], [256, 32]]
    assert tokenizer.split("ab ", 1) == ["a", "b", " "]


def test_a_character_of_more_than_n_tokens_is_an_error(trained: Tokenizer) -> None:
    assert trained.count("🦩") == 3
    with pytest.raises(ConfigError, match="n is 2, but the character at byte 2 has 3 tokens"):
        trained.split("a 🦩", 2)
    assert trained.split("🦩🦩", 3) == ["🦩", "🦩"]
    for n in (0, -1, 2.5, None, "3"):
        with pytest.raises(ConfigError, match=f"n is {n!r}"):
            trained.truncate("a", n)  # type: ignore[arg-type]


def test_nothing_has_no_parts(trained: Tokenizer) -> None:
    assert trained.split("", 5) == trained.split(b"", 5) == []
    assert (trained.truncate("", 5), trained.truncate(b"", 5)) == ("", b"")
