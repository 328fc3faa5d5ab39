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
    warmup, steps = settings.warmup_steps, settings.steps
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    if settings.schedule.schedule == "cosine":
        height = (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, steps - 1 - warmup)))) / 2
    else:  # stable, then decay
        start = max(steps - math.ceil(steps * settings.schedule.decay_ratio), warmup)
        height = 1.0 if step < start else 1 - math.sqrt((step + 1 - start) / (steps - start))
    floor = settings.schedule.min_learning_rate_ratio
    return settings.learning_rate * (floor + (1 - floor) * height)
