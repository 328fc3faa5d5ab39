"""The native core equals its readable twin for every text, to the last bit, in linear time."""

from __future__ import annotations

import json
import lzma
import random
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.signals import n_sentences_of, signals_of, words_of

from webtext.base.parts.schemas import SIGNALS
from webtext.clean import _signals
from webtext.clean.rules import characters
from webtext.clean.rules.measure import signals_table
from webtext.clean.text.arrays import texts_of
from webtext.clean.text.unicode import UNICODE_VERSION

PIECES = (
    *("a", "b", "the", "of", "ab", "cd", "é", "😀", "漢", "ी", "१", "½", "K", "ﬁ", "x" * 40),
    *(" ", " ", " ", "\n", "\n", "\n\n", "\t", "\u3000", "\xa0", "\x85", "\u2028", "\x1c", "\0", " \n \n"),
    *(".", "...", "…", "!", "？", "。", "'", '"', "」", ")", "-", "•", "#", "{", "[", "]", "[1]", "[edit]", "[12"),
    *("[citation needed]", "javascript", "JavaScript", "lorem ipsum", "Lorem IPSUM", "privacy policy", "use cookies"),
    *("字", "か", "か\u3099", "ー", "々", "〇", "モデル", "ﾊ", "ﾞ", "𠀀", "𰀀", "日本語です。"),
    *("漢漢漢漢漢漢漢漢漢", "・", "『", "』", "၊"),
    *("ก", "กี่", "ำ", "เ", "ๆ", "๐", "ไทย ", "ລ", "ໜ", "ខ", "្ម", "។", "៕", "မြ", "က", "။", "\u200b", "\u200d"),
    *("\ufe0f", "\U000e0100", "\u0301", "\xad", "GPT-2", "2020", "Ａ", "㌔", "€", "「", "．"),
    *("terms of use", " a b c ", " one two three four five six.", "cookie policy", "uses cookies", "use of cookies"),
)


def native(*texts: str) -> list[dict[str, Any]]:
    described = {"id": [""] * len(texts), "language": ["en"] * len(texts), "language_score": [0.9] * len(texts)} | {
        "extractor_agreement": [None] * len(texts)
    }
    table = signals_table(pa.table({"text": pa.array(texts, pa.large_string())} | described))
    return table.drop_columns([*described, "failed"]).to_pylist()  # type: ignore[no-any-return]


def assert_twins(*texts: str) -> None:
    for text, values in zip(texts, native(*texts), strict=True):
        readable = signals_of(text)
        assert set(values) == set(readable)
        differing = {name: (readable[name], values[name]) for name in readable if readable[name] != values[name]}
        assert not differing, repr(text[:200])


@given(st.lists(st.text(st.characters(codec="utf-8")) | st.lists(st.sampled_from(PIECES)).map("".join), min_size=1))
def test_every_text_has_the_values_of_the_readable_twin(texts: list[str]) -> None:
    assert_twins(*texts)


@pytest.mark.parametrize("n_texts", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_texts_of_what_rules_look_for_have_the_same_values(n_texts: int) -> None:
    chance = random.Random(1)
    assert_twins(*("".join(chance.choices(PIECES, k=chance.randrange(80))) for _ in range(n_texts)))


@pytest.mark.parametrize("character", ["\0", "a", "-", " ", "\n", "😀", "。", "\u2028", "{", "[", "K"])
def test_texts_of_one_character_have_the_same_values(character: str) -> None:
    assert_twins("", *(character * n for n in (1, 2, 3, 5, 31, 1001, 4000)))


@pytest.mark.parametrize(
    "text",
    [
        "x" * 2_000_000,
        "a line like all the others.\n" * 3_000,
        "".join(f"line {i} of many\n\n" for i in range(3_000)),
        "a b " * 3_000,
        "-=" * 10_000,
        " ".join("[1[1[edit" for _ in range(3_000)),
        "okicypsujavrms" * 5_000,
        ". " + "'" * 100_000 + "x",
        "\n" * 100_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_ugly_long_texts_have_the_same_values(text: str) -> None:
    assert_twins(text)


@pytest.mark.parametrize("name", ["en", "multi", "code"])
def test_real_texts_have_the_same_values(shared_data: Path, name: str) -> None:
    with lzma.open(shared_data / "corpora" / f"{name}.txt.xz", "rt", encoding="utf-8") as file:
        text = file.read(40_000)
    assert_twins(*(text[at : at + 5000] for at in range(0, len(text), 5000)))


def test_real_documents_have_the_same_values(shared_data: Path) -> None:
    with lzma.open(shared_data / "neardup" / "near_dups.jsonl.xz", "rt", encoding="utf-8") as file:
        assert_twins(*(json.loads(line)["text"] for line in islice(file, 30)))


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_every_character_is_of_the_class_that_the_rule_says(step: int) -> None:
    """Seen in the values: a letter makes an alphabetic word, a symbol or blank no word, a terminal a punctuated line."""
    codes = [code for code in range(0, 0x110000, step) if not 0xD800 <= code < 0xE000]
    columns = _signals.measure(*texts_of(pa.array(map(chr, codes), pa.large_string())))
    classes = np.array([characters.class_of(chr(code)) for code in codes])
    is_blank = classes == characters.BLANK
    is_letter = classes & characters.UNSPACED > 0
    assert (columns["n_words"] == (~is_blank & ~is_letter & (classes & characters.SYMBOL == 0))).all()
    assert (np.isnan(columns["mean_word_length"]) == is_letter).all()
    assert ((columns["alphabetic_word_ratio"] == 1) == (classes & characters.LETTER > 0)).all()
    assert ((columns["punctuated_line_ratio"] == 1) == (classes & characters.TERMINAL > 0)).all()
    assert not any(character.isalpha() for character in characters.SYMBOLS)
    assert _signals.UNICODE_VERSION == UNICODE_VERSION


def test_words_are_cut_at_blanks_and_lose_the_symbols_at_their_ends() -> None:
    assert words_of("(Hello,  world!)\n--- C++ e-mail") == [
        *("(", "Hello", ",", "world", "!", ")", "---", "C", "++", "e-mail")
    ]
    assert words_of("») a_b _") == ["»", ")", "a_b", "_"]


@pytest.mark.parametrize(
    ("line", "n"),
    [
        ("", 0),
        ("no end", 1),
        ("One. Two.", 2),
        ('"Why?" he said.', 2),
        ("3.5 e.g. that", 2),
        ("来了。走了。」", 2),
        ("?!", 1),
    ],
)
def test_sentences_of_a_line_end_at_marks_before_blanks(line: str, n: int) -> None:
    assert n_sentences_of(line) == n


def test_bytes_that_are_not_utf8_are_measured_without_a_crash() -> None:
    for damaged in (b"\xff\xfe a b", b"ab\xe2\x80", b"\xf4\x90\x80\x80", b"\xed\xa0\x80 x", b"\xc0\xaf", b"\x80" * 100):
        columns = _signals.measure(np.frombuffer(damaged, np.uint8), np.array([0, len(damaged)]))
        assert columns["n_characters"][0] >= 0


@pytest.mark.parametrize("offsets", [[0, 9], [-1, 2], [2, 1], []])
def test_offsets_outside_of_the_bytes_are_rejected(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets must rise"):
        _signals.measure(np.zeros(4, np.uint8), np.array(offsets, np.int64))


def test_a_batch_that_is_a_slice_returns_its_own_rows() -> None:
    texts = ["one two", "three", "", "four five six"]
    batch = pa.record_batch(
        {
            "id": ["a", "b", "c", "d"],
            "text": texts,
            "language": ["en"] * 4,
            "language_score": [0.9] * 4,
            "extractor_agreement": [None] * 4,
        }
    )
    table = signals_table(batch.slice(1, 2))
    assert table.schema == SIGNALS
    assert table["id"].to_pylist() == ["b", "c"]
    assert table["n_words"].to_pylist() == [1, 0]
    assert signals_table(batch.slice(0, 0)).num_rows == 0


MEASURE_ONE = """
import sys
import numpy as np
from webtext.clean import _signals
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
text = np.frombuffer(sys.argv[1].encode() * (int(sys.argv[2]) // len(sys.argv[1])), np.uint8)
before = peak()
_signals.measure(text, np.array([0, len(text)]))
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads the peak of memory in /proc")
@pytest.mark.parametrize("unit", ["a b ", *(pytest.param(unit, marks=pytest.mark.slow) for unit in ("-=", "x\n"))])
def test_memory_is_bounded_by_a_multiple_of_the_text(unit: str) -> None:
    """Measured: 34 times at most. A new process begins with the peak of its parent in `ru_maxrss`, not in /proc."""
    n_bytes = 8_000_000
    done = subprocess.run([sys.executable, "-c", MEASURE_ONE, unit, str(n_bytes)], capture_output=True, check=True)
    assert int(done.stdout) * 1024 < 50 * n_bytes


def test_other_threads_run_while_texts_are_measured() -> None:
    """The call releases the GIL: calls of two threads overlap. Times on a busy machine could not show this."""
    texts = texts_of(pa.array(["one two three. " * 700_000], pa.large_string()))
    ticks = 0
    worker = threading.Thread(target=_signals.measure, args=texts)
    worker.start()
    while worker.is_alive():
        ticks += 1
        time.sleep(0.0005)
    assert ticks > 5
