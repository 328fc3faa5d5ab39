"""The settings of experiments: the section `[train.compare]`; known without torch."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """How corpora are compared; the model and its schedule are [train]'s."""

    tokens: int | None = setting(
        None, "of each run, rounded up to whole steps  [default: what --steps and --batch-size make]"
    )
    seeds: int = setting(3, "runs of each corpus: --seed, and those after it")
    max_passes: float = setting(1.0, "over a corpus' training tokens that a run may make")
    validation_bytes: int = setting(10_000_000, "of text in the frozen validation set at most")
    side_by_side: int | None = setting(
        None, "runs at a time  [default: one a GPU, or what cores and memory hold]", in_recipe=False
    )
    estimate: bool = setting(
        True, "measure some steps beforehand, which tells the time that all will take", in_recipe=False
    )

    def __post_init__(self) -> None:
        for name in ("tokens", "seeds", "validation_bytes", "side_by_side"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", "it must be at least 1")
        if not self.max_passes > 0:
            raise ConfigError(f"max_passes is {self.max_passes}", "it must be above 0")
