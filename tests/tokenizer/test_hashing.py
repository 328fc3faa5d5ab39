"""Hash tables are seeded: nobody can construct text that collides in them, and no result depends on the seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from webtext.tokenizer.train.counts import PieceCounts
from webtext.tokenizer.vocabulary import BYTE_ORDER, Vocabulary

FIXED = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
"""The keys that every process used before random ones; files still use them."""


def fixed_hash_of_23_bytes(words: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Compute the unseeded hash that was used for short pieces earlier: [n, 23] bytes to [n]."""
    padded = np.concatenate([words, np.full((len(words), 1), 23, np.uint8)], axis=1)
    first, second, third = np.ascontiguousarray(padded).view("<u8").T
    return mixed(first ^ third * np.uint64(0x9FB21C651E98DF25), second ^ third)


def mixed(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Compute (left ^ key) * (right ^ key) in 128 bits, with the halves folded."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    left, right = left ^ np.uint64(FIXED[0]), right ^ np.uint64(FIXED[1])
    a, b, c, d = left >> half, left & low, right >> half, right & low
    middle = (b * d >> half) + (a * d & low) + (b * c & low)
    high = a * c + (a * d >> half) + (b * c >> half) + (middle >> half)
    return high ^ left * right


def colliding_words(n: int) -> list[bytes]:
    """Return words of a blank and 22 letters that the old table put into a sixteenth of its slots."""
    random = np.random.default_rng(0)
    found: list[NDArray[np.uint8]] = []
    while sum(map(len, found)) < n:
        words = random.integers(ord("a"), ord("z") + 1, (1 << 18, 23), np.uint8)
        words[:, 0] = ord(" ")
        slots = fixed_hash_of_23_bytes(words) & np.uint64((1 << 20) - 1)
        found.append(words[slots < 1 << 16])
    return [word.tobytes() for word in np.concatenate(found)[:n]]


@pytest.mark.slow
@pytest.mark.usefixtures("linear_time")
def test_words_chosen_to_collide_are_counted_as_fast_as_others() -> None:
    """600,000 words for 2**16 of a table's 2**20 slots took 1.6 * 10**11 probes (minutes); now they take a second."""
    words = colliding_words(600_000)
    counts = PieceCounts(threads=1)
    counts.add([b"".join(words)])
    assert len(counts) == len(set(words))


@pytest.mark.usefixtures("linear_time")
def test_a_vocabulary_chosen_to_collide_is_read_as_fast_as_others() -> None:
    """A word equal to the second key made the old hash forget all bytes before it, so these tokens had one hash."""
    forget = FIXED[1].to_bytes(8, "little")
    chosen = [b"%08x" % number + forget for number in range(200_000)]
    tokens = [bytes([byte]) for byte in BYTE_ORDER] + chosen
    bpe = Vocabulary(tokens=tokens, merges=None).native()
    assert bpe.decode([256, len(tokens) - 1]) == chosen[0] + chosen[-1]


WORK = """
import hashlib, sys
from pathlib import Path
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.train.counts import PieceCounts

texts = [Path(name).read_text() for name in sys.argv[2:]]
folder = Path(sys.argv[1])
counts = PieceCounts(threads=2, max_memory=300_000)
counts.add(texts)
plain = Tokenizer.train(texts, vocab_size=600)
joined = Tokenizer.train(texts, vocab_size=500, threads=2)
plain.save(folder / "plain.json")
joined.save(folder / "joined.json")
again = Tokenizer.load(folder / "plain.json")
print(list(counts.items()), [t.encode_batch(texts) for t in (plain, joined, again)], again.hash)
print(plain._vocabulary.merges_by_rank())
for file in sorted(folder.iterdir()):
    print(file.name, hashlib.sha256(file.read_bytes()).hexdigest())
"""


def test_no_result_depends_on_the_seed(tmp_path: Path) -> None:
    """Three processes with different keys have equal counts, merges, ids and files."""
    sources = sorted(Path(__file__).parent.glob("test_f*.py"))
    results = set()
    for run in "abc":
        (tmp_path / run).mkdir()
        command = [sys.executable, "-c", WORK, str(tmp_path / run), *map(str, sources)]
        results.add(subprocess.run(command, capture_output=True, check=True).stdout)
    assert len(results) == 1
