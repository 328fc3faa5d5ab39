"""The learning rate over a run: linear warm-up, then half a cosine (Radford et al. 2018, section 4.1; Brown et al. 2020)."""

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
    progress = (step - settings.warmup_steps) / max(1, settings.steps - 1 - settings.warmup_steps)
    cosine = (1 + math.cos(math.pi * min(1.0, progress))) / 2
    floor = settings.min_learning_rate_ratio
    return settings.learning_rate * (floor + (1 - floor) * cosine)
