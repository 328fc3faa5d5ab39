"""A piece of any length has the tokens of merging it at once."""

from __future__ import annotations

import ast
import functools
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.tokenizer import Tokenizer, _bpe, reference
from webtext.tokenizer.vocabulary import Vocabulary

LETTERS = "ab"


def trained(seed: int, vocab_size: int = 290) -> Tokenizer:
    """Return a tokenizer trained on words of two letters: many merges overlap, and tokens get long."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(LETTERS, k=rng.randint(1, 12))) for _ in range(60)]
    return Tokenizer.train([" ".join(words)] * 2, vocab_size=vocab_size, special_tokens=[])


def ranked(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer with the same tokens, merged by rank like a rank file."""
    return Tokenizer(Vocabulary(tokens=tokenizer._vocabulary.tokens, merges=None, whole_pieces=True))


@pytest.mark.slow
@settings(max_examples=8)
@given(st.integers(0, 30), st.text(LETTERS, min_size=60, max_size=110), st.integers(10, 12))
def test_windows_equal_merging_the_complete_piece(seed: int, text: str, times: int) -> None:
    """Windows are used for pieces of more than 1,024 bytes."""
    tokenizer = trained(seed)
    rng = random.Random(text)
    text = "".join("".join(rng.sample(text, len(text))) for _ in range(times))
    assert tokenizer.encode(text) == reference.encode(tokenizer._vocabulary, text)
    by_rank = ranked(tokenizer)
    assert by_rank.encode(text) == reference.encode(by_rank._vocabulary, text)


@settings(max_examples=5)
@given(st.integers(0, 10), st.text(LETTERS, min_size=3, max_size=9), st.integers(8, 180))
def test_windows_equal_it_for_repetitive_pieces(seed: int, text: str, times: int) -> None:
    tokenizer = trained(seed)
    assert tokenizer.encode(text * times) == reference.encode(tokenizer._vocabulary, text * times)


def test_tokens_longer_than_any_window_are_found() -> None:
    tokenizer = Tokenizer.train(["a" * 8192] * 2, vocab_size=256 + 13, special_tokens=[])
    assert max(map(len, tokenizer._vocabulary.tokens)) == 8192
    for n_bytes in (63, 64, 65, 4095, 4097, 8191, 8192, 20_000):
        ids = tokenizer.encode("a" * n_bytes)
        assert ids == sorted(ids, reverse=True)
        assert len(ids) == sum(map(int, bin(n_bytes % 8192)[2:])) + n_bytes // 8192
        assert tokenizer.decode(ids) == "a" * n_bytes


@settings(max_examples=3)
@given(st.permutations(range(12)), st.text(LETTERS, min_size=130, max_size=150))
def test_merges_in_an_untrained_order_are_applied_exactly(order: list[int], text: str) -> None:
    base = trained(1, 268)
    merges = [list(base._vocabulary.merges or [])[place] for place in order]
    odd = Tokenizer(Vocabulary(tokens=base._vocabulary.tokens, merges=merges))
    assert odd.encode(text * 8) == reference.encode(odd._vocabulary, text * 8)


def test_a_rank_vocabulary_uses_windows_and_has_the_same_ids() -> None:
    tokenizer = trained(3)
    text = "".join(random.Random(3).choices(LETTERS, k=20_000))
    assert ranked(tokenizer).encode(text) == tokenizer.encode(text)


def test_without_vector_instructions_the_ids_are_the_same() -> None:
    """With ids of 16 and of 32 bits."""
    program = (
        "import random; from webtext.tokenizer import Tokenizer, Vocabulary;"
        "t = Tokenizer.train(['ab ba abab aabb bbaa ' * 9], vocab_size=270, special_tokens=[])._vocabulary;"
        "w = Vocabulary(tokens=[*t.tokens[:256], *[b''] * 65536, *t.tokens[256:]], merges=None);"
        "texts = [''.join(random.Random(n).choices('ab', k=n)) for n in (5, 8, 9, 16, 17, 40, 64, 65, 300, 5000)];"
        "print([[Tokenizer(v).encode(text) for text in texts] for v in (t, w)])"
    )
    run = functools.partial(subprocess.run, [sys.executable, "-c", program], capture_output=True, check=True, text=True)
    seen = {run(env=os.environ | {"WEBTEXT_SIMD": level}).stdout for level in _bpe.SIMD_LEVELS}
    assert len(seen) == 1
    narrow, wide = ast.literal_eval(seen.pop())
    assert max(map(max, narrow)) < 270 < 65_536 < max(map(max, wide))


def test_merges_that_each_create_a_pair_of_lower_rank_take_linear_memory() -> None:
    """By rank and by a list: 'abc' comes before 'ab'. Every 'ab' is followed by its 'abc', and then by the next 'ab'."""
    code = """
import resource
from webtext.tokenizer import Tokenizer, Vocabulary
tokens = [bytes([byte]) for byte in range(256)] + [b"abc", b"ab"]
resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, -1))
for merges in (None, [(257, 99), (97, 98)]):
    assert Tokenizer(Vocabulary(tokens=tokens, merges=merges)).encode("abc" * 8_000) == [256] * 8_000
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_lack_of_memory_in_a_piece_spoils_no_later_call() -> None:
    """The first call gets 34 to 49 MB, so it fails at one allocation after another. The second call gets a gigabyte."""
    code = """
import contextlib, resource
from webtext.tokenizer import Tokenizer, Vocabulary
tokens = [bytes([byte]) for byte in range(256)] + [b"ab", b"bc", b"abc"]
vocabulary = Vocabulary(tokens=tokens, merges=[(97, 98), (98, 99), (256, 99), (97, 257)])
for megabytes in range(34, 50):
    tokenizer = Tokenizer(vocabulary)
    used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (used + (megabytes << 20), -1))
    with contextlib.suppress(MemoryError):
        tokenizer.count("abcab" * (1 << 16))
    resource.setrlimit(resource.RLIMIT_DATA, (used + (1 << 30), -1))
    assert tokenizer.count("abcab" * (1 << 16)) == 1 << 17
"""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # large allocations don't reuse freed memory
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
