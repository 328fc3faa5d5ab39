"""Evaluation sets of running text: the text read from each file, and its units."""

from __future__ import annotations

from pathlib import Path

import pytest

from webtext.base.errors import InputError
from webtext.train.evaluate import texts
from webtext.train.evaluate.cloze import read_lambada
from webtext.train.evaluate.texts import read_file, read_running_text


@pytest.mark.parametrize(
    ("task", "name", "words", "with_line_ends"),
    [
        ("wikitext-2", "wikitext-2/test.txt", 241_211, 245_569),
        pytest.param("wikitext-103", "wikitext-103/wiki.test.tokens", 241_211, 245_569, marks=pytest.mark.slow),
        ("ptb", "ptb/ptb.test.txt", 78_669, 82_430),
    ],
)
def test_the_real_sets_have_the_published_number_of_words(
    task: str, name: str, words: int, with_line_ends: int, shared_data: Path
) -> None:
    data = read_file(str(shared_data / "eval" / name))
    read = read_running_text(task, data, name)
    assert read.units == {"word": words, "word or line end": with_line_ends, "byte": len(data)}
    assert len(read.text) < len(data)
    assert read_running_text(task, data, name, detokenize=False).text == data


def test_a_line_of_the_billion_word_benchmark_is_a_sentence() -> None:
    data = b'He said : " I don \'t know . "\nThe U.S. won , 3 - 2 .\n'
    read = read_running_text("1bw", data, "news.en.heldout-00000-of-00050")
    assert read.text == b'He said: "I don\'t know."\nThe U.S. won, 3 - 2.\n'
    assert read.units == {"word": 18, "word or line end": 20, "byte": len(data)}
    assert read.detokenizer == "news"


def test_of_the_hundred_million_bytes_the_last_five_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown on a hundred bytes; a cut through a letter of several bytes is kept as it is."""
    monkeypatch.setattr(texts, "WHOLE", 100)
    monkeypatch.setattr(texts, "TEST", 5)
    data = b"a" * 94 + "é".encode() + b"bcde"
    read = read_running_text("enwik8", data, "enwik8")
    assert (read.text, read.units, read.part) == (b"\xa9bcde"[-5:], {"byte": 5}, "last 5 bytes")
    read = read_running_text("text8", b"a b" * 30, "text8")
    assert (len(read.text), read.units, read.part) == (90, {"character": 90}, "all")


def test_a_part_of_the_real_enwik8_is_read_completely(shared_data: Path) -> None:
    data = read_file(str(shared_data / "eval/enwik8/enwik8.head"))
    assert read_running_text("enwik8", data, "enwik8.head").units == {"byte": 4_154_399}


def test_the_real_lambada_has_5153_passages(shared_data: Path) -> None:
    data = read_file(str(shared_data / "eval/lambada/lambada_test.jsonl"))
    clozes = read_lambada(data, "lambada_test.jsonl")
    assert len(clozes) == 5_153
    assert (clozes[0].before[-12:], clozes[0].target) == ("t care about", " signs")
    assert all(cloze.target[0] == " " and not cloze.before[-1].isspace() for cloze in clozes)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not UTF-8: byte 3"):
        read_running_text("text", b"01 \xff", "file")
    with pytest.raises(InputError, match="is a folder without a manifest.json"):
        read_file(str(tmp_path))
    with pytest.raises(InputError, match="nothing"):
        read_file(str(tmp_path / "nothing"))
