"""Signals, thresholds and decisions."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.signals import signals_of
from set_contents import Decided

from webtext.base.errors import ConfigError
from webtext.base.parts.schemas import SCORED_SIGNALS, SIGNALS
from webtext.clean.decontaminate.comparison import SHARES_NGRAM
from webtext.clean.dedup.settle import EXACT, NEAR, NEAR_TRAIN
from webtext.clean.language import LanguageSettings
from webtext.clean.rules.decide import OTHER_LANGUAGE, UNCERTAIN_LANGUAGE, columns_of, count_yields
from webtext.clean.rules.thresholds import PROFILES, RULES, RuleSettings
from webtext.clean.rules.votes import REASONS

PROSE = (
    "It was late when the boat came in, and the men on the quay had been waiting for the light to change. "
    "Nobody spoke of the storm that took the pier, although all of them had seen it with their own eyes.\n"
)
ANY = LanguageSettings(language=("all",))


def table(*texts: str, language: str | None = "en", score: float | None = 0.99) -> pa.Table:
    rows = [{"id": str(i), "language": language, "language_score": score} | signals_of(t) for i, t in enumerate(texts)]
    return pa.Table.from_pylist(rows, schema=SIGNALS)


def reason(text: str, profile: str, *rules: str) -> str | None:
    return Decided(table(text), RuleSettings(profile=profile, rule=rules), ANY).reason(0)


def test_the_values_of_a_small_text_are_those_counted_by_hand() -> None:
    """Five lines, one empty and one repeated; 12 words and six symbols: . . - ... # ,"""
    text = "The cat sat.\nThe cat sat.\n\n- and then...\n#stop here, now ok"
    signals = signals_of(text)
    assert signals["n_words"] == 12
    assert signals["n_characters"] == len(text) == 59
    assert signals["mean_word_length"] == (9 + 9 + 7 + 4 + 4 + 3 + 2) / 12
    assert signals["hash_word_ratio"] == 1 / 18
    assert signals["ellipsis_word_ratio"] == 1 / 18
    assert signals["alphabetic_word_ratio"] == 12 / 18
    assert signals["n_stop_words"] == 1
    assert signals["bullet_line_ratio"] == 1 / 5
    assert signals["ellipsis_line_ratio"] == 1 / 5
    assert signals["punctuated_line_ratio"] == 3 / 4
    assert signals["short_line_ratio"] == 1
    assert signals["newline_word_ratio"] == 4 / 18
    assert signals["duplicate_line_ratio"] == 1 / 4
    assert signals["duplicate_line_character_ratio"] == 12 / 59
    assert signals["duplicate_character_ratio"] == 12 / 55
    assert signals["duplicate_paragraph_ratio"] == 0
    assert signals["top_2gram_character_ratio"] == 2 * len("The cat") / 59
    assert signals["top_3gram_character_ratio"] == 2 * len("The cat sat") / 59
    assert signals["top_4gram_character_ratio"] == 2 * len("The cat sat .") / 59
    assert signals["n_sentences"] == 4
    assert signals["n_punctuated_sentences"] == 2


def test_repeated_ngrams_are_counted_without_overlap() -> None:
    """Ten words, then the same ten: the second ten contain two repeated 5-grams, or one repeated 10-gram."""
    words = "alpha bravo charlie delta echo foxtrot golf hotel india juliett"
    signals = signals_of(f"{words} {words}")
    repeated = len(words.replace(" ", "")) / len(f"{words} {words}")
    assert signals["duplicate_5gram_character_ratio"] == pytest.approx(repeated)
    assert signals["duplicate_10gram_character_ratio"] == pytest.approx(repeated)
    assert signals_of(words)["duplicate_5gram_character_ratio"] == 0


@given(st.text() | st.lists(st.sampled_from(["the", "#", "...", "\n", "a b c d e", "{", "•", "."])).map(" ".join))
def test_every_text_has_every_signal_and_ratios_are_in_their_range(text: str) -> None:
    signals = signals_of(text)
    assert set(signals) == set(SIGNALS.names) - {"id", "language", "language_score", "extractor_agreement", "failed"}
    for name, value in signals.items():
        if value is None:
            assert name in ("mean_word_length", "n_stop_words")
            continue
        assert np.isfinite(value)
        assert value >= 0
        if name.endswith(("_line_ratio", "character_ratio", "paragraph_ratio", "alphabetic_word_ratio")):
            assert value <= 1, name


def test_every_rule_reads_a_column_that_is_measured_and_every_profile_names_rules() -> None:
    assert {rule.column for rule in RULES.values()} <= set(SCORED_SIGNALS.names)
    no_profile = {"vote_score_too_low", "extractors_disagree"}
    assert {reason for profile in PROFILES.values() for reason in profile} == set(RULES) - no_profile


BROKEN = {
    "too_few_words": ("gopher", "Too short to say anything."),
    "too_many_words": ("gopher", PROSE * 2600),
    "words_too_short": ("gopher", "a b c d to be of an x y " * 12),
    "words_too_long": ("gopher", "incomprehensibilities of the uncharacteristically " * 40),
    "too_many_hashes": ("gopher", PROSE * 2 + "# " * 20),
    "too_many_ellipses": ("gopher", PROSE * 2 + "... and so on ... the end ... " * 8),
    "too_few_alphabetic_words": ("gopher", PROSE * 2 + " ".join(str(i) for i in range(100, 160))),
    "too_few_stop_words": ("gopher", " ".join(f"word{i}" for i in range(80))),
    "too_many_bullet_lines": ("gopher", "".join(f"- {i} the item of and that it is for\n" for i in range(30))),
    "too_many_duplicate_lines": (
        "gopher",
        PROSE + "Again.\n" * 20 + "It is the end of all and nothing more than it.\n" * 1,
    ),
    "has_lorem_ipsum": ("fineweb", PROSE * 5 + "Lorem ipsum dolor sit amet."),
    "has_curly_brace": ("fineweb", PROSE * 5 + "function() { return 1 }"),
    "too_few_sentences": ("fineweb", PROSE),
    "has_punctuated_lorem_ipsum": ("c4", PROSE * 5 + "Lorem ipsum dolor sit amet."),
    "has_punctuated_curly_brace": ("c4", PROSE * 5 + "It says { return 1 } and ends."),
    "too_few_punctuated_sentences": ("c4", PROSE + "no end here\n" * 10),
    "too_many_duplicate_characters": ("fineweb", PROSE * 2),
    "too_few_punctuated_lines": (
        "fineweb",
        "".join(f"{PROSE.split('.')[i % 2].strip()} {i} times\n" for i in range(4)),
    ),
    "too_little_prose": ("webtext", "".join(f"snd_pcm_{i}() : pcm.h, pcm_{i}.c\n" for i in range(60))),
    "too_many_short_lines": ("fineweb", "".join(f"The {i} of {i * 7} and {i * 3}.\n" for i in range(40))),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "too_many_words")) for name in BROKEN]
)
def test_a_text_made_to_break_one_rule_is_dropped_by_it(name: str) -> None:
    profile, text = BROKEN[name]
    alone = RuleSettings(profile=profile, rule=tuple(f"{other}=none" for other in PROFILES[profile] if other != name))
    decisions = Decided(table(text), alone, ANY)
    assert decisions.reason(0) == name
    threshold, value = decisions.verdict(0).threshold, decisions.verdict(0).value[0]
    assert threshold == PROFILES[profile][name]
    assert value < threshold if RULES[name].bound == "min" else value > threshold


def test_plain_prose_passes_every_profile() -> None:
    words = ["the", "of", "and", "river", "stone", "walked", "under", "letter", "morning", "quiet", "that", "window"]
    chance = random.Random(1)
    lines = []
    for _ in range(30):
        line = " ".join(chance.choice(words) for _ in range(14))
        lines.append(f"{line[0].upper()}{line[1:]}.")
    for profile in PROFILES:
        assert reason("\n".join(lines), profile) is None, profile


LINES = {
    "a poem without a sentence's end": "The harbour lamps went out before the rain,\nand nobody on the quay had seen the boat\n",
    "a chat": "<anna> did anyone manage to build it on arm\n<bob> yeah it works here with the newer one\n",
    "a play": "MARTHA: The ferry should have left an hour ago.\nJONAS: It always does.\nMARTHA: Then we wait.\n",
    "a recipe": "- 2 cups flour\n- 1 large egg\nWhisk the flour in a bowl, then pour in the milk.\nServe with syrup.\n",
    "a tutorial with code": "    if not found:\n        return [int(data)]\nThe loop ends when a number is found in the list.\n",
    "Hindi": "दो रास्ते एक पीले जंगल में अलग हो गए थे।\nऔर मुझे दुख था कि मैं दोनों पर नहीं जा सकता था।\n",
    "Thai": "ถนนสองสายแยกจากกันในป่าสีเหลืองและฉันเสียใจที่ไม่สามารถเดินทางทั้งสองได้\n",
}
LISTS = {
    "a symbol index": "- av_log_default : log.h, log.c, opt.h\n- AV_LOG_QUIET : log.h, log.c, util.h\n",
    "a member list": "animationClip() const : QAnimationClip *\nsetClock(Qt3DAnimation::QClock *)\n",
    "a table of members": "void | set_style (const Style & style)\nbool | has_style () const\n",
    "a table of contents": "1. Introduction\n1.1. Using the library\n1.2. Known problems\n2. Reference\n",
}


@pytest.mark.parametrize("name", [*LINES, *LISTS])
def test_texts_that_people_vote_for_are_prose_and_lists_of_names_are_not(name: str) -> None:
    found = reason((LINES | LISTS)[name] * 40, "webtext")
    assert found == ("too_little_prose" if name in LISTS else None)


def test_pages_on_which_extractors_disagree_can_be_dropped_and_those_with_one_extractor_stay() -> None:
    """In `decide`, an unknown agreement is neither below nor above a threshold."""
    rows = [{"id": str(i), "extractor_agreement": value} for i, value in enumerate((0.2, 0.9, None))]
    measured = table("word " * 100).to_pylist()[0]
    signals = pa.Table.from_pylist([measured | row for row in rows], schema=SIGNALS)
    decisions = Decided(signals, RuleSettings(profile="minimal", rule=("extractors_disagree=.5",)), ANY)
    assert [decisions.reason(i) for i in range(3)] == ["extractors_disagree", None, None]


def test_a_value_on_the_threshold_is_kept() -> None:
    assert reason("word " * 100, "minimal") is None
    assert reason("word " * 99, "minimal") == "too_few_words"


def test_rules_can_be_changed_added_and_switched_off() -> None:
    assert reason("a few words", "minimal", "too_few_words=3") is None
    assert reason("a few words", "minimal", "too_few_words=none") is None
    assert reason("x { " * 100, "minimal", "has_curly_brace=0") == "has_curly_brace"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"profile": "gofer"}, "did you mean 'gopher'"),
        ({"rule": ("too_few_word=3",)}, "did you mean 'too_few_words'"),
        ({"rule": ("too_few_words=many",)}, "rule=number"),
        ({"rule": ("too_few_words",)}, "rule=number"),
        ({"rule": ("too_few_words=NaN",)}, "rule=number"),
    ],
)
def test_an_unknown_or_invalid_rule_is_a_config_error(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RuleSettings(**settings)  # type: ignore[arg-type]


def test_languages_are_judged_before_quality_and_a_missing_language_is_another_one() -> None:
    english = LanguageSettings()
    rules = RuleSettings(profile="gopher")
    assert Decided(table("short", language="de"), rules, english).reason(0) == OTHER_LANGUAGE
    assert Decided(table("short", language=None, score=None), rules, english).reason(0) == OTHER_LANGUAGE
    uncertain = Decided(table("short", score=0.6), rules, english)
    assert (uncertain.reason(0), uncertain.verdict(0).value[0], uncertain.verdict(0).threshold) == (
        UNCERTAIN_LANGUAGE,
        0.6,
        0.65,
    )
    assert Decided(table("short"), None, english).reason(0) is None
    assert Decided(table("short", language=None, score=None), None, ANY).reason(0) is None


def test_yields_count_each_rule_alone_as_the_first_and_as_the_only_one() -> None:
    """Of 40 rows each quality rule drops some; the expected counts come from the decisions of one rule at a time."""
    chance = random.Random(2)
    words = [*PROSE.split(), *(f"word{i}" for i in range(60))]
    prose = [" ".join(chance.choice(words) for _ in range(10 * i)) for i in range(40)]
    texts = [text + " #" * (7 * (i % 5)) + " again" * (i % 11) for i, text in enumerate(prose)]
    rules = RuleSettings(profile="gopher")
    signals = table(*texts)
    yields = count_yields([signals.slice(0, 13), signals.slice(13)], rules, ANY)
    alone = {
        name: ~Decided(
            signals, RuleSettings(profile="minimal", rule=("too_few_words=none", f"{name}={threshold}")), ANY
        ).kept
        for name, threshold in rules.thresholds().items()
    }
    together = sum(mask.astype(int) for mask in alone.values())
    decisions = Decided(signals, rules, ANY)
    assert (yields.documents, yields.kept) == (40, int((together == 0).sum()))
    assert 0 < yields.kept < 40
    assert list(yields.rules) == list(rules.thresholds())
    for name, each in yields.rules.items():
        assert each.alone == alone[name].sum(), name
        assert each.only == (alone[name] & (together == 1)).sum(), name
        assert each.first == sum(decisions.reason(row) == name for row in range(40)), name


def test_yields_of_no_documents_are_empty() -> None:
    assert count_yields([], RuleSettings(), ANY).to_json() == {"documents": 0, "kept": 0, "rules": []}
    assert "0 of 0 documents are kept" in count_yields([table()], RuleSettings(), LanguageSettings()).to_text()


def test_only_the_signals_that_rules_need_are_read() -> None:
    rules = RuleSettings(profile="fineweb")
    signals = table(PROSE, "short", PROSE * 9)
    columns = columns_of(rules, LanguageSettings())
    assert {"language", "language_score", "n_words"} <= set(columns)
    whole, part = (Decided(each, rules, LanguageSettings()) for each in (signals, signals.select(columns)))
    assert (whole.refused_by == part.refused_by).all()
    assert columns_of(None, ANY) == ["failed"]


def test_nothing_is_decided_about_no_documents() -> None:
    assert len(Decided(table(), RuleSettings(profile="fineweb"), LanguageSettings()).kept) == 0


@pytest.mark.usefixtures("linear_time")
def test_megabytes_of_one_word_and_of_many_are_measured_in_linear_time() -> None:
    assert signals_of("x" * 500_000)["n_words"] == 1
    assert signals_of("ab cd " * 5_000)["n_words"] == 10_000


def test_every_reason_without_a_generated_table_is_documented() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "clean.md").read_text("utf-8")
    names = (*REASONS, OTHER_LANGUAGE, UNCERTAIN_LANGUAGE, EXACT, NEAR, NEAR_TRAIN, SHARES_NGRAM)
    missing = [name for name in names if f"`{name}`" not in text]
    assert not missing
