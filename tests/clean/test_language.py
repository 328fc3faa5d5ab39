from __future__ import annotations

import json
import lzma
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import language as language_reference

from webtext.base.errors import ConfigError
from webtext.clean._language import Model
from webtext.clean.language import LanguageSettings, detect_language

OWN = {
    "en": "The boat left the harbour early, because the wind would turn before the evening and nobody wanted to wait.",
    "de": "Das Boot verließ früh den Hafen, weil der Wind vor dem Abend drehen würde und niemand warten wollte.",
    "fr": "Le bateau a quitté le port de bonne heure, car le vent allait tourner avant le soir et personne n'attendait.",
    "ru": "Лодка рано вышла из порта, потому что к вечеру ветер должен был перемениться, и никто не хотел ждать.",
    "el": "Το πλοίο έφυγε νωρίς από το λιμάνι, γιατί ο άνεμος θα άλλαζε πριν από το βράδυ.",
    "ar": "غادر القارب الميناء مبكرا لأن الريح كانت ستتغير قبل المساء ولم يرغب أحد في الانتظار.",
    "ja": "夕方までに風向きが変わるので、船は朝早く港を出て、だれも待とうとしなかった。",
    "ko": "저녁이 되기 전에 바람이 바뀔 것이어서 배는 일찍 항구를 떠났고 아무도 기다리지 않았다.",
    "zh": "因为傍晚以前风向会改变,船很早就离开了港口,没有人愿意等待。",
}


@pytest.fixture(params=["own", "real"])
def paragraphs(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    if request.param == "own":
        return [{"lang": language, "text": text} for language, text in OWN.items()]
    path = request.getfixturevalue("shared_data") / "langid" / "manpages_paras.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("paragraphs", ["own", pytest.param("real", marks=pytest.mark.slow)], indirect=True)
def test_paragraphs_in_many_languages_are_told_apart(paragraphs: list[dict[str, str]]) -> None:
    """Real labels are the packages' and some paragraphs are untranslated English, so 1.0 cannot be reached."""
    rows = random.Random(0).sample(paragraphs, min(len(paragraphs), 400))
    found = [(detect_language(row["text"]) or ("", 0.0))[0] for row in rows]
    right = sum(_folded(code) == _folded(row["lang"]) for code, row in zip(found, rows, strict=True))
    assert right / len(rows) >= 0.95


def _folded(code: str) -> str:
    code = code.replace("-", "_").split("_")[0]
    return "no" if code in ("nb", "nn") else code


def test_the_native_detector_equals_its_readable_twin(paragraphs: list[dict[str, str]]) -> None:
    texts = [row["text"] for row in paragraphs[:: len(paragraphs) // 102 or 1]]
    texts += ["".join(texts[i : i + 60]) for i in range(0, len(texts), 60)]  # some of many thousand characters
    assert [detect_language(text) for text in texts] == [language_reference.detect_language(text) for text in texts]


@given(st.text(max_size=60) | st.text("the und\u0436\u4e00\n ", max_size=40))
def test_any_text_has_the_same_language_in_both(text: str) -> None:
    assert detect_language(text) == language_reference.detect_language(text)


def test_tables_that_do_not_fit_together_are_rejected() -> None:
    moves, rows, outputs = np.zeros(256, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.int32)
    weights, priors, languages = np.zeros((1, 2), np.float32), np.zeros(2), np.arange(2, dtype=np.int32)
    assert Model(moves, rows, outputs, weights, priors, languages).detect(b"abc") == (0, pytest.approx(0.5))
    for bad in (
        (moves + 1, rows, outputs, weights, priors, languages),
        (moves, rows + 1, outputs, weights, priors, languages),
        (moves, rows, outputs + 1, weights, priors, languages),
        (moves, rows, outputs, weights, np.zeros(3), languages),
        (moves, rows, outputs, weights, priors, languages + 1),
    ):
        with pytest.raises(ValueError, match="do not fit together"):
            Model(*bad)


def test_the_score_is_the_models_own_probability_rounded() -> None:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    for text in ("Guten Tag, meine Damen und Herren!", "Il pleut à verse.", "Добрый день"):
        code, probability = identifier.classify(text)
        assert detect_language(text) == (code, pytest.approx(float(probability), abs=1e-3))


@pytest.mark.parametrize("text", ["", "\U0001f600" * 50, "\n\n"])
def test_a_text_without_features_has_no_language(text: str) -> None:
    assert detect_language(text) is None


def test_ten_megabytes_of_one_word_are_judged_by_their_start() -> None:
    assert detect_language("word" * 2_500_000) == detect_language("word" * 2_500)


def test_an_unknown_language_and_an_impossible_score_are_config_errors() -> None:
    with pytest.raises(ConfigError, match="unknown language 'xx'"):
        LanguageSettings(language=("en", "xx"))
    with pytest.raises(ConfigError, match="min_language_score is 65"):
        LanguageSettings(min_language_score=65)
