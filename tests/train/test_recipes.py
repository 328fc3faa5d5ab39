"""The recipes: each is a config file of `build` too, plans without error, and keeps the paper's batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import webtext.train.settings
from webtext.app.config import classes_of_other_verbs, settings_classes
from webtext.app.main import run
from webtext.base.config import check_sections, from_table, load_config, section_of
from webtext.train.plan import plan_training
from webtext.train.settings import PlanSettings, TrainSettings
from webtext.train.trainer import METRICS

FOLDER = Path(webtext.train.settings.__file__).parent / "recipes"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.toml"))
GPU_MEMORY = 80 * 2**30


def read(name: str) -> tuple[TrainSettings, PlanSettings]:
    config = load_config(str(FOLDER / f"{name}.toml"))
    check_sections(config, settings_classes() | classes_of_other_verbs())
    plan = from_table(PlanSettings, section_of(config, "train.plan"), "train.plan")
    return from_table(TrainSettings, section_of(config, "train"), "train"), plan


def test_there_is_one_for_a_toy_for_one_gpu_and_for_each_size_on_eight() -> None:
    assert RECIPES == [
        "gpt2-124M-1gpu",
        "gpt2-124M-8gpu",
        "gpt2-124M-fast",
        "gpt2-1558M-8gpu",
        "gpt2-355M-8gpu",
        "gpt2-774M-8gpu",
        "toy-cpu",
        "toy-cpu-fast",
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_loads_and_plans(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings, plan = read(name)
    assert run(["train", "plan", "--config", str(FOLDER / f"{name}.toml"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["memory"]["total"] == plan_training(settings, plan).memory.total
    if name.startswith("gpt2"):
        _, size, devices = name.split("-")
        assert (settings.model, plan.processes) == (size, 1 if devices == "1gpu" else 8)
        assert answer["tokens_per_step"] == 512 * 1024
        assert answer["microbatch_size"] * answer["accumulation"] * plan.processes == 512
        assert answer["memory"]["total"] < GPU_MEMORY
    else:
        assert answer["model"]["parameters"] < 10**7 + 50_257 * 128


@pytest.mark.parametrize(("fast", "plain"), [("gpt2-124M-fast", "gpt2-124M-8gpu"), ("toy-cpu-fast", "toy-cpu")])
def test_a_fast_recipe_is_the_plain_ones_model_and_batch_at_065_of_its_tokens(fast: str, plain: str) -> None:
    ours, theirs = (plan_training(*read(name)) for name in (fast, plain))
    assert ours.config == theirs.config
    assert ours.settings.batch_size == theirs.settings.batch_size
    assert 0.6 < ours.tokens / theirs.tokens <= 0.65
    assert (ours.settings.optimizer, ours.settings.schedule) == ("muon", "wsd")
    assert ours.settings.first_batch_size < ours.settings.batch_size


@pytest.mark.parametrize("name", ["toy-cpu", "toy-cpu-fast"])
def test_the_toy_recipes_train(name: str, tokens: str, tmp_path: Path) -> None:
    recipe = str(FOLDER / f"{name}.toml")
    less = ["--n-embd", "16", "--context", "16", "--batch-size", "4", "--steps", "3", "--warmup-steps", "1"]
    if name == "toy-cpu-fast":
        less += ["--batch-ramp-start", "2", "--batch-ramp-steps", "1"]
    command = ["train", "run", tokens, "--out", str(tmp_path / "toy"), "--config", recipe, *less, "--quiet"]
    assert run([*command, "--microbatch-size", "4", "--threads", "1"]) == 0
    assert (tmp_path / "toy" / METRICS).exists()
