"""The grid of a sweep: all combinations of values of one or several settings of [train]; settings as a config file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from webtext.base.config import changed, options, place, setting_value, several_values, subsections
from webtext.base.errors import ConfigError, did_you_mean
from webtext.train.settings import TrainSettings

_NOT_SWEPT = {
    "seed": "use --seeds N for several seeds",
    "steps": "candidates are compared after equal steps",
    "context": "losses of different contexts can't be compared",
    "document_masks": "losses with and without masks can't be compared",
    "weights": "they weight the sets' held-out losses, which then can't be compared",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the grid: the swept settings' values, in the grid's order, and all settings with them applied."""

    values: tuple[tuple[str, Any], ...]
    settings: TrainSettings

    @property
    def name(self) -> str:
        """The values as text, also a folder's name: `learning_rate=0.001,weight_decay=0.1`."""
        return ",".join(f"{name}={value_text(value)}" for name, value in self.values)


def make_grid(over: Sequence[str], settings: TrainSettings) -> list[Candidate]:
    """Return all combinations of `NAME=VALUE,VALUE,...`, the last setting changing fastest.

    Values are parsed and checked like those of a config file. ConfigError for a bad value, for a setting that makes
    losses incomparable or changes no model, and for fewer than two candidates.
    """
    known = options(TrainSettings)
    columns: dict[str, list[Any]] = {}
    for text in over:
        name, _, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        if name not in known:
            raise ConfigError(f"--over {text}: [train] has no '{name}'", did_you_mean(name, known))
        if name in _NOT_SWEPT:
            raise ConfigError(f"--over {text}: '{name}' cannot be swept", _NOT_SWEPT[name])
        if not known[name].field.metadata["in_recipe"]:
            raise ConfigError(f"--over {text}: '{name}' does not change the model", "sweep a setting that does")
        if name in columns:
            raise ConfigError(f"--over {text}: '{name}' is swept twice", "give all its values at once")
        values = (
            [setting_value(TrainSettings, name, value, "train") for value in several_values(listed)] if listed else []
        )
        if not values:
            raise ConfigError(f"--over {text}: no values", "e.g. --over weight_decay=0.01,0.1")
        if any(value in values[:i] for i, value in enumerate(values)):
            raise ConfigError(f"--over {text}: a value appears twice", "give each value once")
        columns[name] = values
    points = [tuple(zip(columns, values, strict=True)) for values in itertools.product(*columns.values())]
    if len(points) < 2:
        raise ConfigError("a sweep needs two candidates or more", "e.g. --lr 1e-3,2e-3,4e-3")
    return [Candidate(point, changed(settings, **dict(point))) for point in points]


def value_text(value: Any) -> str:
    """Format a setting's value for names and tables.

    >>> value_text(0.002), value_text(None), value_text(True), value_text("muon")
    ('0.002', 'none', 'true', 'muon')
    """
    return _toml(value).strip('"')


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
            if option.subsection == section and name != "stop_at_step" and is_written:
                rows.append(f"{name} = {_toml(value)}")
        lines += [f"[{place('train', section)}]", *rows, ""] if rows else []
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """Format a value: TOML writes words, numbers and lists of numbers like JSON; None is the settings' word 'none'."""
    return json.dumps("none" if value is None else value)
