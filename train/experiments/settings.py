"""The settings of experiments: sections `[train.compare]`, `[train.sweep]` and `[train.scale]`; without torch."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """Settings for the runs of any experiment."""

    side_by_side: int | None = setting(
        None, "runs at a time  [default: one per GPU, or as many as cores allow]", in_recipe=False
    )

    def __post_init__(self) -> None:
        for name in ("tokens", "seeds", "head_size", "side_by_side"):
            value = getattr(self, name, None)
            if value is not None and not all(
                number > 0 for number in (value if isinstance(value, tuple) else (value,))
            ):
                raise ConfigError(f"{name} is {value}", "it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings(ExperimentSettings):
    """Settings of `train compare`; the model and its schedule are in [train]."""

    tokens: int | None = setting(
        None,
        "tokens of each run, rounded up to whole steps  [default: those of --steps, but no more than repeat no text]",
    )
    seeds: int = setting(3, "runs of each corpus, with --seed and the seeds after it")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings(ExperimentSettings):
    """Settings of `train sweep`; the candidates' own settings are in [train] and the grid."""

    rungs: tuple[float, ...] = setting(
        (0.25, 0.5, 1.0), "shares of the steps after which the worse half of the candidates stops; the last is 1"
    )
    seeds: int = setting(1, "runs of each candidate, with --seed and the seeds after it; their mean counts")

    def __post_init__(self) -> None:
        ExperimentSettings.__post_init__(self)
        if [0.0, *self.rungs] != sorted({0.0, *self.rungs}) or self.rungs[-1:] != (1.0,):
            listed = ", ".join(map(str, self.rungs)) or "none"
            raise ConfigError(f"rungs are {listed}", "they must rise above 0 and end at 1, e.g. 0.25,0.5,1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSettings(ExperimentSettings):
    """Settings of `train scale`: a family of sizes and its budgets; the rest is in [train]."""

    sizes: tuple[str, ...] = setting(
        ("2x64", "3x96", "4x128", "5x160"), "size to fit, as LAYERSxWIDTH; repeatable", flag="--size"
    )
    head_size: int = setting(32, "width of a head, in every size")
    tokens: tuple[float, ...] = setting((), "budgets of tokens, three or more, each rounded up to whole steps")
    warmup_ratio: float = setting(0.1, "share of a run's steps in which the rate grows, instead of warmup_steps")
    seeds: int = setting(1, "runs of each size and budget, with --seed and the seeds after it")

    def __post_init__(self) -> None:
        ExperimentSettings.__post_init__(self)
        if not 0 <= self.warmup_ratio < 1:
            raise ConfigError(f"warmup_ratio is {self.warmup_ratio}", "it must be in [0, 1)")
