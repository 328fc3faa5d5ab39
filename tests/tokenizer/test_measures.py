"""`tokenizer score`: every figure computed by hand, compared with a slow count on real text, and over threads."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from webtext.app.main import run
from webtext.tokenizer import Tokenizer, Vocabulary
from webtext.tokenizer.measure import measures
from webtext.tokenizer.measure.measures import renyi_entropy, score, words

from .test_corpus import document, write_set

A, B, SPACE = b"ab "
TOY = Tokenizer(
    Vocabulary(
        tokens=[*(bytes([byte]) for byte in range(256)), b"", b"ab", b" ab"],
        merges=[(A, B), (SPACE, 257)],
        special_tokens={"<|endoftext|>": 300},
    )
)


def test_the_counts_of_a_small_text() -> None:
    """ab| ab| ab|c|\\n|\\t|é|é: 8 tokens, 13 bytes, 12 characters, 4 words, of which 'abc' and 'é' break."""
    (found,) = score([TOY], [(None, "ab ab abc\n\té")])
    assert TOY.encode("ab ab abc\n\té") == [257, 258, 258, ord("c"), 10, 9, 0xC3, 0xA9]
    assert found.all.to_json() == {
        "n_bytes": 13,
        "n_characters": 12,
        "n_words": 4,
        "n_tokens": 8,
        "n_whole_words": 2,
        "bytes_per_token": 13 / 8,
        "characters_per_token": 12 / 8,
        "tokens_per_word": 8 / 4,
        "whole_word_ratio": 2 / 4,
    }
    assert found.counts[[257, 258, 10]].tolist() == [1, 2, 1]
    assert found.counts.sum() == 8


def test_renyi_efficiency_by_hand() -> None:
    """Tokens ab, ab, ' ab', c: p = 1/2, 1/4, 1/4; sum of p^2.5 = 2^-2.5 + 2 * 2^-5; H = -log of it / 1.5; |V| = 258."""
    (found,) = score([TOY], [(None, "ab"), (None, "ab ab"), (None, "c")])
    entropy = -math.log(2**-2.5 + 2 * 2**-5) / 1.5
    assert renyi_entropy(found.counts) == pytest.approx(entropy)
    assert found.renyi_efficiency == pytest.approx(entropy / math.log(258))


def test_renyi_entropy_is_the_logarithm_for_equal_shares_and_0_for_one() -> None:
    assert renyi_entropy(np.array([5, 5, 0, 5, 5])) == pytest.approx(math.log(4))
    assert renyi_entropy(np.array([0, 9])) == pytest.approx(0)
    assert math.isnan(renyi_entropy(np.array([0, 0])))
    huge = np.array([2**61, 2**61])
    assert renyi_entropy(huge) == pytest.approx(math.log(2))


def test_use_of_the_vocabulary_leaves_special_and_unused_ids_out() -> None:
    """258 ids are tokens of text (256 bytes, ab, ' ab'); 256 is unused, 300 special; 'ab' occurs 3 times, 'c' once."""
    (found,) = score([TOY], [(None, "ab"), (None, "ab"), (None, "ab"), (None, "c")])
    use = found.vocabulary(seldom=3)
    assert (use["n_ids"], use["used_ratio"], use["seldom"]) == (258, 2 / 258, [ord("c")])
    assert use["never"] == [id_ for id_ in range(256) if id_ != ord("c")] + [258]


def test_parity_is_tokens_per_character_and_byte_against_the_reference() -> None:
    """en: 'abab', 2 tokens, 4 characters; el: 'αβ', 4 tokens, 2 characters, 4 bytes.

    Per character (4/2) / (2/4) = 4, per byte (4/4) / (2/4) = 2.
    """
    (found,) = score([TOY], [("en", "ab"), ("el", "αβ"), ("en", "ab"), (None, "zzz")])
    assert found.parity("en") == {
        "en": {"per_character": 1.0, "per_byte": 1.0},
        "el": {"per_character": 4.0, "per_byte": 2.0},
    }
    assert (found.all.n_tokens, found.languages["en"].n_tokens) == (9, 2)


def test_words_end_with_their_text_and_a_token_over_two_words_breaks_none() -> None:
    """'a' and 'b' of two texts are two words; the token 'a b' doesn't split either of them."""
    super_ = Tokenizer(
        Vocabulary(
            tokens=[*(bytes([byte]) for byte in range(256)), b"a ", b"a b"],
            merges=[(A, SPACE), (256, B)],
            pattern=r".+",
        )
    )
    found, wide = score([TOY, super_], [(None, "a"), (None, "b"), (None, "a b")])
    assert (found.all.n_words, wide.all.n_words) == (4, 4)
    assert (wide.all.n_tokens, wide.all.n_whole_words) == (3, 4)


@pytest.mark.parametrize("texts", [[], [""], [b""], ["", " \n", ""]])
def test_without_words_there_is_no_ratio(texts: list[str]) -> None:
    (found,) = score([TOY], [(None, text) for text in texts])
    assert found.all.to_json()["whole_word_ratio"] is None
    assert found.all.n_words == 0


BLANKS = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2005\u200a\u2028\u2029\u202f\u205f\u3000"
NEAR_BLANKS = "\x1c\x1f\u180e\u200b\u2007\u2010\u2020\u3001\ufeffÂâã\u0080é東😀\x84\u167f\u1681"


@given(st.lists(st.text(BLANKS + NEAR_BLANKS + "ab", max_size=20), max_size=4))
def test_words_are_separated_by_unicodes_white_space(texts: list[str]) -> None:
    data = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, data)], dtype=np.int64)
    whole = b"".join(data)
    starts, ends = words(np.frombuffer(whole, np.uint8), offsets)
    found = [whole[start:end].decode() for start, end in zip(starts, ends, strict=True)]
    assert found == [word for text in texts for word in regex.findall(r"\P{White_Space}+", text)]


def slow_score(tokenizer: Tokenizer, text: str) -> tuple[int, int, int]:
    """Count words, words in one token, and tokens, using spans of characters."""
    ids = tokenizer.encode(text)
    ends = set(itertools.accumulate(len(tokenizer.decode_bytes([id_])) for id_ in ids))
    byte_at = [0, *itertools.accumulate(len(character.encode()) for character in text)]
    spans = [(byte_at[found.start()], byte_at[found.end()]) for found in regex.finditer(r"\P{White_Space}+", text)]
    whole = sum(not any(place in ends for place in range(start + 1, end)) for start, end in spans)
    return len(spans), whole, len(ids)


@pytest.mark.parametrize("name", ["en", "multi"])
def test_real_text_counts_as_the_slow_way_counts(
    trained: Tokenizer, corpus_slice: Callable[[str], str], name: str
) -> None:
    text = corpus_slice(name)[:100_000]
    (found,) = score([trained], [(None, text)])
    assert (found.all.n_words, found.all.n_whole_words, found.all.n_tokens) == slow_score(trained, text)
    assert found.all.n_characters == len(text)


def test_threads_and_batches_change_nothing(
    trained: Tokenizer, corpus_slice: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        (("en", "de", None)[at % 3], text) for at, text in enumerate(corpus_slice("multi")[:200_000].split("\n\n"))
    ]
    (first,) = score([trained], texts, threads=1)
    for threads, size in ((2, 1 << 22), (3, 1), (1, 10_000)):
        monkeypatch.setattr(measures, "_BATCH_BYTES", size)
        (again,) = score([trained], texts, threads=threads)
        assert (again.counts == first.counts).all()
        assert (again.all, again.languages) == (first.all, first.languages)


# The verb


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    TOY.save(tmp_path / "toy.json")
    Tokenizer.train([], vocab_size=257).save(tmp_path / "bytes" / "tokenizer.json")
    (tmp_path / "en.txt").write_text("ab ab\n" * 10)
    (tmp_path / "el.txt").write_text("αβ\n")
    return {name: str(tmp_path / name) for name in ("toy.json", "bytes", "en.txt", "el.txt", "set")}


def test_score_answers_in_json(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    inputs = ["--on", f"el={files['el.txt']}", "--on", f"en={files['en.txt']}"]
    assert run(["tokenizer", "score", files["toy.json"], files["bytes"], *inputs, "--json", "--seldom", "2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["n_words"], answer["n_bytes"], answer["reference"], answer["seldom"]) == (21, 65, "en", 2)
    toy, plain = answer["tokenizers"]
    assert (toy["tokenizer"], toy["n_tokens"], plain["n_tokens"]) == (files["toy.json"], 35, 65)
    assert toy["vocabulary"]["seldom"] == [0xB1, 0xB2]
    assert toy["languages"]["en"]["whole_word_ratio"] == 1.0
    assert toy["parity"]["el"] == {"per_character": pytest.approx((5 / 3) / (30 / 60)), "per_byte": pytest.approx(2.0)}


def test_score_shows_tokenizers_side_by_side(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokenizer", "score", files["toy.json"], files["bytes"], "--on", files["en.txt"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "60 bytes, 60 characters, 20 words (split at white space)"
    assert lines[1].split() == ["toy.json", "bytes"]
    rows = {line[:24].strip(): line[24:].split() for line in lines[2:]}
    assert rows["bytes per token"] == ["2.000", "1.000"]
    assert rows["words in one token"] == ["100.0%", "0.0%"]
    assert lines[-1].startswith("bytes: longest that never occur: ")


def test_score_reads_the_languages_of_a_part_set(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [("en", "ab ab"), ("de", "aé"), (None, "zz")]
    rows = [document(str(at), text) | {"language": language} for at, (language, text) in enumerate(texts)]
    write_set(tmp_path / "set", [rows[:2], rows[2:]])
    assert run(["tokenizer", "score", files["toy.json"], "--on", files["set"], "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["n_bytes"] == 10
    assert {name: found["n_tokens"] for name, found in answer["tokenizers"][0]["languages"].items()} == {
        "en": 2,
        "de": 3,
    }


def test_score_reads_json_lines_and_reports_records_without_text(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.jsonl").write_text('{"body": "ab ab"}\n{"body": 1}\n{\n{"body": "ab"}\n')
    on = ["--on", str(tmp_path / "x.jsonl"), "--text-field", "body"]
    assert run(["tokenizer", "score", files["toy.json"], *on, "--json"]) == 0
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert (answer["n_words"], answer["failed"]) == (3, {"no_text": 1, "not_json": 1})
    said = [line for line in captured.err.splitlines() if not line.startswith('{"event"')]
    assert said == ["warning: records without text: 1 no_text, 1 not_json"]


def test_score_errors_are_short(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.txt").write_text("")
    for arguments, code, message in (
        ([files["toy.json"], "--on", str(tmp_path / "empty.txt")], 3, "no text to measure"),
        (
            [files["toy.json"], "--on", files["en.txt"], "--reference", "fr"],
            2,
            "reference language 'fr'\n  name inputs as LANG=FILE",
        ),
        ([files["toy.json"], "--on", f"en={files['en.txt']}", "--reference", "e"], 2, "did you mean 'en'?"),
        ([files["toy.json"], "--on", str(tmp_path / "none.txt")], 3, "does not exist"),
    ):
        assert run(["tokenizer", "score", *arguments]) == code
        assert message in capsys.readouterr().err
