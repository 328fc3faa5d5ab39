"""Settings as a file: they are read back unchanged, whatever their types and the comment."""

from __future__ import annotations

from pathlib import Path

import pytest

from webtext.app.config import classes_of_other_verbs, settings_classes
from webtext.base.config import check_sections, from_table, load_config, section_of
from webtext.train.experiments.grid import recipe_file
from webtext.train.settings import TrainSettings


def read(text: str, folder: Path) -> TrainSettings:
    (folder / "recipe.toml").write_text(text)
    config = load_config(str(folder / "recipe.toml"))
    check_sections(config, settings_classes() | classes_of_other_verbs())
    return from_table(TrainSettings, section_of(config, "train", TrainSettings), "train")


@pytest.mark.parametrize(
    "settings",
    [
        TrainSettings(),
        TrainSettings.of(learning_rate=1e-5, weights=(0.7, 0.3), max_grad_norm=None, device="cpu", optimizer="muon"),
        TrainSettings.of(
            n_layer=2, n_head=2, n_embd=32, group_blocks=None, document_masks=True, eval_interval=None, threads=1
        ),
    ],
)
def test_a_recipe_is_read_back_as_the_settings_it_was_written_from(settings: TrainSettings, tmp_path: Path) -> None:
    assert read(recipe_file(settings, []), tmp_path) == settings


def test_defaults_that_decide_the_model_are_written_and_an_early_stop_is_not() -> None:
    text = recipe_file(TrainSettings.of(stop_at_step=7), [])
    assert "beta2 = 0.95\n" in text
    assert "stop_at_step" not in text
    assert "keep_checkpoints" not in text


def test_a_comment_of_any_text_remains_a_comment(tmp_path: Path) -> None:
    text = recipe_file(TrainSettings(), ["of 'a\nlearning_rate = 5'", "two"])
    assert text.startswith("# of 'a learning_rate = 5'\n# two\n[train]\n")
    assert read(text, tmp_path) == TrainSettings()
