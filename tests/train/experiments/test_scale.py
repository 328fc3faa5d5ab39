"""Families of sizes, from runs of a second; the law's fit, sentences, pages and errors, from made-up losses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import flags, talking

from webtext.app.main import run
from webtext.base.config import changed
from webtext.base.errors import ConfigError, DryRun, InputError, RunFailed
from webtext.base.html_pages.rendering import sections_page, sections_text
from webtext.base.run import Run
from webtext.train import TrainSettings
from webtext.train.experiments.scale import family, run_scale, scaled
from webtext.train.experiments.trials import Result, Trial
from webtext.train.settings import ScaleSettings

SMALL: dict[str, Any] = {"sizes": ("1x32", "2x32", "2x64")}
TOKENS = (256, 512, 1024)
SETTINGS = TrainSettings(context=32, batch_size=4, learning_rate=1e-2)


@pytest.fixture
def settings(settings: TrainSettings) -> TrainSettings:
    """Settings of runs that are saved only at the end."""
    return changed(settings, checkpoint_interval=None)


pytestmark = pytest.mark.usefixtures("made")
Made = list[tuple[Trial, int | None]]


def measured(n: int, tokens: int, loss: float) -> dict[str, Any]:
    return {"size": f"1x{n}", "parameters": n, "tokens": tokens, "passes": 0.5, "losses": [loss]}


def loss_of(n: float, d: float) -> float:
    """The law as Hoffmann et al. 2022 fitted it (section D.3)."""
    return 1.69 + 406.4 / n**0.34 + 410.7 / d**0.28


def made_up() -> Result:
    return scaled(
        [
            measured(n, d, loss_of(n, d) * (1.001 if i % 2 else 0.999))
            for i, (n, d) in enumerate((n, d) for n in (10**5, 10**6, 10**7, 10**8) for d in (10**6, 10**7, 10**8))
        ]
    )


def test_the_answer_has_every_constant_with_its_interval_and_caveats() -> None:
    found = made_up()
    assert [row["fit"] for row in found.rows] == pytest.approx([row["loss"] for row in found.rows], rel=2e-3)
    for name, value in (("alpha", 0.34), ("beta", 0.28), ("E", 1.69), ("compute_exponent", 0.28 / 0.62)):
        middle, low, high = found.to_json()["law"][name]
        assert low < middle < high
        assert low < value < high
    text = sections_text(found.sections())
    assert "approach 3" in text
    assert "One seed" in text
    assert len([line for line in text.splitlines() if line.startswith("  1x")]) == 12


def test_the_page_draws_a_line_for_each_budget() -> None:
    page = sections_page("Loss", made_up().sections())
    assert page.count("<svg") == 2  # for broad and narrow pages
    assert page.count("</title></path>") == 2 * 12
    assert page.count('stroke-width="2.4"') == 2 * 3


def test_sizes_are_sorted_and_counted_as_the_model_counts_itself() -> None:
    sizes = family(SETTINGS, ScaleSettings(sizes=("4x128", "2x64", "3x96")), 61)
    assert [size.config(61).n_embd for size in sizes] == [64, 96, 128]
    assert sizes[2] == changed(SETTINGS, n_layer=4, n_embd=128, n_head=4)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sizes": ("2x64", "3x96")}, "sizes 2x64, 3x96 determine no law"),
        ({"sizes": ("2x64", "3x96", "2x64")}, "at least 3, all different"),
        ({"sizes": ("2x64", "3x96", "large")}, "'large' is not LAYERSxWIDTH"),
        ({"sizes": ("2x64", "3x96", "4x100")}, "no heads of 32"),
        ({"sizes": ("2x64", "3x96", "0x64")}, "'0x64' is not LAYERSxWIDTH"),
    ],
)
def test_sizes_that_make_no_family_are_rejected(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        family(SETTINGS, ScaleSettings(**how), 61)


def test_every_size_is_trained_with_every_budget_and_nothing_is_trained_twice(
    tokens: str, tmp_path: Path, settings: TrainSettings, made: Made
) -> None:
    scale = ScaleSettings(**SMALL, tokens=TOKENS, seeds=2)
    found = run_scale(tokens, str(tmp_path), settings, scale, Run.quiet())
    assert [(row["size"], row["tokens"]) for row in found.rows] == [
        (size, n) for size in SMALL["sizes"] for n in TOKENS
    ]
    assert (tmp_path / "runs/1x32-tokens-512/seed-1/metrics.jsonl").exists()
    assert len(made) == 18
    assert "over 18 runs" in found.notes[0], "every seed is fitted"
    told = json.loads((tmp_path / "scale.json").read_text())
    assert told == json.loads(json.dumps(found.to_json()))
    made.clear()
    again = run_scale(tokens, str(tmp_path), settings, scale, Run.quiet())
    assert again.to_json() == found.to_json()
    assert made == []
    with pytest.raises(ConfigError, match="was made with eval_windows 4, but here it is 5"):
        run_scale(tokens, str(tmp_path), changed(settings, eval_windows=5), scale, Run.quiet())


def test_a_run_that_fails_leaves_no_law(tokens: str, tmp_path: Path, settings: TrainSettings) -> None:
    wild = changed(settings, max_grad_norm=None, learning_rate=1e30)
    with pytest.raises(RunFailed, match="is (nan|inf)"):
        run_scale(tokens, str(tmp_path), wild, ScaleSettings(**SMALL, tokens=TOKENS), Run.quiet())


def test_a_budget_of_nothing() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        ScaleSettings(tokens=(5, 0))


def test_a_dry_run_prints_sizes_tokens_and_passes_and_makes_nothing(
    tokens: str, tmp_path: Path, settings: TrainSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = ScaleSettings(**SMALL, tokens=(1280, 2560, 12_800), seeds=2)
    with pytest.raises(DryRun):
        run_scale(tokens, str(tmp_path / "out"), settings, scale, talking(dry_run=True))
    said = capsys.readouterr().err
    assert "18 runs, " in said
    assert f" at a time, {3 * 16_640 * 2:,} tokens in all" in said
    assert "10 steps, 1,280 tokens, 0.13 passes" in said
    assert "passes; repeated text teaches less" in said
    assert not (tmp_path / "out").exists()


def test_tokens_without_a_validation_split_and_too_few_budgets_are_rejected(
    make_token_set: Callable[..., str], tokens: str, tmp_path: Path, settings: TrainSettings
) -> None:
    with pytest.raises(InputError, match="has no held-out tokens"):
        run_scale(make_token_set("all", validation=0), str(tmp_path), settings, ScaleSettings(), Run.quiet())
    with pytest.raises(ConfigError, match="2 budgets of tokens determine no law"):
        run_scale(tokens, str(tmp_path), settings, ScaleSettings(**SMALL, tokens=(5, 9, 9)), Run.quiet())


def test_the_verb_writes_its_page_and_names_what_is_missing(
    tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = flags(context=32, batch_size=4, microbatch_size=4, dtype="float32", device="cpu", eval_windows=4)
    sizes = " ".join(f"--size {size}" for size in SMALL["sizes"])
    command = ["train", "scale", tokens, *model, *sizes.split(), "--out", str(tmp_path / "out")]
    assert run([*command, "--tokens", "256,512,1024", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["law"]) == {"E", "A", "alpha", "B", "beta", "compute_exponent"}
    assert "<svg" in (tmp_path / "out/scale.html").read_text()
    assert run([*command, "--quiet"]) == 2
    assert math.isfinite(json.loads((tmp_path / "out/scale.json").read_text())["rows"][0]["fit"])
