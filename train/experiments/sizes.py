"""A family of sizes: shapes written as LAYERSxWIDTH, with heads of one width, and the settings of their runs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from webtext.base.config import changed
from webtext.base.errors import ConfigError
from webtext.train.experiments.fit import FEWEST
from webtext.train.experiments.settings import ScaleSettings
from webtext.train.settings import TrainSettings


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """A shape and its size: `parameters` counts all, the shared embedding once; `in_blocks` leaves embeddings out."""

    parameters: int
    name: str
    n_layer: int
    n_embd: int
    in_blocks: int

    @classmethod
    def of(cls, n_layer: int, n_embd: int, settings: TrainSettings, vocab_size: int, head_size: int) -> Size:
        """Return the size of a shape. ConfigError if heads don't divide the width."""
        if n_layer < 1 or n_embd < head_size or n_embd % head_size:
            raise ConfigError(
                f"size {n_layer}x{n_embd} has no heads of {head_size}", "choose a width that --head-size divides"
            )
        shape = changed(settings, n_layer=n_layer, n_embd=n_embd, n_head=n_embd // head_size)
        config = shape.config(vocab_size)
        outside = (vocab_size + config.context) * n_embd
        return cls(config.n_parameters, f"{n_layer}x{n_embd}", n_layer, n_embd, config.n_parameters - outside)


def family(settings: TrainSettings, scale: ScaleSettings, vocab_size: int) -> tuple[list[Size], Size | None]:
    """Return the sizes to fit, from the smallest up, and the check, the size to predict and then train.

    By default the check is one step beyond the largest, with the same step in layers and width as between the last two.
    ConfigError for fewer than three sizes, for equal ones, and for a check that isn't larger than the others.
    """
    sizes = sorted(_parse(text, settings, scale, vocab_size) for text in scale.sizes)
    if len(sizes) < FEWEST:
        raise ConfigError(
            f"{len(sizes)} sizes make no fit", f"give at least {FEWEST}, better 4: --size 2x64 --size 3x96 ..."
        )
    for one, other in zip(sizes, sizes[1:], strict=False):
        if one.parameters == other.parameters:
            raise ConfigError(
                f"sizes {one.name} and {other.name} both have {one.parameters:,} parameters", "leave one out"
            )
    if scale.check is None:
        return sizes, None
    last, before = sizes[-1], sizes[-2]
    if scale.check == "next":
        shape = (
            max(last.n_layer, 2 * last.n_layer - before.n_layer),
            max(last.n_embd, 2 * last.n_embd - before.n_embd),
        )
        check = Size.of(*shape, settings, vocab_size, scale.head_size)
    else:
        check = _parse(scale.check, settings, scale, vocab_size)
    if check.parameters <= last.parameters:
        raise ConfigError(f"check {check.name} is not larger than {last.name}", "name a larger size, or none")
    return sizes, check


def run_settings(
    size: Size, smallest: Size, tokens: float, settings: TrainSettings, scale: ScaleSettings, rate: float | None = None
) -> TrainSettings:
    """Return the settings of a run of `tokens`, rounded up to whole steps, at `rate` or by the rule.

    The rule: `learning_rate` is the smallest size's, and others multiply it by (smallest width / width) **
    rate_exponent. Muon's rate, if it has its own, keeps its ratio to `learning_rate`.
    """
    if settings.schedule.batch_ramp_start is not None:
        raise ConfigError("batch_ramp_start is set", "scale compares runs of one batch size: leave it out")
    steps = max(2, math.ceil(tokens / (settings.batch_size * settings.context) - 1e-9))
    if rate is None:
        rate = settings.learning_rate * (smallest.n_embd / size.n_embd) ** scale.rate_exponent
    muon = settings.optimizer.muon_learning_rate
    return changed(
        settings,
        n_layer=size.n_layer,
        n_embd=size.n_embd,
        n_head=size.n_embd // scale.head_size,
        steps=steps,
        stop_at_step=None,
        sample_interval=None,
        warmup_steps=min(steps - 1, math.ceil(steps * scale.warmup_ratio)),
        learning_rate=rate,
        muon_learning_rate=None if muon is None else muon * rate / settings.learning_rate,
    )


def budgets(scale: ScaleSettings, sizes: Sequence[Size]) -> dict[str, list[float]]:
    """Return each budget's name with the tokens of every size under it."""
    found: dict[str, list[float]] = {}
    if scale.tokens is not None:
        found[f"{scale.tokens:,} tokens"] = [float(scale.tokens)] * len(sizes)
    if scale.tokens_per_parameter is not None:
        found[f"{scale.tokens_per_parameter:g} tokens a parameter"] = [
            scale.tokens_per_parameter * size.parameters for size in sizes
        ]
    if not found:
        raise ConfigError("no budget is given", "give --tokens N, --tokens-per-parameter R, or both")
    return found


def _parse(text: str, settings: TrainSettings, scale: ScaleSettings, vocab_size: int) -> Size:
    found = re.fullmatch(r"(\d{1,4})x(\d{1,6})", text.strip())
    if not found:
        raise ConfigError(f"size '{text}' is not LAYERSxWIDTH", "e.g. 4x128")
    return Size.of(int(found[1]), int(found[2]), settings, vocab_size, scale.head_size)
