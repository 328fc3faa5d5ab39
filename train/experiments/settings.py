"""The settings of experiments: sections `[train.compare]`, `[train.sweep]` and `[train.scale]`; without torch."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """Settings for the runs of any experiment; the model, its schedule and the first seed are in [train]."""

    seeds: int | None = setting(
        None, "runs of each corpus, candidate or size: seed and those after it  [default: 3 in compare, else 1]"
    )
    side_by_side: int | None = setting(
        None, "runs at a time  [default: one per GPU, or as many as cores allow]", in_recipe=False
    )

    def __post_init__(self) -> None:
        for name in ("tokens", "seeds", "side_by_side"):
            value = getattr(self, name, None)
            if any(number <= 0 for number in (value if isinstance(value, tuple) else (value,)) if number is not None):
                raise ConfigError(f"{name} is {value}", "it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings(ExperimentSettings):
    """Settings of `train compare`."""

    tokens: int | None = setting(
        None,
        "tokens of each run, rounded up to whole steps  [default: those of --steps, but no more than repeat no text]",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings(ExperimentSettings):
    """Settings of `train sweep`; the grid is `--over`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSettings(ExperimentSettings):
    """Settings of `train scale`: a family of sizes and its budgets."""

    sizes: tuple[str, ...] = setting(
        ("2x64", "3x96", "4x128", "5x160"), "size to fit, as LAYERSxWIDTH with heads of 32; repeatable", flag="--size"
    )
    tokens: tuple[float, ...] = setting((), "budgets of tokens, three or more, each rounded up to whole steps")
