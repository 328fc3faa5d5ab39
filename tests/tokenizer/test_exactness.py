"""Ids equal those of tiktoken 0.14 and HF tokenizers 0.23: every Unicode scalar, whole corpora, a million random texts.

Peers read only str, so bytes that aren't valid UTF-8 are compared with the readable rule (`patterns.cut`) instead.
"""

from __future__ import annotations

import lzma
import os
import pickle
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.tokenizer import Tokenizer, Vocabulary, _bpe
from webtext.tokenizer.patterns.named import cut
from webtext.tokenizer.text import bytes_of_piece, readable

from .conftest import CORPORA, native_pieces, published, real_is_slow
from .fuzz import random_bytes, random_texts, texts_at_batch_edges
from .peers import (
    GPT2_RULE,
    RULES,
    Rule,
    assert_ids_equal_hf,
    assert_ids_equal_tiktoken,
    hf_of,
    pairs_vocabulary,
    tiktoken_of,
)

SCALARS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
CONTEXTS = ("{}", "a{}b", " {}", "1{}1", "!{} ", "\n{}'s")
CONTRACTIONS = ("'{}", "a'{}e", "'l{}", "A{}'d")  # some patterns ignore case, so they match more than ASCII
DOCUMENT_CHARACTERS = 4096

NAMES = [rule.name for rule in RULES]
every_rule = pytest.mark.parametrize("rule", RULES, ids=NAMES)
LATER = [pytest.param(rule, marks=pytest.mark.slow) for rule in RULES[1:]]
gpt2_rule_first = pytest.mark.parametrize("rule", [GPT2_RULE, *LATER], ids=NAMES)
"""The other rules' tests are slow."""


@pytest.fixture(scope="module")
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    """GPT-2's vocabulary, our own, or all bytes and pairs of bytes."""
    folders = {"gpt2": "shared_data", "own": "own_data"}
    if request.param in folders:
        found: Vocabulary = Tokenizer.load(request.getfixturevalue(folders[request.param]) / "gpt2")._vocabulary
        return found
    return pairs_vocabulary(reverse=request.param == "pairs_reversed")


def ours(vocabulary: Vocabulary, rule: Rule) -> Tokenizer:
    return Tokenizer(replace(vocabulary, pattern=rule.name))


# Every character


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["gpt2", "pairs"], indirect=True)
def test_every_unicode_scalar_in_six_contexts_equals_tiktoken_with_gpt2_rule(vocabulary: Vocabulary) -> None:
    tokenizer, peer = ours(vocabulary, GPT2_RULE), tiktoken_of(vocabulary, GPT2_RULE)
    for context in CONTEXTS:
        assert_ids_equal_tiktoken(tokenizer, peer, [context.format(scalar) for scalar in SCALARS])


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 50])
@every_rule
def test_every_unicode_scalar_in_a_row_has_the_class_that_tiktoken_and_hf_tokenizers_give_it(
    rule: Rule, every: int
) -> None:
    """A wrong class would split or join a run. The quick test reads every fiftieth scalar."""
    vocabulary, text = pairs_vocabulary(reverse=False), "".join(SCALARS[::every])
    rows = [text[start : start + 4096] for start in range(0, len(text), 4096)]
    assert_ids_equal_tiktoken(ours(vocabulary, rule), tiktoken_of(vocabulary, rule), rows)
    by_hf = hf_of(vocabulary, rule).pre_tokenizer.pre_tokenize_str(text)
    assert native_pieces(text, rule.name) == [text[start:end].encode() for _, (start, end) in by_hf]


@pytest.mark.slow
@every_rule
def test_scalars_that_a_rule_could_tell_apart_in_all_contexts_equal_tiktoken_and_hf_tokenizers(rule: Rule) -> None:
    """The first 4,096 scalars, and the first and last of every later run of one general category.

    HF tokenizers would take a minute for all; the test above shows that the others don't have other classes.
    """
    vocabulary = pairs_vocabulary(reverse=False)
    category = list(map(unicodedata.category, SCALARS))
    borders = [place for place in range(4096, len(SCALARS)) if category[place - 1] != category[place]]
    chosen = [SCALARS[place] for place in [*range(4096), *(p - 1 for p in borders), *borders]]
    texts = [context.format(scalar) for context in (*CONTEXTS, *CONTRACTIONS) for scalar in chosen]
    assert_ids_equal_tiktoken(ours(vocabulary, rule), tiktoken_of(vocabulary, rule), texts)
    assert_ids_equal_hf(ours(vocabulary, rule), hf_of(vocabulary, rule), texts)


# Random texts


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["gpt2", "pairs", "pairs_reversed"], indirect=True)
def test_a_million_random_texts_equal_tiktoken_with_gpt2_rule(vocabulary: Vocabulary) -> None:
    """A million with GPT-2's vocabulary, and 100,000 of them with each vocabulary that shows the cuts."""
    tokenizer, peer = ours(vocabulary, GPT2_RULE), tiktoken_of(vocabulary, GPT2_RULE)
    is_gpt2 = len(vocabulary.tokens) < 65_536
    for seed in range(10 if is_gpt2 else 1):
        assert_ids_equal_tiktoken(tokenizer, peer, random_texts(100_000, seed))


@pytest.mark.slow
@every_rule
def test_many_random_texts_equal_tiktoken_with_every_rule(rule: Rule) -> None:
    """Half of the texts with each order of the pairs."""
    for reverse in (False, True):
        vocabulary = pairs_vocabulary(reverse=reverse)
        texts = random_texts(25_000, seed=20 + reverse)
        assert_ids_equal_tiktoken(ours(vocabulary, rule), tiktoken_of(vocabulary, rule), texts)


@every_rule
@pytest.mark.parametrize("vocabulary", [pytest.param("gpt2", marks=pytest.mark.slow), "own", "pairs"], indirect=True)
def test_random_texts_equal_hf_tokenizers(vocabulary: Vocabulary, rule: Rule) -> None:
    assert_ids_equal_hf(ours(vocabulary, rule), hf_of(vocabulary, rule), random_texts(600, seed=100))


@gpt2_rule_first
@pytest.mark.parametrize("vocabulary", ["gpt2", "pairs", "pairs_reversed"], indirect=True)
def test_runs_that_end_at_the_edge_of_a_batch_equal_tiktoken(vocabulary: Vocabulary, rule: Rule) -> None:
    """Native code reads 16 or 64 bytes at a time."""
    assert_ids_equal_tiktoken(ours(vocabulary, rule), tiktoken_of(vocabulary, rule), texts_at_batch_edges())


@every_rule
def test_invalid_utf8_is_cut_as_the_regular_expression_says(trained: Tokenizer, rule: Rule) -> None:
    """An invalid byte is one character, neither letter nor number nor blank; the ids equal the ids of the pieces."""
    native = ours(trained._vocabulary, rule)._native
    for data in random_bytes(800 if rule is GPT2_RULE else 300, seed=1):
        pieces = [bytes_of_piece(piece) for piece in cut(rule.name, readable(data))]
        assert native_pieces(data, rule.name) == pieces
        assert native.encode(data) == native.encode_pieces(data, list(accumulate(map(len, pieces))))


# Real text


@real_is_slow
@pytest.mark.parametrize("name", CORPORA)
def test_whole_corpora_equal_tiktoken(trained: Tokenizer, data: Path, name: str) -> None:
    texts = documents(lzma.decompress((data / "corpora" / f"{name}.txt.xz").read_bytes()).decode())
    assert_ids_equal_tiktoken(trained, tiktoken_of(trained._vocabulary, GPT2_RULE), texts)


@pytest.mark.parametrize("rule", [RULES[1], pytest.param(RULES[2], marks=pytest.mark.slow)], ids=["cl100k", "o200k"])
def test_slices_of_corpora_equal_tiktoken_with_published_ranks(
    data: Path, corpus_slice: Callable[[str], str], rule: Rule
) -> None:
    """Of the published files, only the path is given: their patterns are known."""
    tokenizer = published(data, rule.name)
    peer = tiktoken_of(tokenizer._vocabulary, rule)
    assert tokenizer.pattern == rule.name
    for name in CORPORA:
        assert_ids_equal_tiktoken(tokenizer, peer, documents(corpus_slice(name)[:200_000]))


@given(
    tokens=st.lists(st.text("ab", min_size=2, max_size=6).map(str.encode), unique=True, max_size=24),
    n_before=st.integers(0, 24),
    texts=st.lists(st.text("ab", max_size=70), max_size=8),
)
def test_any_order_of_ranks_gives_tiktokens_ids(tokens: list[bytes], n_before: int, texts: list[str]) -> None:
    """Tokens that are merged via larger ids or never, also before the bytes: only real merges have a rule."""
    single = [bytes([byte]) for byte in range(256)]
    ranks = Vocabulary(tokens=[*tokens[:n_before], *single, *tokens[n_before:]], merges=None, whole_pieces=True)
    peer = tiktoken_of(ranks, GPT2_RULE)
    assert_ids_equal_tiktoken(Tokenizer(ranks), peer, [*texts, "".join(texts) * 3])


def documents(text: str) -> list[str]:
    return [text[start : start + DOCUMENT_CHARACTERS] for start in range(0, len(text), DOCUMENT_CHARACTERS)]


# Ugly inputs


@every_rule
def test_lone_surrogates_empty_texts_and_nul_equal_tiktoken(trained: Tokenizer, rule: Rule) -> None:
    tokenizer, peer = ours(trained._vocabulary, rule), tiktoken_of(trained._vocabulary, rule)
    for text in (
        "",
        "\0",
        "a\0b\0\0 \0",
        "\ud83d",
        "a\udc00b",
        "\ud83d\ude00",
        "\udc00\ud800 \ud83dx",
        "'\udfffs \ud800",
    ):
        assert tokenizer.encode(text) == tokenizer.encode_batch([text])[0] == peer.encode_ordinary(text), repr(text)


READ_AT_THE_END_OF_A_PAGE = """
import ctypes, itertools, mmap, sys
import numpy as np
from webtext.tokenizer import Tokenizer

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
page = mmap.PAGESIZE
start = libc.mmap(None, 3 * page, 3, 0x22, -1, 0)  # read and write, private and anonymous
assert libc.mprotect(start, page, 0) == libc.mprotect(start + 2 * page, page, 0) == 0
middle = np.frombuffer((ctypes.c_char * page).from_address(start + page), np.uint8)
tokenizer = Tokenizer.load(sys.argv[1])
texts = ["a", " ", "1", "!", "\\n", "é", "中", "😀", "'", "a'", "the dog ", "a'll", "  x", "0 \\r\\n"]
for text in texts:
    for n in [*range(1, 35), *range(60, 70), 127, 128, 129, 255, 256, 257]:
        data = (text * n).encode()[:n]  # the last character may be cut short
        for view in (middle[page - n :], middle[:n]):
            view[:] = np.frombuffer(data, np.uint8)
            assert tokenizer.encode_buffer(view, [0, n])[0].tolist() == tokenizer.encode(data)
"""


def test_nothing_outside_a_text_is_read(data: Path) -> None:
    """Texts next to an unreadable page: reading one byte too many kills the process."""
    done = subprocess.run(
        [sys.executable, "-c", READ_AT_THE_END_OF_A_PAGE, str(data / "gpt2")], capture_output=True, text=True
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


DIGEST_OF_IDS = """
import dataclasses, hashlib, sys, pickle
from webtext.tokenizer import Tokenizer, _bpe

texts = pickle.load(sys.stdin.buffer)
narrow = Tokenizer.load(sys.argv[1])
tokens, offsets = narrow.encode_flat(texts, threads=1)
tokens_of_many = [*narrow._vocabulary.tokens, *[b""] * 65536]
wide = Tokenizer(dataclasses.replace(narrow._vocabulary, tokens=tokens_of_many))
assert (wide.encode_flat(texts, threads=1)[0] == tokens).all()
print(_bpe.SIMD_LEVELS[0], hashlib.sha256(tokens.tobytes() + offsets.tobytes()).hexdigest())
"""


def test_all_instruction_sets_give_equal_ids(data: Path) -> None:
    """With ids of 16 and of 32 bits. WEBTEXT_SIMD names the best allowed instruction set."""
    texts = pickle.dumps([*random_texts(5000, seed=3), *random_bytes(5000, seed=4), *texts_at_batch_edges()])
    outputs = [
        subprocess.run(
            [sys.executable, "-c", DIGEST_OF_IDS, str(data / "gpt2")],
            input=texts,
            capture_output=True,
            check=True,
            env=os.environ | {"WEBTEXT_SIMD": simd},
        ).stdout.decode()
        for simd in _bpe.SIMD_LEVELS
    ]
    best, digests = zip(*map(str.split, outputs), strict=True)
    assert best == _bpe.SIMD_LEVELS
    assert len(set(digests)) == 1, outputs
