"""Counts of pieces are exact, however texts are cut, divided among threads, spilled and merged."""

from __future__ import annotations

import collections
import io
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError, InputError, MachineError
from webtext.tokenizer import _trainer
from webtext.tokenizer.patterns.named import cut
from webtext.tokenizer.text import Text, bytes_of_piece, readable
from webtext.tokenizer.train.counts import PieceCounts, whole_weights
from webtext.tokenizer.train.training import train_vocabulary

from .conftest import CORPORA

TINY = 200_000  # bytes of memory for tables: a few thousand pieces
TEXTS: list[Text] = [
    "low lower lowest, don't 1234 été\n\n x",
    b"\xff\xfe bytes that are not text \x80\xe4\xb8",
    "a lone \ud800 surrogate, a pair \ud83d\ude00",
    "",
    " " * 300 + "x" * 300 + "!" * 300,
    "\0 a\0 a\0\0 a",  # pieces that differ in the zeros at their end
]


def reference(texts: Iterable[Text]) -> dict[bytes, int]:
    return collections.Counter(bytes_of_piece(piece) for text in texts for piece in cut("gpt2", readable(text)))


def counted(texts: Iterable[Text], **options: int) -> PieceCounts:
    counts = PieceCounts(**options)  # type: ignore[arg-type]
    counts.add(texts)
    return counts


@pytest.fixture(scope="module")
def words() -> list[str]:
    """Return texts with many distinct pieces of all lengths, so that tables grow and spill."""
    random_ = random.Random(0)
    letters = "abcdefghéж中" * 3
    return [
        " ".join("".join(random_.choices(letters, k=random_.choice([1, 2, 3, 5, 8, 9, 13]))) for _ in range(400))
        for _ in range(60)
    ]


def test_every_kind_of_text_is_counted_as_the_reference_counts_it() -> None:
    assert dict(counted(TEXTS).items()) == reference(TEXTS)


@given(st.lists(st.one_of(st.text(max_size=60), st.binary(max_size=60)), max_size=8), st.integers(1, 3))
def test_counts_equal_the_reference(texts: list[str | bytes], threads: int) -> None:
    assert dict(counted(texts, threads=threads).items()) == reference(texts)


@pytest.mark.parametrize("length", [*range(1, 34), 255, 256, 70_000])
def test_pieces_of_every_length_are_distinguished(length: int) -> None:
    """Up to 23 bytes are stored in the table itself; the last 23 bytes of a text take another path."""
    pieces = [b"a" * length, b"a" * (length - 1) + b"b", b"b" + b"a" * (length - 1)]
    text = b" ".join(pieces * 2)
    assert dict(counted([text]).items()) == reference([text])


@pytest.mark.parametrize("name", CORPORA)
def test_real_text_is_counted_right(corpus_slice: Callable[[str], str], name: str) -> None:
    text = corpus_slice(name)[:60_000]
    assert dict(counted([text], threads=2).items()) == reference([text])


def test_any_number_of_threads_counts_the_same(words: list[str]) -> None:
    """Sixty short texts, and one of several megabytes, which is divided among threads."""
    for texts in (words, [" ".join(words * 9)]):
        expected = sorted(counted(texts, threads=1).items())
        for threads in (2, 3):
            assert sorted(counted(texts, threads=threads).items()) == expected


@pytest.mark.parametrize("threads", [1, 3])
def test_spilling_changes_no_count_and_no_merge(words: list[str], threads: int) -> None:
    expected = counted(words, threads=1)
    spilled = counted(words, threads=threads, max_memory=TINY)
    assert dict(spilled.items()) == dict(expected.items()) == reference(words)
    assert len(spilled) == len(expected) > 10_000
    merges = [train_vocabulary(counts, vocab_size=1000).merges for counts in (spilled, expected)]
    assert merges[0] == merges[1] == train_vocabulary(words, vocab_size=1000).merges


def test_counting_continues_after_the_counts_were_read(words: list[str]) -> None:
    counts = PieceCounts(max_memory=TINY)
    for part in (words[:20], words[20:40], words[40:]):
        counts.add(part)
        len(counts)
    assert dict(counts.items()) == reference(words)


def test_memory_is_bounded_by_the_setting() -> None:
    """Half a million distinct pieces need 50 MB of tables, and 80 MB to merge them; with a limit of 8 MB, 30 MB suffice."""
    code = """
from webtext.tokenizer.train.counts import PieceCounts
from webtext.tokenizer.train.training import train_vocabulary
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
def texts():
    letters = bytes.maketrans(b"0123456789abcdef", b"eeetttaaooinshrd")
    for start in range(0, 500_000, 10000):
        words = [b"%x" % (number * 2654435761 % 2**40) for number in range(start, start + 10000)]
        yield b" ".join(words).translate(letters)
counts = PieceCounts(max_memory=8 << 20, threads=1)
counts.add([b"warm"])
train_vocabulary(counts, vocab_size=260)
before = peak()
counts.add(texts())
n = len(counts)
print(n, (peak() - before) // 1000)
train_vocabulary(counts, vocab_size=259)
print((peak() - before) // 1000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    n_pieces, counting, merging = map(int, done.stdout.split())
    assert n_pieces > 450_000
    assert max(counting, merging) < 30


@given(st.lists(st.sampled_from([b"word", b" ", b"\n", b"!", b"\xff", b"\xe4\xb8\xad", b"12", b"'s"]), max_size=40))
def test_a_stream_of_blocks_is_one_text(pieces: list[bytes]) -> None:
    """Blocks can end anywhere: in a character, a piece or a run of blanks."""
    text = b"".join(pieces)
    native = _trainer.PieceCounts()
    rest = bytearray()
    for start in range(0, len(text), 3):
        rest += text[start : start + 3]
        n_done = native.add_block(rest, False)
        rest = rest[n_done:]
    native.add_block(rest, True)
    assert dict(native.items()) == reference([text])


@pytest.mark.parametrize("unit", ["line {}、行{}。\n\n  \n next\xa0\nword ", "!", "a", "中。", "\n", "!? "])
def test_a_file_of_megabytes_is_one_text(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if more than a block has no position to cut at."""
    monkeypatch.setattr("webtext.tokenizer.train.counts._BLOCK_BYTES", 1 << 12)
    text = "".join(unit.format(number, number) for number in range(9_000)).encode()
    counts = PieceCounts(threads=2)
    counts.add_stream(io.BytesIO(text))
    assert dict(counts.items()) == reference([text])


def test_a_value_of_another_type_is_an_error() -> None:
    counts = PieceCounts()
    counts.add([bytearray(b"ab")])  # type: ignore[list-item]
    with pytest.raises(InputError, match="text 1 is None\nexpected str or bytes"):
        counts.add(["ab", None])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="texts is one string"):
        counts.add("ab")


def test_another_pattern_is_counted_by_the_regex_module() -> None:
    counts = PieceCounts(r"\w+|\s+")
    counts.add(["ab cd!", b"ab"], weight=2)
    counts.add_stream(io.BytesIO(b"cd"))
    assert dict(counts.items()) == {b"ab": 4, b" ": 2, b"cd": 3, b"!": 2}


def test_a_fork_may_continue_counting(words: list[str]) -> None:
    counts = counted(words[:30], max_memory=TINY, threads=2)
    child = os.fork()
    if child == 0:
        counts.add(words[30:])
        os._exit(0 if dict(counts.items()) == reference(words) else 1)
    counts.add(words[30:50])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert dict(counts.items()) == reference(words[:50])


# Weights.


def test_weights_are_exact() -> None:
    """Weights of 2.5 and 1/3 become 15 and 2, over their common denominator of 6."""
    weights, scale = whole_weights([Fraction("2.5"), Fraction(1, 3)])
    assert (weights, scale) == ([15, 2], 6)
    counts = PieceCounts()
    for text, weight in zip(["ab ab", "cd"], weights, strict=True):
        counts.add([text], weight)
    assert dict(counts.items()) == {b"ab": 15, b" ab": 15, b"cd": 2}


def test_a_weighted_text_counts_like_repetitions(words: list[str]) -> None:
    weighted = PieceCounts(threads=2, max_memory=TINY)
    weighted.add(words[:9], 3)
    weighted.add(words[9:20])
    assert dict(weighted.items()) == reference(words[:9] * 3 + words[9:20])


@pytest.mark.parametrize("add", ["texts", "stream"])
def test_counts_above_63_bits_are_an_error_and_never_wrong(add: str) -> None:
    """Four bytes of text, 2^61 times: one more than 63 bits can represent."""
    counts = PieceCounts()
    with pytest.raises(ConfigError, match="exceed 63 bits"):  # noqa: PT012
        if add == "texts":
            counts.add(["abcd"], 1 << 61)
        else:
            counts.add_stream(io.BytesIO(b"abcd"), 1 << 61)
        len(counts)


def test_bad_settings_are_errors() -> None:
    with pytest.raises(ConfigError, match="the counts are for the pattern 'gpt2'"):
        train_vocabulary(counted(["a"]), pattern=r"\w+")
    with pytest.raises(ConfigError, match="max_memory is 0"):
        PieceCounts(max_memory=0)
    with pytest.raises(ConfigError, match="threads is 0"):
        PieceCounts(threads=0)


@pytest.fixture
def spilled_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_spilled_files_have_no_name(words: list[str], spilled_to: Path) -> None:
    counts = PieceCounts(max_memory=TINY)
    counts.add(words)
    assert os.listdir(spilled_to) == []
    assert dict(counts.items()) == reference(words)


def test_a_folder_that_cannot_be_written_is_an_error(words: list[str], spilled_to: Path) -> None:
    spilled_to.rmdir()
    counts = PieceCounts(max_memory=TINY)
    with pytest.raises(MachineError, match="counts cannot be read or written: No such file"):
        counts.add(words)


def test_counts_are_exact_once_a_full_disk_has_room_again(words: list[str]) -> None:
    """Merging gets an eighth of the memory for the counts, so they are spilled."""
    counts, limits = counted(words, max_memory=4 << 20, threads=1), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(MachineError, match="counts cannot be read or written: File too large"):
            train_vocabulary(counts, vocab_size=300)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(counts.items()) == sorted(reference(words).items())
