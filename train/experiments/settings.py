"""The settings of experiments: the sections `[train.compare]`, `[train.sweep]` and `[train.scale]`; known without torch."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """How the runs of any experiment are made."""

    side_by_side: int | None = setting(
        None, "runs at a time  [default: one a GPU, or what cores and memory hold]", in_recipe=False
    )
    estimate: bool = setting(
        True, "measure some steps beforehand, which tells the time that all will take", in_recipe=False
    )

    def __post_init__(self) -> None:
        for name in ("tokens", "tokens_per_parameter", "seeds", "head_size", "validation_bytes", "side_by_side"):
            value = getattr(self, name, None)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}", "it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings(ExperimentSettings):
    """How corpora are compared; the model and its schedule are [train]'s."""

    tokens: int | None = setting(
        None, "of each run, rounded up to whole steps  [default: what --steps and --batch-size make]"
    )
    seeds: int = setting(3, "runs of each corpus: --seed, and those after it")
    max_passes: float = setting(1.0, "over a corpus' training tokens that a run may make")
    validation_bytes: int = setting(10_000_000, "of text in the frozen validation set at most")

    def __post_init__(self) -> None:
        ExperimentSettings.__post_init__(self)
        if not self.max_passes > 0:
            raise ConfigError(f"max_passes is {self.max_passes}", "it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings(ExperimentSettings):
    """How candidates are told apart; what they are made of is [train]'s and the grid's."""

    rungs: tuple[float, ...] = setting(
        (0.25, 0.5, 1.0), "shares of the steps after which the worse candidates stop; the last is 1"
    )
    keep_ratio: float = setting(0.5, "share of a rung's candidates that goes on, and never fewer than two")
    seeds: int = setting(1, "runs of each candidate: --seed, and those after it; their mean counts")

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
    """A family of sizes and its budgets; all else is [train]'s."""

    sizes: tuple[str, ...] = setting(
        ("2x64", "3x96", "4x128", "5x160"), "LAYERSxWIDTH of a size that is fitted; repeatable", flag="--size"
    )
    check: str | None = setting(
        "next", "size that the fit predicts and that is then trained: LAYERSxWIDTH, next (a step beyond), or none"
    )
    head_size: int = setting(32, "width of a head, in every size")
    tokens: int | None = setting(None, "of every size, rounded up to whole steps")
    tokens_per_parameter: float | None = setting(None, "of every size, rounded up to whole steps; a second table")
    warmup_ratio: float = setting(0.1, "share of a run's steps in which the rate grows, for warmup_steps")
    rate_exponent: float = setting(
        0.5, "learning_rate is the smallest size's; others have it times (smallest width / width) to this power"
    )
    learning_rates: tuple[float, ...] = setting(
        (), "tried for each size, which takes the best by held-out loss  [default: one, by the rule of rate_exponent]"
    )
    tuning_ratio: float = setting(0.25, "share of a size's tokens, with a schedule of its own, that tries each rate")
    seeds: int = setting(1, "runs of each size: --seed, and those after it; their mean is fitted")

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
