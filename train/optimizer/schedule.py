"""The learning rate over a run: it warms up linearly, and then follows half a cosine, or stays stable and decays at the end.

Cosine: Radford et al. 2018, section 4.1; Brown et al. 2020, appendix B. Warm-up, stable, decay: Hu et al. 2024
(MiniCPM), section 4; the decay is 1 - sqrt over the last fifth, the cooldown of Haegele et al. 2024, section 3.
"""

from __future__ import annotations

import math

from webtext.train.settings import TrainSettings


def learning_rate(settings: TrainSettings, step: int) -> float:
    """Return the rate of update `step`, counted from 0. The last one has `min_learning_rate_ratio` of the full rate.

    >>> settings = TrainSettings.of(learning_rate=1.0, warmup_steps=4, steps=105, min_learning_rate_ratio=0.1)
    >>> [round(learning_rate(settings, step), 3) for step in (0, 1, 3, 4, 54, 104)]
    [0.25, 0.5, 1.0, 1.0, 0.55, 0.1]
    """
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    height = _cosine(settings, step) if settings.schedule.schedule == "cosine" else _stable_then_decay(settings, step)
    floor = settings.schedule.min_learning_rate_ratio
    return settings.learning_rate * (floor + (1 - floor) * height)


def total_tokens(settings: TrainSettings) -> int:
    """Return the number of tokens that the entire run trains on."""
    return settings.steps * settings.batch_size * settings.context


def decay_start(settings: TrainSettings) -> int:
    """Return the number of steps before wsd's decay: until then runs that differ in `steps` alone are the same.

    >>> decay_start(TrainSettings.of(steps=100, warmup_steps=10)), decay_start(TrainSettings.of(steps=12, warmup_steps=11))
    (80, 11)
    """
    decay_steps = math.ceil(settings.steps * settings.schedule.decay_ratio)
    return max(settings.steps - decay_steps, settings.warmup_steps)


def _cosine(settings: TrainSettings, step: int) -> float:
    progress = (step - settings.warmup_steps) / max(1, settings.steps - 1 - settings.warmup_steps)
    return (1 + math.cos(math.pi * min(1.0, progress))) / 2


def _stable_then_decay(settings: TrainSettings, step: int) -> float:
    start = decay_start(settings)
    return 1.0 if step < start else 1 - math.sqrt((step + 1 - start) / (settings.steps - start))
