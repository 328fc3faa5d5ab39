"""Scripts written without spaces: their words in rules, near duplicates and evaluation sets; other texts as before."""

from __future__ import annotations

import hashlib
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.minhash import shingle_set
from reference.ngrams import Table
from reference.signals import signals_of
from reference.words import dedup_key, ngrams, ngrams_of
from set_contents import Decided, rows, write_jsonl
from unspaced_texts import edited, prose

from webtext.base.parts.schemas import SIGNALS
from webtext.base.run import Run
from webtext.clean import _minhash, _ngrams, _signals
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages, decontaminate_documents, dedup_documents
from webtext.clean.rules.thresholds import PROFILES, RuleSettings
from webtext.clean.settings import DecontaminationSettings
from webtext.clean.text.arrays import texts_of
from webtext.clean.text.unicode import category_of
from webtext.clean.text.unspaced import SCRIPTS, WORD, script_of

MIXED = st.lists(
    st.sampled_from(
        [
            *("漢", "字", "か", "が", "か\u3099", "ー", "モデル", "ﾊﾞ", "々", "〇", "𠀀", "𰀀", "。", "、"),
            *("・", "「", "』", "ก", "กี่", "ำ", "เ", "๐", "ລ", "ໜ", "ខ", "្ម", "។", "မြ", "က", "။", "\u200b"),
            *("\u200d", "\ufe0f", "\u0301", " ", " ", "\n", "\u3000", "a", "The", "é", "한국", "हिन्दी", "12"),
            *("GPT-2", ".", "...", "#", "Ａ", "㌔"),
        ]
    )
).map("".join)


def flat(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    return texts_of(pa.array(texts, pa.large_string()))


def write_texts(path: Path, texts: dict[str, str]) -> str:
    return write_jsonl(path, *({"id": name, "text": text} for name, text in texts.items()))


def table(texts: list[str]) -> pa.Table:
    described = {"id": "", "language": "ja", "language_score": 0.9}
    return pa.Table.from_pylist([described | signals_of(text) for text in texts], schema=SIGNALS)


# words


def test_the_letters_are_of_one_script_each_and_letters_to_unicode() -> None:
    codes = [code for script in SCRIPTS for each in script.letters for code in each]
    assert len(codes) == len(set(codes))
    assert {category_of(chr(code))[0] for code in codes} == {"L", "N", "C"}, "C: not assigned yet in Unicode 14"
    assert [script_of(each) for each in "語かカー々〇ﾊกກខက𠀀A한1ิ"] == [
        *(0, 1, 2, 2, 0, 0, 2, 3, 4, 5, 6, 0),
        *(None,) * 4,
    ]


def test_five_words_are_nine_chinese_characters_sixteen_thai_letters_and_five_others() -> None:
    for text, length in (("語" * 30, 9), ("ก" * 30, 16), ("か" * 30, 8), ("カ" * 30, 20), ("က" * 30, 11)):
        weights = [SCRIPTS[script_of(text[0]) or 0].weight] * len(text)
        assert next(ngrams(weights, 5)) == (0, length)
        assert len(ngrams_of(text, 5)) == len(text) - length + 1
    assert list(ngrams([WORD] * 7, 5)) == [(0, 5), (1, 6), (2, 7)]


def test_no_ngram_is_the_beginning_of_another() -> None:
    weights = [588, WORD, 250, 250, WORD, 323, 588, WORD, WORD, 588, 588]
    spans = list(ngrams(weights, 3))
    assert all(sum(weights[start:end]) >= 3 * WORD > sum(weights[start : end - 1]) for start, end in spans)


@settings(max_examples=50)
@given(st.lists(MIXED, min_size=1, max_size=4), st.integers(1, 14))
def test_native_shingles_and_ngrams_equal_the_readable_ones(texts: list[str], n: int) -> None:
    values, ends = _minhash.shingle_sets(*flat(texts), n)
    for text, (start, end) in zip(texts, pairwise(ends), strict=True):
        assert _minhash.key(text.encode()).decode() == dedup_key(text)
        assert values[start:end].tolist() == shingle_set(text, n).tolist()
    native, readable = _ngrams.Table(n), Table(n)
    for text in texts[::2]:
        assert native.add(text.encode()).tolist() == readable.add(text)
    numbers, found = native.find(*flat(texts))
    assert [numbers[a:b].tolist() for a, b in pairwise(found)] == [readable.find(text) for text in texts]


# values of all other texts

SPACED = (
    *("the", "of", "and", "word", "naïve", "Привет", "мир", "ελληνικά", "한국어", "문장이다", "हिन्दी", "भाषा"),
    *("עברית", "عربى", "ქართული", "12", "3.5", "#", "...", "…", ".", "!", "?", "!?", ",", "-", "•", "{", "(x)"),
    *("“so”", "[1]", "。", "・", "〜", "€", "😀", "Ａ", " ", " ", " ", " ", " ", "\n", "\n\n", "\t", "\u3000"),
    *("\u200b", "\xad", "e\u0301", "lorem ipsum", "privacy policy"),
)
FROZEN = {
    "signals": "9a84fd5ccfedd3753d640573118dad12",
    "shingles": "efb4e9c3f4e709f56b4cd3b226b670f7",
    "8-grams": "5c0d0febf24e7e3fd946c17fd3b6084d",
    "13-grams": "772c765df91a763c6c444ea003f72dfe",
}


def test_texts_without_these_scripts_keep_their_earlier_values() -> None:
    """Digests from before the code knew unspaced scripts. They never change; a change needs a new CODE_VERSION."""
    chance = random.Random(16)
    texts = ["".join(chance.choices(SPACED, k=chance.randrange(400))) for _ in range(3000)]
    data, tables = flat(texts), {n: _ngrams.Table(n) for n in (8, 13)}
    columns = _signals.measure(*data)
    found = {
        "signals": b"".join(columns[name].tobytes() for name in sorted(columns) if name != "prose_character_ratio"),
        "shingles": b"".join(values.tobytes() for values in _minhash.shingle_sets(*data, 5)),
    } | {f"{n}-grams": b"".join(each.add(text.encode()).tobytes() for text in texts) for n, each in tables.items()}
    assert {name: hashlib.sha256(values).hexdigest()[:32] for name, values in found.items()} == FROZEN


# rules


@pytest.mark.parametrize("language", ["ja", "zh", "th"])
def test_ordinary_documents_are_kept_by_every_profile(language: str) -> None:
    texts = [prose(language, i) for i in range(2)]
    for profile in PROFILES:
        decisions = Decided(table(texts), RuleSettings(profile=profile), None)
        assert [decisions.reason(row) for row in range(2)] == [None] * 2, profile


@pytest.mark.parametrize("language", ["ja", "all"])
def test_five_japanese_documents_pass_clean_run_with_the_default_rules(tmp_path: Path, run: Run, language: str) -> None:
    given = write_texts(tmp_path / "ja.jsonl", {str(i): prose("ja", i) for i in range(5)})
    chosen = CleanSettings(language=LanguageSettings(language=(language,)))
    assert clean_pages([given], str(tmp_path / "out"), chosen, run).corpus.records == 5


def test_a_short_japanese_text_is_still_too_short() -> None:
    """100 words are about 165 characters of this mixture."""
    decide_of = [prose("ja", 1, n) for n in (100, 300)]
    decisions = Decided(table(decide_of), RuleSettings(), None)
    assert [decisions.reason(row) for row in range(2)] == ["too_few_words", None]


def test_words_are_counted_by_letters_and_those_between_them_one_by_one() -> None:
    """18 Han letters weigh 588 thousandths of a word each: 10.584 words. GPT-2, 3 and B are three, 、 ・ 『 』 symbols."""
    signals = signals_of("語" * 17 + "、GPT-2・語『3』 B")
    assert signals["n_words"] == 10 + 3
    assert signals["alphabetic_word_ratio"] == (10_584 + 2000) / (10_584 + 3000 + 4000)


def test_marks_and_zero_width_characters_belong_to_the_letter_before_them() -> None:
    plain, dressed = signals_of("กขค" * 20), signals_of("ก\u0e34\u0e48ข\u200bค\ufe0f" * 20)
    assert plain["n_words"] == dressed["n_words"] == 60 * 323 // 1000
    assert signals_of("ハ\u3099")["n_words"] == signals_of("ﾊﾞ")["n_words"] == 0


def test_rules_about_spaced_words_do_not_apply_to_unspaced_texts() -> None:
    unspaced, mixed, spaced = signals_of("2020年3月5日の天気です"), signals_of("The word 語 of it"), signals_of("a 12")
    assert (unspaced["mean_word_length"], unspaced["n_stop_words"]) == (None, None)
    assert (mixed["mean_word_length"], mixed["n_stop_words"]) == ((3 + 4 + 2 + 2) / 4, 1)
    assert (spaced["mean_word_length"], spaced["n_stop_words"]) == (1.5, 0)
    only = ("too_few_words=none", "words_too_short=3", "words_too_long=10", "too_few_stop_words=2")
    assert Decided(table(["2020年3月5日の天気です"]), RuleSettings(rule=only), None).kept.all()
    assert not Decided(table(["a 12"]), RuleSettings(rule=only), None).kept.any()


def test_a_short_line_is_one_of_five_words_in_any_script() -> None:
    """30 characters are five words of six; of Han 6 * 588 thousandths each, so 8 characters are short and 9 are not."""
    assert signals_of("語" * 8)["short_line_ratio"] == 1
    assert signals_of("語" * 9)["short_line_ratio"] == 0
    assert signals_of("x" * 30 + "\n" + "y" * 31)["short_line_ratio"] == 0.5


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("他来了。她也来了。", 2),
        ("ខ្ញុំទៅផ្សារ។ អ្នកទៅណា៕", 2),
        ("ကျွန်တော်သွားသည်။ သူလာသည်။", 2),
        ("ฉันไปตลาด เธออยู่บ้าน", 2),
        ("ຂ້ອຍໄປຕະຫຼາດ ເຈົ້າຢູ່ເຮືອນ", 2),
    ],
)
def test_sentences_end_by_each_scripts_own_marks_or_by_a_blank_in_thai_and_lao(line: str, sentences: int) -> None:
    signals = signals_of(line)
    assert (signals["n_sentences"], signals["n_punctuated_sentences"]) == (sentences, sentences)
    assert signals["punctuated_line_ratio"] == 1


def test_repeated_phrases_are_found_at_any_position() -> None:
    """A slogan of 18 characters, five times at shifted positions: its 10-gram (18 characters) repeats four times."""
    slogan = "全场商品一律五折优惠欢迎新老顾客光临"
    text = "".join(prose("zh", i, 20 + i)[:-1] + "甲乙丙丁戊"[i] + slogan for i in range(5))
    signals = signals_of(text)
    assert signals["duplicate_10gram_character_ratio"] == 4 * 18 / len(text)
    assert signals["top_2gram_character_ratio"] >= 5 * 4 / len(text)
    assert signals_of(prose("zh", 1))["duplicate_10gram_character_ratio"] == 0


# near duplicates and evaluation sets


@pytest.mark.parametrize("language", ["ja", "th", "zh"])
def test_near_duplicates_are_found_and_unrelated_documents_are_kept(tmp_path: Path, run: Run, language: str) -> None:
    """In each of 20 copies 5 % of the characters differ; shingles with them are lost, so Jaccard is .83 to .88."""
    originals = {f"original{i:02}": prose(language, i) for i in range(20)}
    copies = {f"copy{i:02}": edited(prose(language, i), language, i) for i in range(20)}
    others = {f"other{i:02}": prose(language, 100 + i) for i in range(20)}
    given = write_texts(tmp_path / "texts.jsonl", originals | copies | others)
    found = dedup_documents([given], str(tmp_path / "out"), DedupSettings(), run)
    kept = {row["id"] for row in rows(found.corpus)}
    assert set(others) <= kept
    assert sorted(name[-2:] for name in kept - set(others)) == [f"{i:02}" for i in range(20)]


def test_an_example_quoted_in_a_chinese_document_is_found_and_a_shorter_phrase_is_not(tmp_path: Path, run: Run) -> None:
    """13 words are 23 characters; the quotation is surrounded by other characters, without a blank or a full stop."""
    example = "一九三七年春天老渔夫在黎明前划着小船离开了沉睡的港口去寻找失踪的弟弟"
    before, after = prose("zh", 1, 400).rstrip("。"), prose("zh", 2, 400)
    given = write_texts(
        tmp_path / "texts.jsonl",
        {"quotes": before + example[5:28] + after, "almost": before + example[5:27] + after, "clean": prose("zh", 3)},
    )
    against = write_texts(tmp_path / "test.jsonl", {"1": example})
    settings = DecontaminationSettings(against=(against,), drop=True)
    found = decontaminate_documents([given], str(tmp_path / "out"), settings, run)
    assert [row["id"] for row in rows(found.dropped)] == ["quotes"]
    assert [row["id"] for row in rows(found.corpus)] == ["almost", "clean"]
