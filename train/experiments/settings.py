"""The settings of experiments: sections `[train.compare]`, `[train.sweep]` and `[train.scale]`; without torch."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """Settings for the runs of any experiment."""

    side_by_side: int | None = setting(
        None, "runs at a time  [default: one per GPU, or as many as cores and memory allow]", in_recipe=False
    )
    estimate: bool = setting(True, "make some steps first, to estimate the time of all runs", in_recipe=False)

    def __post_init__(self) -> None:
        for name in ("tokens", "tokens_per_parameter", "seeds", "head_size", "validation_bytes", "side_by_side"):
            value = getattr(self, name, None)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}", "it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings(ExperimentSettings):
    """Settings of `train compare`; the model and its schedule are in [train]."""

    tokens: int | None = setting(
        None,
        "tokens of each run, rounded up to whole steps  [default: those of --steps and --batch-size; with --karma, as "
        "many steps as repeat no text]",
    )
    seeds: int = setting(3, "runs of each corpus, with --seed and the seeds after it")
    max_passes: float = setting(1.0, "most passes of a run over a corpus's training tokens")
    validation_bytes: int = setting(10_000_000, "most bytes of text in the frozen validation set")

    def __post_init__(self) -> None:
        ExperimentSettings.__post_init__(self)
        if not self.max_passes > 0:
            raise ConfigError(f"max_passes is {self.max_passes}", "it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings(ExperimentSettings):
    """Settings of `train sweep`; the candidates' own settings are in [train] and the grid."""

    rungs: tuple[float, ...] = setting(
        (0.25, 0.5, 1.0), "shares of the steps after which the worse candidates stop; the last is 1"
    )
    keep_ratio: float = setting(0.5, "share of a rung's candidates that continue, but never fewer than two")
    seeds: int = setting(1, "runs of each candidate, with --seed and the seeds after it; their mean counts")

    def __post_init__(self) -> None:
        ExperimentSettings.__post_init__(self)
        rungs = self.rungs
        rising = all(low < high for low, high in zip(rungs, rungs[1:], strict=False))
        if not rungs or rungs[0] <= 0 or rungs[-1] != 1 or not rising:
            raise ConfigError(
                f"rungs are {', '.join(map(str, rungs)) or 'none'}",
                "they must rise above 0 and end at 1, e.g. 0.25,0.5,1",
            )
        if not 0 < self.keep_ratio <= 1:
            raise ConfigError(f"keep_ratio is {self.keep_ratio}", "it must be above 0 and at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSettings(ExperimentSettings):
    """Settings of `train scale`: a family of sizes and its budgets; the rest is in [train]."""

    sizes: tuple[str, ...] = setting(
        ("2x64", "3x96", "4x128", "5x160"), "size to fit, as LAYERSxWIDTH; repeatable", flag="--size"
    )
    check: str | None = setting("next", "size to predict and then train: LAYERSxWIDTH, next (one step larger), or none")
    head_size: int = setting(32, "width of a head, in every size")
    tokens: int | None = setting(None, "tokens of every size, rounded up to whole steps")
    tokens_per_parameter: float | None = setting(
        None, "tokens per parameter of every size, rounded up to whole steps; a second table"
    )
    warmup_ratio: float = setting(0.1, "share of a run's steps in which the rate grows, instead of warmup_steps")
    rate_exponent: float = setting(
        0.5, "learning_rate is the smallest size's; others multiply it by (smallest width / width) to this power"
    )
    learning_rates: tuple[float, ...] = setting(
        (), "rates to try for each size, which takes the best by held-out loss  [default: one, by rate_exponent]"
    )
    tuning_ratio: float = setting(0.25, "share of a size's tokens for the run that tries a rate, with its own schedule")
    seeds: int = setting(1, "runs of each size, with --seed and the seeds after it; their mean is fitted")

    def __post_init__(self) -> None:
        ExperimentSettings.__post_init__(self)
        if not 0 <= self.warmup_ratio < 1:
            raise ConfigError(f"warmup_ratio is {self.warmup_ratio}", "it must be in [0, 1)")
        if self.rate_exponent < 0:
            raise ConfigError(f"rate_exponent is {self.rate_exponent}", "it must be 0 or more")
        if not 0 < self.tuning_ratio <= 1:
            raise ConfigError(f"tuning_ratio is {self.tuning_ratio}", "it must be above 0 and at most 1")
        rates = self.learning_rates
        if rates and (min(len(rates), len(set(rates))) < 2 or len(set(rates)) < len(rates) or min(rates) <= 0):
            raise ConfigError(
                f"learning_rates are {', '.join(map(str, rates))}",
                "give two or more different ones above 0, or one rate for all by --learning-rate",
            )
