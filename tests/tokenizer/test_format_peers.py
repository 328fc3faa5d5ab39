"""tokenizers, transformers and tiktoken read our files, with equal ids on real and on ugly text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.train.training import check_names

from .conftest import CORPORA, SAMPLES, published, tiktoken_of
from .test_pre_tokenizers import is_accepted

UGLY = [
    "",
    " ",
    "\n \n\n  \t x  ",
    "1234567890 12345 1 22 333 4444",
    "don't DON'T don’t 'S '\u017f x'll'",
    "a\x00b\x1cc\x85d\u180ee\u200bf\ufefff",
    "e\u0301 \u0915\u094d\u0937 \ud55c\uae00 \U0001f469\u200d\U0001f4bb\U0001f1e9\U0001f1ea",
    "<|endoftext|><|endoftext|> <|endoftext|",
    "\u00a0\u00a0y \u3000\u2003z",
    "x" * 1000 + " " * 1000 + "=" * 1000,
]
PATTERNS_OF_OPENAI = ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cl100k", "o200k"))]


def texts_of(corpus_slice: Callable[[str], str]) -> list[str]:
    """Return 100 lines of every corpus, each with the lines that follow it, and ugly strings."""
    found = []
    for name in CORPORA:
        lines = corpus_slice(name)[:60_000].splitlines(keepends=True)
        found += ["".join(lines[start : start + 5]) for start in range(0, 500, 5)]
    return found + UGLY


@pytest.mark.parametrize("pattern", PATTERNS_OF_OPENAI)
def test_tokenizers_reads_openais_vocabularies_as_we_write_them(
    data: Path, pattern: str, tmp_path: Path, corpus_slice: Callable[[str], str]
) -> None:
    """Including cl100k and o200k: Oniguruma would read their possessive interval as a repeated one."""
    tokenizer = published(data, pattern)
    tokenizer.save(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = texts_of(corpus_slice)
    assert [encoding.ids for encoding in theirs.encode_batch(texts)] == [
        tokenizer.encode(text, allowed_special="all") for text in texts
    ]
    ids = tokenizer.encode("a <|endoftext|> b", allowed_special="all")
    assert theirs.decode(ids, skip_special_tokens=False) == "a <|endoftext|> b"


@pytest.mark.slow
def test_transformers_reads_what_we_write(
    trained: Tokenizer, tmp_path: Path, corpus_slice: Callable[[str], str]
) -> None:
    transformers: Any = pytest.importorskip("transformers")
    trained.save(tmp_path / "tokenizer.json")
    trained.save(tmp_path / "folder")
    trained.save(tmp_path / "pair" / "vocab.json")
    peers = [
        transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json")),
        transformers.GPT2Tokenizer.from_pretrained(tmp_path / "pair"),
        transformers.AutoTokenizer.from_pretrained(tmp_path / "folder"),
    ]
    texts = [text for text in texts_of(corpus_slice) if text]
    wanted = [trained.encode(text, allowed_special="all") for text in texts]
    for theirs in peers:
        assert theirs(texts)["input_ids"] == wanted
        assert theirs.decode(wanted[0], clean_up_tokenization_spaces=False) == texts[0]


def test_tiktoken_reads_what_we_write(
    trained: Tokenizer,
    small: Tokenizer,
    tmp_path: Path,
    corpus_slice: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # otherwise it caches what it has read from a path
    texts = texts_of(corpus_slice)
    for tokenizer in (trained, small):
        tokenizer.save(tmp_path / "ranks.tiktoken")
        theirs = tiktoken_of(tmp_path / "ranks.tiktoken")
        assert [theirs.encode_ordinary(text) for text in texts] == [tokenizer.encode(text) for text in texts]


LETTERS = "abc aé1'\n東😀="
PATTERNS = [
    "gpt2",
    r"\s?\S+|\s+",
    r"[a-z]+|[^a-z]+",
    r"[^\r\n]{1,4}|[\r\n]+",
    r"\p{N}{1,3}+| ?[^\s\p{N}]++|\s+(?!\S)|\s+",
]


def train(texts: list[str], size: int, pattern: str, specials: list[str]) -> Tokenizer:
    names = [name for name in specials if is_accepted(functools.partial(check_names, [name], pattern))]
    return Tokenizer.train(texts, vocab_size=256 + size + len(names), pattern=pattern, special_tokens=names)


trained = st.builds(
    train,
    st.lists(st.text(LETTERS, max_size=40), max_size=8),
    st.integers(0, 60),
    st.sampled_from(PATTERNS),
    st.lists(st.text(LETTERS + "<|>[]Ġ\u0122", min_size=1, max_size=6), unique=True, max_size=3)
    | st.just(["<|endoftext|>", "[é 東]"]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tokenizer=trained, texts=st.lists(st.text(LETTERS + "<|>[]x", max_size=60), max_size=5))
def test_every_format_restores_the_tokenizer_or_says_why_not(
    tmp_path: Path, tokenizer: Tokenizer, texts: list[str]
) -> None:
    texts += ["".join(tokenizer.special_tokens), *(f"a{name} b" for name in tokenizer.special_tokens)]
    wanted = [tokenizer.encode(text, allowed_special="all") for text in texts]

    ranks = tmp_path / "ranks.tiktoken"
    tokenizer.save(ranks)
    assert same(Tokenizer.load(ranks, tokenizer.pattern, tokenizer.special_tokens), tokenizer, texts, wanted)

    for name in ("tokenizer.json", "folder", "pair/vocab.json"):
        if why_not := refusal(tokenizer, tmp_path / name):
            assert any(reason in why_not for reason in ("also a token of text", "the pattern and", "a special token"))
            assert tokenizer.special_tokens or tokenizer.pattern != "gpt2"
            continue
        assert same(Tokenizer.load(tmp_path / name), tokenizer, texts, wanted)
        if name == "tokenizer.json":
            theirs = tokenizers.Tokenizer.from_file(str(tmp_path / name))
            assert [theirs.encode(text).ids for text in texts] == wanted


def refusal(tokenizer: Tokenizer, path: Path) -> str:
    """Save; return the error message if that fails."""
    try:
        tokenizer.save(path)
    except InputError as error:
        return str(error)
    return ""


def same(again: Tokenizer, tokenizer: Tokenizer, texts: list[str], wanted: list[list[int]]) -> bool:
    return (
        again.hash == tokenizer.hash
        and again.special_tokens == tokenizer.special_tokens
        and [again.encode(text, allowed_special="all") for text in texts] == wanted
    )


@pytest.mark.parametrize("text", [*SAMPLES, *UGLY])
def test_special_tokens_are_found_as_hugging_face_finds_them(tmp_path: Path, text: str) -> None:
    """The longest of those that begin at the leftmost position."""
    names = ["<|endoftext|>", "dog ", "dog sees", "sees the", " ", "\n\n"]
    tokenizer = Tokenizer.train(SAMPLES, vocab_size=262, special_tokens=names)
    tokenizer.save(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode(text).ids == tokenizer.encode(text, allowed_special="all")
