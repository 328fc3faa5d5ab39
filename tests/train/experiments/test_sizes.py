"""Families of sizes: the next size, the rates and steps that follow, and families that are rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from webtext.base.config import changed
from webtext.base.errors import ConfigError
from webtext.train.experiments.settings import ScaleSettings
from webtext.train.experiments.sizes import Size, budgets, family, run_settings
from webtext.train.settings import TrainSettings

SETTINGS = TrainSettings(context=32, batch_size=4, learning_rate=1e-2)


def of(**how: Any) -> tuple[list[Size], Size | None]:
    return family(SETTINGS, ScaleSettings(**how), 61)


def test_sizes_are_sorted_and_the_next_one_is_a_step_beyond() -> None:
    sizes, check = of(sizes=("4x128", "2x64", "3x96"))
    assert [size.name for size in sizes] == ["2x64", "3x96", "4x128"]
    assert check is not None
    assert check.name == "5x160"
    config = changed(SETTINGS, n_layer=5, n_embd=160, n_head=5).config(61)
    assert check.parameters == config.n_parameters
    assert check.in_blocks == config.n_parameters - (61 + 32) * 160
    assert of(check=None)[1] is None
    named = of(check="8x256")[1]
    assert named is not None
    assert named.name == "8x256"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sizes": ("2x64", "3x96")}, "2 sizes make no fit"),
        ({"sizes": ("2x64", "3x96", "2x64")}, "2x64 and 2x64 both have [0-9,]+ parameters"),
        ({"sizes": ("2x64", "3x96", "large")}, "'large' is not LAYERSxWIDTH"),
        ({"sizes": ("2x64", "3x96", "4x100")}, "no heads of 32"),
        ({"check": "2x64"}, "not larger than 5x160"),
    ],
)
def test_sizes_that_make_no_family_are_rejected(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        of(**how)


def test_the_rate_falls_with_the_width_and_steps_cover_the_tokens() -> None:
    sizes, _ = of()
    scale = ScaleSettings(rate_exponent=0.5, warmup_ratio=0.1)
    small, large = (
        run_settings(size, sizes[0], 12_800, SETTINGS, scale) for size in (sizes[0], replace(sizes[0], n_embd=256))
    )
    assert small.learning_rate == 1e-2
    assert large.learning_rate == pytest.approx(5e-3)
    assert (small.steps, small.warmup_steps) == (100, 10)
    muon = changed(SETTINGS, muon_learning_rate=3e-2)
    tuned = run_settings(replace(sizes[0], n_embd=256), sizes[0], 12_800, muon, scale, 2e-2)
    assert (tuned.learning_rate, tuned.optimizer.muon_learning_rate) == (2e-2, pytest.approx(6e-2)), (
        "a given rate does not follow the rule"
    )
    assert run_settings(sizes[0], sizes[0], 12_801, SETTINGS, scale).steps == 101


def test_budgets_are_equal_tokens_equal_tokens_per_parameter_or_both() -> None:
    sizes, _ = of()
    both = budgets(ScaleSettings(tokens=1000, tokens_per_parameter=2), sizes)
    assert both == {"1,000 tokens": [1000.0] * 4, "2 tokens a parameter": [2.0 * size.parameters for size in sizes]}
    with pytest.raises(ConfigError, match="--tokens-per-parameter R, or both"):
        budgets(ScaleSettings(), sizes)
