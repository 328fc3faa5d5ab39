"""Settings of [train] as a config file, with where they come from as its comment."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from webtext.base.config import all_settings
from webtext.train.settings import TrainSettings

_OF_ONE_RUN = ("stop_at_step",)


def recipe_file(settings: TrainSettings, comment: Iterable[str]) -> str:
    """TOML that `train run --config` reads back as these settings.

    All that can change the model stands there, defaults too: the file means the same when a default has changed. Of the rest
    what is not the default, but no stop on the way.
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
    """Words, numbers and lists of numbers are written in TOML as in JSON; no value is the word that settings take for it."""
    return json.dumps("none" if value is None else value)
