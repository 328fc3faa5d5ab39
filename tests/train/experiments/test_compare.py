"""Corpora compared: verdicts that follow from the numbers, equal budgets, one frozen validation set, resuming."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import shown
from small_runs import talking, texts_of

from webtext.base.config import changed
from webtext.base.html_pages.rendering import sections_page
from webtext.base.run import Run
from webtext.shards import TokenShards
from webtext.tokenizer import Tokenizer
from webtext.train import TrainSettings
from webtext.train.evaluate.measured import load_measured
from webtext.train.evaluate.perplexity import evaluate_model
from webtext.train.experiments.compare import (
    BETTER,
    NOISE,
    NONE,
    WORSE,
    compare_corpora,
    compared,
    document_stream,
    read_validation,
)
from webtext.train.experiments.trials import Result
from webtext.train.settings import EvalSettings, ExperimentSettings

pytestmark = pytest.mark.usefixtures("made")
COMPARE = ExperimentSettings()


def compare(
    corpora: list[str], out: Path, settings: TrainSettings, how: ExperimentSettings = COMPARE, **more: Any
) -> Result:
    return compare_corpora(corpora, str(out), settings, how, Run.quiet(), **more)


def test_a_corpus_of_letters_is_worse_and_the_same_corpus_again_within_noise(
    sentences: str,
    letters: str,
    make_build: Callable[..., str],
    tmp_path: Path,
    settings: TrainSettings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = changed(settings, steps=20, eval_interval=10, seed=100, checkpoint_interval=None)
    names = [f"plain={sentences}", f"again={sentences}", f"letters={letters}"]
    found = compare_corpora(names, str(tmp_path / "out"), settings, COMPARE, talking())
    said = capsys.readouterr().err
    assert [row.get("verdict") for row in found.rows] == [None, NOISE, WORSE]
    assert said.count("named before") == 1
    assert "; a token set that was named before: other seeds, so only chance differs" in said
    assert "20 steps each; validation set: 6 documents" in said
    assert "9 runs, 1 at a time, 23,040 tokens in all" in said

    written = json.loads((tmp_path / "out/compare.json").read_text())
    assert [row["seeds"] for row in written["rows"]] == [[100, 101, 102], [103, 104, 105], [100, 101, 102]]
    assert written["tokens"] == 20 * 4 * 32
    assert written["validation"].startswith("6 documents")
    packed = make_build("packed", {"none": "of these"}, read_validation(f"{tmp_path}/out/validation.jsonl"))
    tok = Tokenizer.load(f"{letters}/tokenizer/tokenizer.json")
    model = load_measured(f"{tmp_path}/out/runs/letters/seed-101", tok)
    alone = evaluate_model(model, f"{packed}/tokens", EvalSettings(), Run.quiet())
    assert found.rows[2]["bits_per_byte"][1] == pytest.approx(alone["bits_per_byte"], rel=1e-6)

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/runs").rglob("*.*s*")}
    more = compare(names, tmp_path / "out", settings)
    assert more.to_json() == found.to_json()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out/runs").rglob("*.*s*")} == before

    assert (tmp_path / "out/compare.html").read_text() == sections_page(found.title, found.sections())
    with shown(tmp_path / "out/compare.html") as browser:
        rows = [row.inner_text().split() for row in browser.query_selector_all("tr")]
    assert [row[0] for row in rows] == ["corpus", "plain", "again", "letters"]
    assert [rows[2][-1], rows[3][-1]] == ["noise", "worse"]


def test_a_damaged_file_of_measures_is_made_again(
    sentences: str, letters: str, tmp_path: Path, settings: TrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = replace(COMPARE, seeds=1)
    found = compare([sentences, letters], tmp_path / "out", settings, once)
    assert [row.get("verdict") for row in found.rows] == [None, NONE], "one seed shows nothing about chance"
    for measures in (tmp_path / "out").rglob("measures.json"):
        measures.write_text("{")
    monkeypatch.setattr("webtext.train.experiments.trials.Child", None)  # no process is started for a finished run
    assert compare([sentences, letters], tmp_path / "out", settings, once).to_json() == found.to_json()


def test_no_run_repeats_the_smallest_corpus(
    sentences: str, make_build: Callable[..., str], tmp_path: Path, settings: TrainSettings
) -> None:
    small = make_build(
        "small", {f"s{i}": text for i, text in enumerate(texts_of(4, 12))}, {"held 0": texts_of(1, 1)[0]}
    )
    found = compare([sentences, small], tmp_path / "out", changed(settings, steps=10_000), replace(COMPARE, seeds=1))
    trained, in_small = found.facts["tokens"], TokenShards(f"{small}/tokens", "train").n_tokens
    assert in_small - 4 * 32 < trained <= in_small


def test_a_verdict_needs_a_difference_beyond_that_of_seeds_and_documents() -> None:
    """A hundred documents of 100 bytes, of which each has the run's bits per byte and none tells more than another."""

    def judged(runs: list[list[float]]) -> list[dict[str, Any]]:
        bits = 100 * np.repeat(np.array(runs)[..., None], 100, -1)
        corpora = [{"corpus": f"{i}", "documents": 1, "passes": 1.0, "losses": of} for i, of in enumerate(bits)]
        return list(compared(corpora, np.full(100, 100.0), {"tokens": 1, "validation": ""}).rows[1:])

    found = judged([[1.00, 1.02, 0.98], [1.01, 0.99, 0.97], [0.90, 0.91, 0.89], [1.2, 1.21, 1.22]])
    assert [row["verdict"] for row in found] == [NOISE, BETTER, WORSE]
    assert found[0]["difference"] == pytest.approx(-0.01)
    for values in ([[1.0, 1.0], [0.5, 0.5]], [[1.0], [0.5]]):
        assert [row["verdict"] for row in judged(values)] == [NONE]


def test_losses_are_those_of_documents(tokenizer: Tokenizer) -> None:
    """An end-of-text belongs to the document that it ends."""
    tokens, documents = document_stream(["the old dog", "a cat"], tokenizer)
    n_first = len(tokenizer.encode("the old dog"))
    assert tokens[n_first + 1] == tokenizer.eot_id
    assert documents.tolist() == [0] * (n_first + 1) + [1] * len(tokenizer.encode("a cat"))
