"""The learning rate over a run: linear warm-up, then half a cosine, or a stable rate with a decay at the end.

Cosine: Radford et al. 2018, section 4.1; Brown et al. 2020, appendix B. Warm-up, stable, decay: Hu et al. 2024 (MiniCPM),
section 4; the decay is 1 - sqrt over the last fifth, the cooldown of Haegele et al. 2024, section 3.
"""

from __future__ import annotations

import math

from webtext.train.settings import TrainSettings


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The rate of update `step`, counted from 0: full after the warm-up, `min_learning_rate_ratio` of it at the last.

    >>> settings = TrainSettings(learning_rate=1.0, warmup_steps=4, steps=105, min_learning_rate_ratio=0.1)
    >>> [round(learning_rate(settings, step), 3) for step in (0, 1, 3, 4, 54, 104)]
    [0.25, 0.5, 1.0, 1.0, 0.55, 0.1]
    """
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    height = _cosine(settings, step) if settings.schedule == "cosine" else _stable_then_decay(settings, step)
    floor = settings.min_learning_rate_ratio
    return settings.learning_rate * (floor + (1 - floor) * height)


def _cosine(settings: TrainSettings, step: int) -> float:
    progress = (step - settings.warmup_steps) / max(1, settings.steps - 1 - settings.warmup_steps)
    return (1 + math.cos(math.pi * min(1.0, progress))) / 2


def _stable_then_decay(settings: TrainSettings, step: int) -> float:
    decay_steps = min(math.ceil(settings.steps * settings.decay_ratio), settings.steps - settings.warmup_steps)
    done = step + 1 - (settings.steps - decay_steps)
    return 1.0 if done <= 0 else 1 - math.sqrt(min(1.0, done / decay_steps))
