"""Write settings of [train] as a config file, with their origin as a comment."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from webtext.base.config import all_settings
from webtext.train.settings import TrainSettings

_OF_ONE_RUN = ("stop_at_step",)


def recipe_file(settings: TrainSettings, comment: Iterable[str]) -> str:
    """Return TOML that `train run --config` reads back as these settings.

    It has every setting that can change the model, defaults too, so the file means the same after a default has
    changed. Other settings are written if they aren't the default, except `stop_at_step`.
    """
    values = all_settings(settings)
    lines = [f"# {' '.join(line.split())}" for line in comment]
    lines.append("[train]")
    for field in fields(TrainSettings):
        value = values[field.name]
        is_default = getattr(settings, field.name) == field.default
        if field.name not in _OF_ONE_RUN and (field.metadata["in_recipe"] or not is_default):
            lines.append(f"{field.name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """Format a value: TOML writes words, numbers and lists of numbers like JSON; None is the settings' word 'none'."""
    return json.dumps("none" if value is None else value)
