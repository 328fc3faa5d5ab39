"""Counts of pieces are exact, however texts are cut, divided among threads, spilled, saved and merged."""

from __future__ import annotations

import collections
import io
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
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


def test_a_worked_example() -> None:
    assert dict(counted(["low lower", "low"]).items()) == {b"low": 2, b" lower": 1}


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
    assert counts.add_stream(io.BytesIO(text)) == len(text)
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


@pytest.mark.parametrize("add", ["texts", "stream", "file"])
def test_counts_above_63_bits_are_an_error_and_never_wrong(add: str, tmp_path: Path) -> None:
    """Four bytes of text, 2^61 times: one more than 63 bits can represent."""
    path = tmp_path / "one.counts"
    counted(["abcd"]).save(path)
    counts = PieceCounts()
    with pytest.raises(ConfigError, match="exceed 63 bits"):  # noqa: PT012
        if add == "texts":
            counts.add(["abcd"], 1 << 61)
        elif add == "stream":
            counts.add_stream(io.BytesIO(b"abcd"), 1 << 61)
        else:
            counts.add_file(path, 1 << 61)
        len(counts)


# Files.


def test_a_saved_file_gives_the_counts_again(words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "all.counts"
    counts = counted([*words, *TEXTS])
    counts.save(path)
    loaded = PieceCounts()
    loaded.add_file(path)
    assert dict(loaded.items()) == dict(counts.items()) == reference([*words, *TEXTS])
    loaded.save(tmp_path / "again.counts")
    assert (tmp_path / "again.counts").read_bytes() == path.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["again.counts", "all.counts"]


def test_the_same_counts_make_the_same_bytes(words: list[str], tmp_path: Path) -> None:
    for threads, memory in ((1, 1 << 30), (3, TINY)):
        counted(words, threads=threads, max_memory=memory).save(tmp_path / f"{threads}.counts")
    assert (tmp_path / "1.counts").read_bytes() == (tmp_path / "3.counts").read_bytes()


def test_the_format_is_what_its_description_says(tmp_path: Path) -> None:
    """`low` twice and `lower`: the bytes of "low", then the bytes that "lower" adds."""
    counts = PieceCounts()
    counts._native.add_pieces([b"low", b"lower"], [2, 300])
    counts.save(tmp_path / "x.counts")
    data = (tmp_path / "x.counts").read_bytes()
    body = b"webtext counts 1\n" + b"\4gpt2" + b"\x0616.0.0" + b"\0\3low\2" + b"\3\2er\xac\2" + b"\0\0"
    body += (2).to_bytes(8, "little") + (2 * 3 + 300 * 5).to_bytes(8, "little")
    checksum = 0xCBF29CE484222325
    for byte in body:
        checksum = (checksum ^ byte) * 0x100000001B3 % 2**64
    assert data == body + checksum.to_bytes(8, "little")


def test_merging_files_equals_counting_all_texts(words: list[str], tmp_path: Path) -> None:
    """More files than are merged at once, one of them twice, and texts."""
    merged = PieceCounts(max_memory=TINY)
    for index in range(70):
        counted(words[index % 50 : index % 50 + 1]).save(tmp_path / f"{index}.counts")
        merged.add_file(tmp_path / f"{index}.counts", 2 if index == 7 else 1)
    merged.add(words[50:])
    texts = [words[index % 50] for index in range(70)] + [words[7]] + words[50:]
    assert dict(merged.items()) == reference(texts)
    assert train_vocabulary(merged, vocab_size=600) == train_vocabulary(texts, vocab_size=600)


def test_an_empty_file_of_counts_is_valid(tmp_path: Path) -> None:
    PieceCounts().save(tmp_path / "none.counts")
    counts = PieceCounts()
    counts.add_file(tmp_path / "none.counts")
    assert (len(counts), list(counts.items())) == (0, [])


@pytest.fixture
def counts_file(tmp_path: Path) -> Path:
    path = tmp_path / "some.counts"
    counted(["low lower lowest " * 3, "x" * 300, "x" * 600]).save(path)
    return path


def read(path: Path) -> dict[bytes, int]:
    counts = PieceCounts()
    counts.add_file(path)
    return dict(counts.items())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_damaged_files_are_refused(counts_file: Path, data: st.DataObject) -> None:
    """A changed byte, missing bytes, additional bytes: the checksum or an earlier check detects any damage."""
    good = counts_file.read_bytes()
    place = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    bad = {
        "flip": good[:place] + bytes([good[place] ^ data.draw(st.integers(1, 255))]) + good[place + 1 :],
        "cut": good[:place],
        "insert": good[:place] + b"\x01" + good[place:],
    }[change]
    path = counts_file.with_name("bad.counts")
    path.write_bytes(bad)
    with pytest.raises((InputError, ConfigError)):
        read(path)


HEADER = b"webtext counts 1\n\x04gpt2\x0616.0.0"
HUGE = b"\xff" * 8 + b"\x7f"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\0" + HUGE + b"abc", "end is missing"),
        (b"\0\3low\1\0\3low\1", "out of order"),
        (b"\0\3low\1\0\1a\1", "out of order"),
        (b"\5\1a\1", "does not follow"),
        (b"\0\3low\1\3\0\1", "does not follow"),
        (b"\0\3low\0", "count out of range"),
        (b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "more than 63 bits"),
        (b"\0\0" + bytes(24), "checksum"),
        (b"\0\0" + b"\1" * 24, "totals that differ"),
        (b"", "end is missing"),
    ],
)
def test_hostile_files_are_refused_in_bounded_memory(tmp_path: Path, body: bytes, message: str) -> None:
    path = tmp_path / "hostile.counts"
    path.write_bytes(HEADER + body)
    with pytest.raises(InputError, match=f"'{path}' is damaged: .*{message}"):
        read(path)


@pytest.mark.parametrize("data", [b"", b"webtext", b"PK\3\4 something else altogether"])
def test_other_files_are_rejected(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.counts"
    path.write_bytes(data)
    with pytest.raises(InputError, match="is not a file of piece counts"):
        read(path)


def test_counts_of_another_pattern_or_unicode_version_are_refused(counts_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has counts for the pattern 'gpt2' and Unicode 16.0.0\nexpected"):
        PieceCounts(r"\w+").add_file(counts_file)
    other = tmp_path / "other.counts"
    other.write_bytes(counts_file.read_bytes().replace(b"16.0.0", b"15.0.0"))
    with pytest.raises(InputError, match="and Unicode 15"):
        PieceCounts().add_file(other)
    with pytest.raises(ConfigError, match="the counts are for the pattern 'gpt2'"):
        train_vocabulary(counted(["a"]), pattern=r"\w+")


def test_a_missing_file_and_bad_settings_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        PieceCounts().add_file(tmp_path / "nothing.counts")
    with pytest.raises(ConfigError, match="max_memory is 0"):
        PieceCounts(max_memory=0)
    with pytest.raises(ConfigError, match="threads is 0"):
        PieceCounts(threads=0)


def test_spilled_files_have_no_name(words: list[str], tmp_path: Path) -> None:
    counts = PieceCounts(max_memory=TINY, folder=tmp_path)
    counts.add(words)
    assert os.listdir(tmp_path) == []
    assert dict(counts.items()) == reference(words)


def test_a_folder_that_cannot_be_written_is_an_error(words: list[str], tmp_path: Path) -> None:
    counts = PieceCounts(max_memory=TINY, folder=tmp_path / "nowhere")
    with pytest.raises(MachineError, match="counts cannot be read or written: No such file"):
        counts.add(words)
