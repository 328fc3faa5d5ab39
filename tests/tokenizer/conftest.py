"""Fixtures: real data and our own in the same form, its vocabulary here and in peers, its texts, and a small tokenizer."""

from __future__ import annotations

import hashlib
import itertools
import lzma
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import tiktoken
import tokenizers
from tokenizers import models, pre_tokenizers

from webtext.tokenizer import Tokenizer, _bpe
from webtext.tokenizer.formats.ranks import PUBLISHED

from .peers import GPT2_RULE, pairs_vocabulary

# These read part sets. The environments in which a wheel is tested have the core packages only.
collect_ignore = [] if find_spec("pyarrow") else ["test_corpus.py", "test_measures.py"]

SLICE_CHARACTERS = 2_000_000
CORPORA = ("en", "multi", "code")


def tiktoken_of(path: Path) -> tiktoken.Encoding:
    """Return tiktoken's encoding of a rank file with GPT-2's pattern, without downloading anything."""
    from tiktoken.load import load_tiktoken_bpe

    ranks, specials = load_tiktoken_bpe(str(path)), {"<|endoftext|>": 50256}
    return tiktoken.Encoding(path.name, pat_str=GPT2_RULE.tiktoken, mergeable_ranks=ranks, special_tokens=specials)


def native_pieces(
    text: str | bytes, pattern: str = "gpt2", version: str = "16.0.0", simd: str | None = None
) -> list[bytes]:
    """Return the pieces that the native scanner of a named pattern cuts a text into."""
    data = text.encode() if isinstance(text, str) else text
    return [data[a:b] for a, b in itertools.pairwise([0, *_bpe.piece_ends(data, pattern, version, simd).tolist()])]


_WORDS = {
    "en": "the of and to Hello world big dog quick brown fox jumps lazy she's we've don't café ably un believ ing 1234 12",
    "multi": "Ёжик тумане предложение ελληνικά 東京都 行く 時間 한국어 문장 שלום עולם हिन्दी भाषा مرحبا Straße naïve 👩‍💻 ３４",
    "code": 'def return self for in range(10) print(f(x)) x**2 == != -> {} [0] "name" # /* */ n_bytes 0x1F ++i; </a>',
}
_BETWEEN = {
    "en": [", ", ". ", "\n", "\n\n", "", "  ", "…\u2003"],
    "multi": ["。", "، ", "\n", "\u3000", "", "\r\n", "\n\n"],
    "code": ["\n", "\n    ", "\n" + " " * 8, "\t", "(", ".", " " * 33 + "# " + "=" * 20 + "\n"],
}


def made_text(name: str) -> str:
    """Return about 50,000 characters, equal in every run: some of its words are frequent, and most are seldom."""
    chance = random.Random(name)
    faces = [" " + chr(code) for code in range(0x1F601, 0x1F640)]  # without 😀, which stays two tokens, as in GPT-2
    made = ["".join(chance.sample(_WORDS[name].replace(" ", ""), chance.randint(2, 9))) for _ in range(600)]
    words = [*_WORDS[name].split(), *made]
    picked = chance.choices(words, [1 / (rank + 3) for rank in range(len(words))], k=7_000)
    between = [chance.choice([" "] * 12 + _BETWEEN[name] + chance.sample(faces, 1)) for _ in picked]
    return "".join(itertools.chain(*zip(picked, between, strict=True)))


@pytest.fixture(scope="session")
def own_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder like that of real data: made texts, and a vocabulary learned from them, in files that count as published."""
    folder = tmp_path_factory.mktemp("data") / "own"
    (folder / "corpora").mkdir(parents=True)
    texts = {name: made_text(name) for name in CORPORA}
    for name, text in texts.items():
        (folder / "corpora" / f"{name}.txt.xz").write_bytes(lzma.compress(text.encode(), preset=0))
    learned = Tokenizer.train([texts["en"], texts["code"], texts["multi"][:4_000]], vocab_size=1_000)
    learned.save(folder / "gpt2" / "encoder.json")
    ranks = folder / "gpt2" / "r50k_base.tiktoken"
    learned.save(ranks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PUBLISHED, hashlib.sha256(ranks.read_bytes()).hexdigest(), ("gpt2", learned.special_tokens))
        yield folder


@pytest.fixture(scope="session", params=["own", "real"])
def data(request: pytest.FixtureRequest) -> Path:
    """Our own data, and the real data; the tests of the latter skip without it."""
    folder: Path = request.getfixturevalue("own_data" if request.param == "own" else "shared_data")
    return folder


real_is_slow = pytest.mark.parametrize("data", ["own", pytest.param("real", marks=pytest.mark.slow)], indirect=True)


@pytest.fixture(scope="session")
def gpt2(shared_data: Path) -> Tokenizer:
    return Tokenizer.load(shared_data / "gpt2")


@pytest.fixture(scope="session")
def trained(data: Path) -> Tokenizer:
    """Our own vocabulary, and GPT-2's."""
    return Tokenizer.load(data / "gpt2")


def published(data: Path, pattern: str) -> Tokenizer:
    """Return the vocabulary of OpenAI's rank file with that pattern, which its hash implies, or our own with that pattern."""
    if data.name == "own":
        return Tokenizer(replace(Tokenizer.load(data / "gpt2")._vocabulary, pattern=pattern))
    return Tokenizer.load(data / "gpt2" / f"{pattern.replace('gpt2', 'r50k')}_base.tiktoken")


@pytest.fixture(scope="session")
def wide(data: Path) -> Tokenizer:
    """A rank file with ids above 65,535: all pairs of bytes, or OpenAI's cl100k_base."""
    if data.name != "own":
        return published(data, "cl100k")
    Tokenizer(pairs_vocabulary(reverse=False)).save(data / "pairs.tiktoken")
    return Tokenizer.load(data / "pairs.tiktoken", "gpt2")


@pytest.fixture(scope="session")
def tiktoken_trained(data: Path) -> tiktoken.Encoding:
    return tiktoken_of(data / "gpt2" / "r50k_base.tiktoken")


@pytest.fixture(scope="session")
def hf_trained(data: Path) -> tokenizers.Tokenizer:
    """HF tokenizers with the files of GPT-2, or ours."""
    folder = data / "gpt2"
    found = tokenizers.Tokenizer(models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe")))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return found


@pytest.fixture(scope="session")
def corpus_slice(data: Path) -> Callable[[str], str]:
    """Return a function that reads the first two million characters of a named corpus."""
    cache: dict[str, str] = {}

    def read(name: str) -> str:
        if name not in cache:
            with lzma.open(data / "corpora" / f"{name}.txt.xz", "rt", encoding="utf-8", newline="") as file:
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
