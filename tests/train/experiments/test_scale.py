"""Families of sizes, from runs of a second; fits, pages and errors, from made-up losses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import talking

from webtext.app.main import run
from webtext.base.config import changed
from webtext.base.errors import ConfigError, DryRun, InputError, RunFailed
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.train import TrainSettings
from webtext.train.experiments.recipe_file import recipe_file
from webtext.train.experiments.scale import BITS, NATS, Measured, Scale, make_table, run_scale
from webtext.train.experiments.scale_page import notes, scale_page, scale_text
from webtext.train.experiments.settings import ScaleSettings
from webtext.train.experiments.sizes import Size
from webtext.train.experiments.trials import TrialResult

SMALL: dict[str, Any] = {"sizes": ("1x16", "2x16", "2x32"), "head_size": 16, "check": "3x32", "estimate": False}


@pytest.fixture
def settings(settings: TrainSettings) -> TrainSettings:
    """Settings of runs that are saved only at the end."""
    return changed(settings, checkpoint_interval=None)


pytestmark = pytest.mark.usefixtures("made")
Made = list[TrialResult]


def measured(n: int, loss: float, passes: float = 0.5) -> Measured:
    return Measured(Size(n, f"1x{n}", 1, n, n), 1000, passes, 1e-3, (loss,))


def made_up(check_loss: float) -> Scale:
    rows = [measured(10**k, 5 - 0.5 * k + e) for k, e in ((4, 0.01), (5, -0.01), (6, 0.0), (7, 0.0))]
    return Scale(NATS, "a rule", 1, [make_table("1,000 tokens", rows, measured(10**8, check_loss, passes=1.5))])


def test_the_fit_predicts_one_size_up_and_says_whether_it_was_right() -> None:
    (table,) = made_up(1.0).tables
    assert -table.linear.slope == pytest.approx(0.5, abs=0.01)
    predicted, margin = table.predicted(table.check.size) if table.check else (0.0, 0.0)
    assert predicted == pytest.approx(1.0, abs=0.02)
    assert 0 < margin < 0.2
    assert any("measured 1.0000, inside the interval" in note for note in notes(table))
    (other,) = made_up(2.0).tables
    assert other.linear == table.linear, "the check is not part of the fit"
    assert any("measured 2.0000, outside the interval" in note for note in notes(other))


def test_a_power_law_fits_losses_of_a_power_law_without_residuals() -> None:
    table = make_table("b", [measured(n, 7 * n**-0.1) for n in (1000, 3000, 9000)], None)
    assert table.power_residuals == pytest.approx([0, 0, 0], abs=1e-9)
    assert "N^-0.1000" in notes(table)[1]
    told = Scale(NATS, "", 1, [table]).to_json()["tables"][0]["power_law"]
    assert (told["c"], told["exponent"]) == (pytest.approx(7), pytest.approx(0.1))


def test_caveats_are_printed() -> None:
    text = scale_text(made_up(1.0))
    assert "More than one pass over the tokens: 1x100000000" in text
    assert "no --tokenizer was given" in text
    assert "One seed" in text
    rising = make_table("b", [measured(n, math.log(n)) for n in (10, 100, 1000)], None)
    assert any("Larger models are not better here" in note for note in notes(rising))


def test_the_page_has_a_chart_and_a_table_for_each_budget() -> None:
    table = made_up(1.0).tables[0]
    page = scale_page(Scale(NATS, "a rule", 1, [table, replace(table, budget="<20>")]))
    assert page.count("<svg") == 2
    assert page.count("<circle") == 10
    assert "<20>" not in page
    assert page.count("(predicted)") == 2


def test_every_size_is_trained_under_both_budgets_and_nothing_is_trained_twice(
    sentences: str, tmp_path: Path, settings: TrainSettings, tokenizer: Tokenizer
) -> None:
    scale = ScaleSettings(**SMALL, tokens=512, tokens_per_parameter=0.02)
    name = f"{sentences}/tokenizer/tokenizer.json"
    found = run_scale(f"{sentences}/tokens", str(tmp_path / "scale"), settings, scale, Run.quiet(), tokenizer=name)
    assert [table.budget for table in found.tables] == ["512 tokens", "0.02 tokens a parameter"]
    assert found.unit == BITS
    assert [row.tokens for row in found.tables[0].rows] == [512] * 3
    assert (tmp_path / "scale/runs/512-tokens/1x16/rate-0.01-steps-4/seed-0/metrics.jsonl").exists()
    told = json.loads((tmp_path / "scale/scale.json").read_text())
    check = found.tables[0].check
    assert check is not None
    assert told["tables"][0]["check"]["mean"] == check.mean
    again = run_scale(f"{sentences}/tokens", str(tmp_path / "scale"), settings, scale, Run.quiet())
    ratio = again.tables[0].rows[0].mean / found.tables[0].rows[0].mean
    assert again.unit == NATS
    assert all(
        one.mean / other.mean == pytest.approx(ratio)
        for one, other in zip(again.tables[1].rows, found.tables[1].rows, strict=True)
    )


RATES = (1e-4, 1e-2, 3e-2)


def test_each_size_takes_the_rate_that_its_short_runs_prefer(
    tokens: str, tmp_path: Path, settings: TrainSettings, made: Made
) -> None:
    scale = ScaleSettings(**SMALL, tokens=1024, learning_rates=RATES, tuning_ratio=0.5)
    found = run_scale(tokens, str(tmp_path), settings, scale, Run.quiet())
    trained = [each.trial.settings for each in made]
    assert [(each.steps, each.learning_rate) for each in trained[:12]] == [(4, rate) for rate in RATES] * 4
    rows = [*found.tables[0].rows, found.tables[0].check]
    for row, settings_of in zip(rows, trained[12:], strict=True):
        assert row is not None
        losses = dict(row.tried)
        assert row.learning_rate == min(RATES, key=lambda rate, losses=losses: losses[rate])
        assert (settings_of.shape.n_embd, settings_of.learning_rate, settings_of.steps) == (
            row.size.n_embd,
            row.learning_rate,
            8,
        )
        assert losses[1e-4] > losses[row.learning_rate], "a rate that learns nothing is none's"
    told = json.loads((tmp_path / "scale.json").read_text())["tables"][0]["rows"][0]
    assert [rate for rate, _ in told["tried"]] == list(RATES)
    assert "each size's best of 0.0001, 0.01, 0.03, by runs of 50% of its tokens" in scale_text(found)
    made.clear()
    larger = replace(scale, learning_rates=(*RATES, 1e-3))
    more = run_scale(tokens, str(tmp_path), settings, larger, Run.quiet())
    assert [each.trial.settings.learning_rate for each in made] == [1e-3] * 4, (
        "what was tried, and what was chosen, is there"
    )
    assert [row.values for row in more.tables[0].rows] == [row.values for row in found.tables[0].rows]


def test_runs_that_try_rates_with_all_tokens_are_the_runs_that_are_fitted(
    tokens: str, tmp_path: Path, settings: TrainSettings, made: Made
) -> None:
    scale = ScaleSettings(**SMALL, tokens=256, learning_rates=RATES, tuning_ratio=1.0)
    found = run_scale(tokens, str(tmp_path), settings, scale, Run.quiet())
    assert len(made) == 12
    for row in found.tables[0].rows:
        assert row.mean == dict(row.tried)[row.learning_rate]


def test_a_rate_whose_run_failed_is_not_taken_and_no_size_goes_without(
    tokens: str, tmp_path: Path, settings: TrainSettings, made: Made
) -> None:
    wild = changed(settings, max_grad_norm=None)
    scale = ScaleSettings(**SMALL, tokens=512, learning_rates=(1e-2, 1e30), tuning_ratio=0.5)
    found = run_scale(tokens, str(tmp_path), wild, scale, Run.quiet())
    assert [row.tried[1] for row in found.tables[0].rows] == [(1e30, None)] * 3
    assert "1e+30 failed; taken 0.01" in scale_text(found)
    with pytest.raises(RunFailed, match="1x16, 512 tokens: all rates failed"):
        run_scale(tokens, str(tmp_path), wild, replace(scale, learning_rates=(1e30, 1e31)), Run.quiet())


def test_a_best_rate_at_the_edge_of_those_tried_is_reported() -> None:
    row = measured(1000, 4.0)
    inside = replace(row, learning_rate=2e-3, tried=((1e-3, 4.1), (2e-3, 4.0), (4e-3, 4.2)))
    edge = replace(row, learning_rate=4e-3, tried=((1e-3, 4.2), (2e-3, 4.1), (4e-3, None)))
    table = make_table("b", [inside, replace(edge, size=measured(2000, 4).size), measured(4000, 3.8)], None)
    said = "".join(notes(table))
    assert "the rate of 1x2000, 0.004 is the largest of those tried, so the best may lie beyond; try 0.008 too" in said
    assert said.count("At the edge") == 1
    assert "Rates of 1x1000: 0.001 4.1000, 0.002 4.0000, 0.004 4.2000; taken 0.002." in said
    assert "0.004 failed" in said


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"learning_rates": (1e-3,)}, "learning_rates are 0.001\n.*by --learning-rate"),
        ({"learning_rates": (1e-3, 1e-3)}, "two or more different ones"),
        ({"learning_rates": (1e-3, 0.0)}, "above 0"),
        ({"tuning_ratio": 0.0}, "tuning_ratio is 0.0"),
        ({"tuning_ratio": 1.5}, "at most 1"),
    ],
)
def test_bad_lists_of_rates_are_rejected(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ScaleSettings(**how)


def test_a_dry_run_prints_the_short_runs_too(
    tokens: str, tmp_path: Path, settings: TrainSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = ScaleSettings(**SMALL, tokens=1280, learning_rates=RATES, tuning_ratio=0.2, seeds=2)
    with pytest.raises(DryRun):
        run_scale(tokens, str(tmp_path / "out"), settings, scale, talking(dry_run=True))
    said = capsys.readouterr().err
    assert f"{4 * 2 + 4 * 3} runs, " in said
    assert f" at a time, {4 * 2 * 1280 + 4 * 3 * 256:,} tokens and " in said
    assert "10 steps, 1,280 tokens, 0.13 passes, after 2 steps for each rate" in said


def test_a_dry_run_prints_sizes_tokens_and_passes_and_makes_nothing(
    tokens: str, tmp_path: Path, settings: TrainSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = ScaleSettings(**SMALL, tokens=12_800)
    with pytest.raises(DryRun):
        run_scale(tokens, str(tmp_path / "out"), settings, scale, talking(dry_run=True))
    said = capsys.readouterr().err
    assert "4 runs, " in said
    assert " at a time, 51,200 tokens and " in said
    assert "more than one pass" in said
    assert not (tmp_path / "out").exists()


def test_tokens_without_a_validation_split_are_rejected(
    make_token_set: Callable[..., str], tmp_path: Path, settings: TrainSettings
) -> None:
    with pytest.raises(InputError, match="has no held-out tokens"):
        run_scale(make_token_set("all", validation=0), str(tmp_path), settings, ScaleSettings(tokens=9), Run.quiet())


def test_the_verb_writes_its_page_and_names_what_is_missing(
    tokens: str, tmp_path: Path, settings: TrainSettings
) -> None:
    (tmp_path / "recipe.toml").write_text(recipe_file(settings, []))
    sizes = [
        "--size",
        "1x16",
        "--size",
        "2x16",
        "--size",
        "2x32",
        "--head-size",
        "16",
        "--check",
        "none",
        "--no-estimate",
    ]
    command = [
        "train",
        "scale",
        tokens,
        "--config",
        str(tmp_path / "recipe.toml"),
        *sizes,
        "--out",
        str(tmp_path / "out"),
    ]
    assert run([*command, "--tokens", "256", "--quiet"]) == 0
    assert "<svg" in (tmp_path / "out/scale.html").read_text()
    assert run([*command, "--quiet"]) == 2
