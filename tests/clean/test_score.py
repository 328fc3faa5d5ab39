"""The vote score: what it learns, on whom it is judged, what it writes, and which files it rejects."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dedup_sets import document, write_set
from hypothesis import given
from hypothesis import strategies as st
from reference.features import features_of
from set_contents import contents, rows, write_jsonl
from unspaced_texts import WORDS
from warc_files import article, site, write_pages

from webtext.app.main import run as webtext
from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.parts.partset import PartSet
from webtext.base.parts.schemas import DOCUMENT, SCORED_SIGNALS, SIGNALS
from webtext.base.run import Run
from webtext.clean import _ngrams
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages, count_rule_yields, documents_sets, filter_documents
from webtext.clean.rules.measure import COLUMNS, signals_table
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.score.model import MAGIC, MAX_CHARACTERS, ScoreModel, open_model, write_model
from webtext.clean.score.train import train_score
from webtext.clean.text.arrays import texts_of

GOOD = ["argument", "evidence", "history", "essay", "reason", "question", "answer", "example", "because", "however"]
BAD = ["cart", "checkout", "shipping", "sale", "discount", "login", "cookie", "subscribe", "price", "basket"]
COMMON = [f"word{i}" for i in range(200)]
CARD: dict[str, Any] = {"auc": 0.5}


def native(texts: list[str], bits: int = 18) -> list[list[int]]:
    found, ends = _ngrams.features(*texts_of(pa.array(texts, pa.large_string())), bits)
    return [found[start:end].tolist() for start, end in zip(ends, ends[1:], strict=False)]


def texts(own: list[str], n: int, seed: int, share: float = 0.1) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choice(own if chance.random() < share else COMMON) for _ in range(60)) for _ in range(n)]


def documents(given: list[str], side: str, per_domain: int = 2) -> list[dict[str, Any]]:
    return [
        document(f"{side}{i}", text) | {"domain": f"{side}{i // per_domain}.example"} for i, text in enumerate(given)
    ]


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("webtext.clean.score.train.N_RESAMPLES", 100)
        yield


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[PartSet, PartSet]:
    """200 texts with a few words of GOOD, and 200 with as many of BAD, in 100 domains each."""
    folder = tmp_path_factory.mktemp("sets")
    good, bad = (documents(texts(own, 200, i), f"d{i}") for i, own in enumerate((GOOD, BAD)))
    return write_set(folder / "voted", good, 3), write_set(folder / "background", bad)


@pytest.fixture(scope="module")
def model(sets: tuple[PartSet, PartSet], tmp_path_factory: pytest.TempPathFactory) -> ScoreModel:
    return train(*sets, tmp_path_factory.mktemp("model") / "votes.score")


def train(voted: PartSet, background: PartSet, out: Path, per_domain: int = 10, most: int = 1000) -> ScoreModel:
    return train_score([voted], [background], str(out), per_domain=per_domain, most=most)


def small(path: Path, seed: int = 0) -> ScoreModel:
    weights = np.random.default_rng(seed).integers(-127, 128, 1 << 10).astype(np.int16)
    return write_model(str(path), weights, {"factor": 0.05, "offset": -0.25, "card": CARD})


def signed(*parts: bytes) -> bytes:
    data = b"\n".join(parts)
    return data + hashlib.sha256(data).digest()


def test_the_features_of_a_text_are_its_words_pairs_of_words_and_runs_of_six_characters() -> None:
    found = features_of("Vote early, vote often!", 18)
    assert len(found) == 3 + 3 + len({"vote early vote often"[i : i + 6] for i in range(16)})
    assert found[:3] == [features_of(word, 18)[0] for word in ("vote", "EARLY", "often")]
    assert features_of("", 18) == features_of("... --- 。", 18) == []
    assert features_of("vote", 18) == found[:1]


@given(
    st.lists(
        st.one_of(st.text(), st.text("ab 語กé.\n"), st.sampled_from(["".join(each) for each in WORDS.values()])),
        max_size=5,
    ),
    st.integers(1, 24),
)
def test_native_and_readable_features_are_equal(given: list[str], bits: int) -> None:
    assert native(given, bits) == [features_of(text, bits) for text in given]


def test_repeating_a_text_layout_case_and_punctuation_hardly_change_its_features() -> None:
    text = article(1, 40)
    (once, twice, shouted) = native([text, f"{text}\n\n{text}", text.upper().replace(" ", "\n* ")])
    assert set(once) == set(shouted)
    assert len(set(twice) - set(once)) <= 8  # where the copies meet


def test_sizes_that_no_table_can_have_are_rejected() -> None:
    for bits in (0, 25, 60):
        with pytest.raises(ValueError, match="bits must be between 1 and 24"):
            native(["text"], bits)


def test_a_score_is_the_sigmoid_of_the_mean_weight_as_the_page_says(tmp_path: Path) -> None:
    made = small(tmp_path / "m")
    given = [article(1, 40), "one", "語の勉強", "!?", ""]
    found = made.scores(pa.array(given, pa.large_string())).to_pylist()
    for text, score in zip(given, found, strict=True):
        features = features_of(text, 10)
        if not features:
            assert score is None
            continue
        power = 0.05 * sum(int(made.weights[each]) for each in features) / math.sqrt(len(features)) - 0.25
        assert score == round(1 / (1 + math.exp(-power)), 6)
    assert found[3:] == [None, None]


def test_only_the_start_of_a_long_text_is_read(tmp_path: Path) -> None:
    made, start = small(tmp_path / "m"), ("ä word " * MAX_CHARACTERS)[:MAX_CHARACTERS]
    first, second, third = made.scores(
        pa.array([start, start + " cart" * 999, start[:99]], pa.large_string())
    ).to_pylist()
    assert first == second != third


def test_numbers_beyond_any_probability_give_0_and_1(tmp_path: Path) -> None:
    for factor, score in ((1e300, 1.0), (-1e300, 0.0), (10**30, 1.0)):
        made = write_model(str(tmp_path / "m"), np.ones(2, np.int16), {"factor": factor, "offset": 0.0, "card": CARD})
        assert made.scores(pa.array(["some words"])).to_pylist() == [score]


def test_it_tells_texts_of_unseen_domains_apart(model: ScoreModel) -> None:
    good, bad = (model.scores(pa.array(texts(own, 50, 9))).to_numpy() for own in (GOOD, BAD))
    assert (good > 0.5).mean() > 0.9 > 0.1 > (bad > 0.5).mean()
    card = model.header["card"]
    low, high = card["auc_interval"]
    assert 0.95 < low <= card["auc"] <= high <= 1
    assert card["voted"] | {"sets": 0} == {"documents": 200, "taken": 200, "domains": 100, "sets": 0}


def test_what_marks_a_domain_counts_for_nothing(tmp_path: Path) -> None:
    """Each domain has words of its own: a model would be right on seen domains, and can only guess on others."""
    chance = random.Random(0)
    own = [["".join(chance.choices("abcdefghij", k=8)) for _ in range(2)] for _ in range(120)]
    made = [text for i, each in enumerate(own) for text in texts(each, 4, i, 0.3)]
    voted, background = (
        write_set(tmp_path / side, documents(made[at : at + 240], side, 4)) for side, at in (("v", 0), ("b", 240))
    )
    card = train(voted, background, tmp_path / "m").header["card"]
    assert 0.35 < card["auc"] < 0.65
    sides = [[row | {"domain": None} for row in rows(each)] for each in (voted, background)]
    seen = [write_set(tmp_path / f"seen{i}", each) for i, each in enumerate(sides)]
    assert train(*seen, tmp_path / "m").header["card"]["auc"] > 0.7


def test_the_card_s_probabilities_are_frequencies(tmp_path: Path) -> None:
    """Half of both sides is alike, so that those texts are voted as often as not."""
    sides = []
    for i, own in enumerate((GOOD, BAD)):
        given = texts(own, 150, i, 0.3) + texts(COMMON, 150, 10 + i)
        sides.append(write_set(tmp_path / str(i), documents(given, f"s{i}", 1)))
    card = train(*sides, tmp_path / "m").header["card"]
    assert sum(n for n, _, _ in card["reliability"]) == pytest.approx(1, abs=0.001)
    assert card["calibration_error"] < 0.15
    assert 0.8 < card["auc"] < 0.95  # 7 of 8 pairs, if the alike are a coin's toss
    kept = [(voted, background) for _, voted, background in card["curve"]]
    assert kept == sorted(kept, reverse=True)
    assert all(voted >= background for voted, background in kept)


def test_equal_texts_give_equal_bytes_however_they_are_stored(
    sets: tuple[PartSet, PartSet], model: ScoreModel, tmp_path: Path
) -> None:
    assert Path(train(*sets, tmp_path / "again").location).read_bytes() == Path(model.location).read_bytes()
    mixed = rows(sets[0])
    mixed += [row | {"domain": "other.example"} for row in mixed[:30]]  # copies elsewhere: no domain is first
    in_order = train(write_set(tmp_path / "in order", mixed), sets[1], tmp_path / "in order.score")
    random.Random(0).shuffle(mixed)
    halves = [write_set(tmp_path / "a", mixed[:150], 2), write_set(tmp_path / "b", mixed[100:])]
    other = train_score(halves, [sets[1]], str(tmp_path / "other"), per_domain=10, most=1000)
    assert np.array_equal(other.weights, in_order.weights)
    assert (other.header["factor"], other.header["offset"]) == (in_order.header["factor"], in_order.header["offset"])


def test_a_domain_and_a_side_count_for_no_more_than_their_limits(sets: tuple[PartSet, PartSet], tmp_path: Path) -> None:
    large = write_set(tmp_path / "large", rows(sets[0]) + documents(texts(GOOD, 300, 5), "one", 300))
    card = train(large, sets[1], tmp_path / "m", per_domain=3).header["card"]
    assert (card["voted"]["documents"], card["voted"]["taken"], card["voted"]["domains"]) == (500, 203, 101)
    card = train(large, sets[1], tmp_path / "m", most=80).header["card"]
    assert (card["voted"]["taken"], card["background"]["taken"]) == (80, 80)


def test_a_text_without_a_domain_is_a_domain_by_itself(tmp_path: Path) -> None:
    given = [write_set(tmp_path / str(i), [document(f"{i}-{j}", text) for j, text in enumerate(texts(own, 30, i))])
             for i, own in enumerate((GOOD, BAD))]  # fmt: skip
    assert train(*given, tmp_path / "m").header["card"]["voted"]["domains"] == 30


def test_background_that_is_voted_too_is_left_out(
    sets: tuple[PartSet, PartSet], tmp_path: Path, model: ScoreModel
) -> None:
    both = write_set(tmp_path / "both", rows(sets[1]) + rows(sets[0]))
    made = train(sets[0], both, tmp_path / "m")
    assert made.header["card"]["in_both"] == 200
    assert np.array_equal(made.weights, model.weights)


def test_sides_that_cannot_be_told_apart_are_an_error(sets: tuple[PartSet, PartSet], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the background pages have no texts with words beside the 200 that are voted"):
        train(sets[0], sets[0], tmp_path / "m")
    empty = write_set(tmp_path / "empty", [])
    with pytest.raises(InputError, match="the voted pages have no texts with words"):
        train(empty, sets[0], tmp_path / "m")
    wordless = write_set(tmp_path / "wordless", documents([f"... {'-' * i}" for i in range(50)], "w"))
    with pytest.raises(InputError, match="the background pages have no texts with words"):
        train(sets[0], wordless, tmp_path / "m")
    one = write_set(tmp_path / "one", documents(texts(BAD, 50, 3), "one", 50))
    with pytest.raises(InputError, match="the background pages have texts of 1 domains"):
        train(sets[0], one, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_texts_without_words_are_counted(sets: tuple[PartSet, PartSet], tmp_path: Path) -> None:
    some = write_set(tmp_path / "some", rows(sets[0]) + documents(["?!", "..."], "w"))
    card = train(some, sets[1], tmp_path / "m").header["card"]
    assert (card["without_words"], card["voted"]["taken"]) == (2, 200)


def test_a_file_cut_or_changed_anywhere_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "m"
    data = Path(small(path).location).read_bytes()
    places = {*range(0, len(data), 37), len(MAGIC), len(data) - 1}
    changed = [data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in places]
    for damaged in [*changed, *(data[:size] for size in (0, 5, 20, 21, 60, 200, -33, -1))]:
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="altered or is truncated|is not a vote score of version 1"):
            open_model(str(path))


def test_another_version_or_another_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(Path(small(path).location).read_bytes().replace(b"score 1\n", b"score 2\n", 1))
    with pytest.raises(InputError, match="is not a vote score of version 1"):
        open_model(str(path))
    with pytest.raises(InputError, match="no file"):
        open_model(str(tmp_path / "none"))
    with pytest.raises(InputError, match="is not a regular file"):
        open_model(str(tmp_path))


@pytest.mark.parametrize(
    "changed",
    [{"bits": 60}, {"bits": 9}, {"bits": -1}, {"bits": 10.5}, {"bits": None}, {"factor": math.nan}, {"offset": math.inf},
     {"offset": 10**400}, {"factor": "1"}],
)  # fmt: skip
def test_absurd_sizes_and_numbers_are_rejected_before_anything_is_made_of_them(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    header = dict(small(tmp_path / "m").header) | changed
    (tmp_path / "m").write_bytes(signed(MAGIC, json.dumps(header).encode(), bytes(2 << 10)))
    with pytest.raises(InputError, match="(has sizes or numbers that give no score|is damaged)"):
        open_model(str(tmp_path / "m"))


@pytest.mark.parametrize("head", [b"{}", b"[]", b"{", b"[" * 100_000, b"\xff"])
def test_a_header_of_another_kind_is_rejected(head: bytes, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(signed(MAGIC, head, bytes(2 << 10)))
    with pytest.raises(InputError):
        open_model(str(tmp_path / "m"))


def test_a_model_of_other_tables_of_words_is_rejected(tmp_path: Path) -> None:
    header = dict(small(tmp_path / "m").header) | {"unicode": "99.0"}
    (tmp_path / "m").write_bytes(signed(MAGIC, json.dumps(header).encode(), bytes(2 << 10)))
    with pytest.raises(InputError, match="are those of Unicode 99.0, this package 14.0.0"):
        open_model(str(tmp_path / "m"))


def test_a_model_travels_to_workers_in_one_message(model: ScoreModel) -> None:
    sent = pickle.dumps(model)
    assert len(sent) < 1 << 20
    assert np.array_equal(pickle.loads(sent).weights, model.weights)


def test_signals_have_the_score_and_a_rule_drops_by_it(tmp_path: Path, alone: Run, run: Run, model: ScoreModel) -> None:
    given = [*texts(GOOD, 4, 20), *texts(BAD, 4, 21)]
    path = write_jsonl(tmp_path / "in.jsonl", *({"id": str(i), "text": text} for i, text in enumerate(given)))
    changes = ("too_few_words=none", "vote_score_too_low=0.5")
    rules = RuleSettings(profile="minimal", rule=changes, score_model=model.location)
    language = LanguageSettings(language=("all",))
    result = filter_documents([path], str(tmp_path / "one"), rules, language, alone)
    assert result.signals is not None
    expected = model.scores(pa.array(given)).to_pylist()
    table = result.signals.table(0)
    assert table.schema.equals(SCORED_SIGNALS)
    assert table["vote_score"].to_pylist() == expected
    assert [row["id"] for row in rows(result.corpus)] == ["0", "1", "2", "3"]
    assert {(row["reason"], row["threshold"]) for row in rows(result.dropped)} == {("vote_score_too_low", 0.5)}
    assert [row["value"] for row in rows(result.dropped)] == expected[4:]
    assert result.signals.recipe["settings"] == {"score_model": model.sha256}
    assert "score_model" not in result.corpus.recipe["settings"]["rules"]  # its path may differ
    filter_documents([path], str(tmp_path / "two"), rules, language, run)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    yields = count_rule_yields([str(tmp_path / "one" / "documents")], str(tmp_path / "one"), rules, language, alone)
    assert (yields.kept, yields.rules["vote_score_too_low"].alone) == (4, 4)


@pytest.mark.slow  # four builds
def test_another_model_measures_again_and_none_leaves_the_column_out(tmp_path: Path, alone: Run) -> None:
    pages = write_pages(tmp_path / "pages", [[site(i, article(i, 60)) for i in range(3)]])

    def built(out: str, model: ScoreModel | None) -> PartSet:
        rules = RuleSettings(score_model=model.location if model else None)
        result = clean_pages([pages.folder.url], str(tmp_path / out), CleanSettings(rules=rules), alone)
        assert result.signals is not None
        return result.signals

    first = built("a", small(tmp_path / "m")).table(0)
    second = built("a", small(tmp_path / "n", seed=1)).table(0)
    assert first["vote_score"] != second["vote_score"]
    assert first.drop_columns("vote_score") == second.drop_columns("vote_score")
    bare = built("a", None)
    assert bare.table(0).schema.equals(SIGNALS)
    built("b", None)
    assert contents(tmp_path / "a" / "signals") == contents(tmp_path / "b" / "signals")
    assert bare.recipe["settings"] == {}


def test_a_document_that_cannot_be_measured_or_has_no_word_has_no_score(tmp_path: Path) -> None:
    given = [{"id": "", "text": text} for text in ("x" * 10_000_001, "--")]
    batch = pa.RecordBatch.from_pylist(given, pa.schema([DOCUMENT.field(name) for name in COLUMNS]))
    table = signals_table(batch, small(tmp_path / "m"))
    assert table["vote_score"].to_pylist() == [None, None]
    assert table["failed"].to_pylist() == ["too_many_bytes", None]


def test_the_rule_without_a_model_is_an_error_before_anything_is_read(tmp_path: Path, alone: Run) -> None:
    rules = RuleSettings(rule=("vote_score_too_low=0.5",))
    with pytest.raises(ConfigError, match="the rule 'vote_score_too_low' needs a model"):
        clean_pages([str(tmp_path / "none")], str(tmp_path / "out"), CleanSettings(rules=rules), alone)
    missing = RuleSettings(score_model=str(tmp_path / "none"))
    with pytest.raises(InputError, match="no file"):
        clean_pages([str(tmp_path / "none")], str(tmp_path / "out"), CleanSettings(rules=missing), alone)


def test_pages_files_and_several_sets_are_taken_together(tmp_path: Path, alone: Run) -> None:
    pages = write_pages(tmp_path / "pages", [[site("p", article(1, 60))]])
    first, second = (write_set(tmp_path / name, [document(name, "a text")]) for name in "ab")
    found = documents_sets([first.folder.url, pages.folder.url, second.folder.url], str(tmp_path / "out"), alone)
    assert [each.folder.url for each in found] == [first.folder.url, second.folder.url, str(tmp_path / "out/documents")]
    file = write_jsonl(tmp_path / "f.jsonl", {"text": "another text"})
    assert [row["text"] for row in rows(documents_sets([file], str(tmp_path / "other"), alone)[0])] == ["another text"]


def test_the_verb_trains_and_prints_what_the_score_would_keep(
    sets: tuple[PartSet, PartSet], model: ScoreModel, tmp_path: Path, clean: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    voted, background = (each.folder.url for each in sets)
    out = str(tmp_path / "votes.score")
    said = clean("score", "train", voted, "--background", background, "--out", out)
    assert said.startswith(f"area under the curve on unseen domains: {model.header['card']['auc']:.4f} [")
    assert "  0.5  100.0 %       0.0 %\n" in said
    answer = json.loads(clean("score", "train", voted, "--background", background, "--out", out, "--json"))
    assert answer["card"] == {**open_model(out).header["card"]}
    assert webtext(["clean", "score", "train", voted, "--out", out]) == 2
    assert "no --background given" in capsys.readouterr().err
    with pytest.raises(DryRun):
        clean("score", "train", voted, "--background", background, "--out", str(tmp_path / "x"), "--dry-run")
    assert not (tmp_path / "x").exists()
    mine = write_jsonl(tmp_path / "mine.jsonl", {"text": "not a model"})
    for other, message in ((mine, "is not a vote score, and would be replaced"), (voted, "Is a directory")):
        assert webtext(["clean", "score", "train", voted, "--background", background, "--out", other]) == 3
        assert message in capsys.readouterr().err
    assert "not a model" in Path(mine).read_text()
