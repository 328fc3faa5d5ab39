"""Fixtures: GPT-2's real vocabulary here and in tiktoken, slices of real text, and small trained tokenizers."""

from __future__ import annotations

import itertools
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import tiktoken
import tokenizers
from tokenizers import models, pre_tokenizers

from webtext.tokenizer import Tokenizer, _bpe

from .peers import GPT2_RULE

SLICE_CHARACTERS = 2_000_000
CORPORA = ("en", "multi", "code")


def tiktoken_of(path: Path) -> tiktoken.Encoding:
    """Return tiktoken's encoding of a rank file with GPT-2's pattern, without downloading anything."""
    from tiktoken.load import load_tiktoken_bpe

    ranks, specials = load_tiktoken_bpe(str(path)), {"<|endoftext|>": 50256}
    return tiktoken.Encoding(path.name, pat_str=GPT2_RULE.tiktoken, mergeable_ranks=ranks, special_tokens=specials)


def native_pieces(text: str | bytes, pattern: str = "gpt2", version: str = "16.0.0") -> list[bytes]:
    """Return the pieces that the native scanner of a named pattern cuts a text into."""
    data = text.encode() if isinstance(text, str) else text
    return [data[a:b] for a, b in itertools.pairwise([0, *_bpe.piece_ends(data, pattern, version).tolist()])]


@pytest.fixture(scope="session")
def gpt2(shared_data: Path) -> Tokenizer:
    return Tokenizer.load(shared_data / "gpt2")


@pytest.fixture(scope="session")
def tiktoken_gpt2(shared_data: Path) -> tiktoken.Encoding:
    return tiktoken_of(shared_data / "gpt2" / "r50k_base.tiktoken")


@pytest.fixture(scope="session")
def hf_gpt2(shared_data: Path) -> tokenizers.Tokenizer:
    """HF tokenizers with GPT-2's published files."""
    folder = shared_data / "gpt2"
    found = tokenizers.Tokenizer(models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe")))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return found


@pytest.fixture(scope="session")
def corpus_slice(shared_data: Path) -> Callable[[str], str]:
    """Return a function that reads the first two million characters of a named corpus."""
    cache: dict[str, str] = {}

    def read(name: str) -> str:
        if name not in cache:
            with lzma.open(shared_data / "corpora" / f"{name}.txt.xz", "rt", encoding="utf-8", newline="") as file:
                cache[name] = file.read(SLICE_CHARACTERS)
        return cache[name]

    return read


@pytest.fixture(scope="session")
def small() -> Tokenizer:
    """A tokenizer with some merges over several scripts, for tests that don't need a real vocabulary."""
    return Tokenizer.train(SAMPLES * 3, vocab_size=400)


SAMPLES = [
    "The dog sees the other dog. The dog! The dog? She's got 1234 dogs, and they've 12 more.",
    "Straße, naïve café: déjà vu. Ёжик в тумане. 東京都に行く。 한국어 문장. שלום עולם",
    "def f(x):\n    return x**2\n\n\nprint(f(3))\t# 😀 👩‍💻\n" + "=" * 40,
]
