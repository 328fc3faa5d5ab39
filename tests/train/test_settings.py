"""What the settings reject, and how a step's batch is divided."""

from __future__ import annotations

from typing import Any

import pytest

from webtext.base.config import SECTIONS, changed, options, recipe_settings, subsections
from webtext.base.errors import ConfigError
from webtext.train.settings import EvalSettings, ExperimentSettings, SampleSettings, TrainSettings, difference


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps is 0\nit must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0\nit must be above 0"),
        ({"steps": 100}, "warmup_steps is 700\nit must be 0 or more and below steps = 100"),
        ({"eval_interval": 0}, "eval_interval is 0\nit must be at least 1, or none"),
        ({"max_grad_norm": 0.0}, "max_grad_norm is 0.0"),
        ({"dtype": "bfloat"}, "dtype is 'bfloat'\ndid you mean 'bfloat16'?"),
        ({"schedule": "cosin"}, "schedule is 'cosin'\ndid you mean 'cosine'?"),
        ({"spike_sigmas": 0.0}, "spike_sigmas is 0.0"),
        ({"decay_ratio": 1.5}, "decay_ratio is 1.5\nit must be in [0, 1]"),
        ({"compile": "of"}, "compile is 'of'\ndid you mean 'off'?"),
        ({"compile": True}, "[train.machine] compile = True: expected a string"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"optimizer": "moun"}, "optimizer is 'moun'\ndid you mean 'muon'?"),
        ({"muon_learning_rate": 0.0}, "muon_learning_rate is 0.0\nit must be above 0"),
    ],
)
def test_an_impossible_setting_is_named_with_its_bounds(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainSettings.of(**change)
    assert str(caught.value).startswith(message)


def test_the_default_step_is_half_a_million_tokens_on_any_number_of_processes() -> None:
    """512 sequences of 1,024 tokens, like the paper's batch; with 8 at once there are 64, 8 and 1 microbatches."""
    settings = TrainSettings()
    assert settings.batch_size * settings.context == 524_288
    assert [settings.accumulation(n) for n in (1, 8, 64)] == [(8, 64), (8, 8), (8, 1)]
    assert settings.accumulation(128) == (4, 1)
    with pytest.raises(ConfigError, match="is not a multiple of 3 x"):
        settings.accumulation(3)


def test_a_named_size_may_be_changed_in_part() -> None:
    config = TrainSettings.of(model="345M", n_layer=6, context=128).config(5000)
    assert (config.n_layer, config.n_head, config.n_embd, config.context, config.vocab_size) == (6, 16, 1024, 128, 5000)


def test_the_first_difference_is_reported_in_the_order_of_the_settings() -> None:
    recorded, wanted = {"vocab_size": 3, "seed": 2, "steps": 1}, {"vocab_size": 4, "seed": 3, "steps": 2}
    assert difference(recorded, wanted) == "steps is 2 here and 1 in the checkpoint"
    assert difference({"a": 1}, {"a": 1}) == ""


@pytest.mark.parametrize("name", ["stride", "windows", "batch_size", "seeds"])
def test_impossible_evaluations_and_experiments_are_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0"):
        (ExperimentSettings if name == "seeds" else EvalSettings)(**{name: 0})


@pytest.mark.parametrize(
    ("name", "values"),
    [("top_p", (0.0, 1.1)), ("max_tokens", (0, 10**10)), ("temperature", (-1.0, 1e-40, float("nan"))), ("top_k", (0,))],
)
def test_impossible_samples_are_rejected(name: str, values: tuple[float, ...]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name} is "):
            SampleSettings(**{name: value})


def test_a_recipe_is_flat_and_leaves_out_what_changes_no_result() -> None:
    change = {"n_layer": 2, "n_head": 2, "n_embd": 32, "weights": (0.3, 0.7), "optimizer": "muon", "schedule": "wsd"}
    change |= {"max_grad_norm": None, "documents": "masked"}
    settings = TrainSettings.of(**change, mesh="dp=2", stop_at_step=7)
    recipe = recipe_settings(settings)
    assert {name: recipe[name] for name in change} == change | {"weights": [0.3, 0.7]}
    assert not recipe.keys() & {"mesh", "stop_at_step", "device", "machine"}
    assert changed(settings, n_layer=3, steps=900) == TrainSettings.of(
        **change | {"n_layer": 3}, steps=900, mesh="dp=2", stop_at_step=7
    )


def test_train_itself_has_the_ten_settings_that_most_runs_set() -> None:
    own = [name for name, option in options(TrainSettings).items() if not option.subsection]
    assert own == [
        *("model", "context", "steps", "batch_size", "microbatch_size", "learning_rate", "warmup_steps"),
        *("seed", "dtype", "device"),
    ]
    assert {f"train.{name}" for name in subsections(TrainSettings)} <= set(SECTIONS)
