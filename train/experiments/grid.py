"""The grid of a sweep: all combinations of values of one or several settings of [train]."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webtext.base.config import changed, options, setting_value, several_values
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
        """The values as text: `learning_rate=0.001, weight_decay=0.1`."""
        return ", ".join(f"{name}={value_text(value)}" for name, value in self.values)

    @property
    def folder(self) -> str:
        """The name as a folder name: equal candidates of different grids share a folder."""
        return self.name.replace(", ", ",")


def make_grid(over: Sequence[str], settings: TrainSettings) -> list[Candidate]:
    """Return all combinations of `NAME=VALUE,VALUE,...`, the last setting changing fastest.

    Values are parsed and checked like those of a config file. ConfigError for a bad value, for a setting that makes
    losses incomparable or changes no model, and for fewer than two candidates.
    """
    known = options(TrainSettings)
    columns: list[list[tuple[str, Any]]] = []
    for text in over:
        name, equals, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ConfigError(f"--over {text}: no values", "e.g. --over weight_decay=0.01,0.1")
        if name not in known:
            raise ConfigError(f"--over {text}: [train] has no '{name}'", did_you_mean(name, known))
        if name in _NOT_SWEPT:
            raise ConfigError(f"--over {text}: '{name}' cannot be swept", _NOT_SWEPT[name])
        if not known[name].field.metadata["in_recipe"]:
            raise ConfigError(f"--over {text}: '{name}' does not change the model", "sweep a setting that does")
        if any(column[0][0] == name for column in columns):
            raise ConfigError(f"--over {text}: '{name}' is swept twice", "give all its values at once")
        columns.append([(name, setting_value(TrainSettings, name, value, "train")) for value in several_values(listed)])
        values = [value for _, value in columns[-1]]
        twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
        if twice is not None:
            raise ConfigError(f"--over {text}: {value_text(twice)} appears twice", "give each value once")
        if not values:
            raise ConfigError(f"--over {text}: no values", "e.g. --over weight_decay=0.01,0.1")
    points = list(itertools.product(*columns))
    if len(points) < 2:
        raise ConfigError("a sweep needs two candidates or more", "e.g. --lr 1e-3,2e-3,4e-3")
    return [Candidate(point, changed(settings, **dict(point))) for point in points]


def value_text(value: Any) -> str:
    """Format a setting's value for names and tables.

    >>> value_text(0.002), value_text(None), value_text(True)
    ('0.002', 'none', 'true')
    """
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
