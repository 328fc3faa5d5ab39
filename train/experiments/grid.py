"""The grid of a sweep: all combinations of values of one or several settings of [train]."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
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
        texts = several_values(listed) if listed else []
        values = [setting_value(TrainSettings, name, value, "train") for value in texts]
        if name in columns or not values or any(value in values[:i] for i, value in enumerate(values)):
            raise ConfigError(f"--over {text}: not one list of different values", "e.g. --over weight_decay=0.01,0.1")
        columns[name] = values
    points = [tuple(zip(columns, values, strict=True)) for values in itertools.product(*columns.values())]
    if len(points) < 2:
        raise ConfigError("a sweep needs two candidates or more", "e.g. --lr 1e-3,2e-3,4e-3")
    return [Candidate(point, changed(settings, **dict(point))) for point in points]


def value_text(value: Any) -> str:
    """Format a setting's value as a command line takes it.

    >>> value_text(0.002), value_text(None), value_text(True), value_text("muon")
    ('0.002', 'none', 'true', 'muon')
    """
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def edge_note(name: str, value: Any, tried: Iterable[Any]) -> list[str]:
    """Return a sentence if the best value is the smallest or largest of two or more numbers.

    Values whose runs failed count as tried: beyond a value that failed there is nothing to find.
    """
    numbers = sorted(each for each in set(tried) if type(each) in (int, float))
    if len(numbers) < 2 or value not in (numbers[0], numbers[-1]):
        return []
    side = "largest" if value == numbers[-1] else "smallest"
    return [f"At the edge: {name} {value_text(value)} is the {side} of those tried, so the best may lie beyond."]
