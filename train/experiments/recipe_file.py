"""Write settings of [train] as a config file, with their origin as a comment."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from webtext.base.config import options, place, subsections
from webtext.train.settings import TrainSettings

_OF_ONE_RUN = ("stop_at_step",)


def recipe_file(settings: TrainSettings, comment: Iterable[str]) -> str:
    """Return TOML that `train run --config` reads back as these settings.

    It has every setting that can change the model, defaults too, so the file means the same after a default has
    changed. Other settings are written if they aren't the default, except `stop_at_step`.
    """
    lines = [f"# {' '.join(line.split())}" for line in comment]
    known = options(TrainSettings)
    for section in ("", *subsections(TrainSettings)):
        rows = []
        for name, option in known.items():
            value = option.value(settings)
            is_written = option.field.metadata["in_recipe"] or value != option.value(TrainSettings())
            if option.subsection == section and name not in _OF_ONE_RUN and is_written:
                rows.append(f"{name} = {_toml(value)}")
        lines += [f"[{place('train', section)}]", *rows, ""] if rows else []
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """Format a value: TOML writes words, numbers and lists of numbers like JSON; None is the settings' word 'none'."""
    return json.dumps("none" if value is None else value)
