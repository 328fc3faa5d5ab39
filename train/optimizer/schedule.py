"""The learning rate over a run: it warms up linearly, and then follows half a cosine, or stays stable and decays at the end.

Cosine: Radford et al. 2018, section 4.1; it ends at a tenth: Brown et al. 2020, appendix B. Warm-up, stable, decay: Hu et
al. 2024 (MiniCPM), section 4; the decay is 1 - sqrt, the cooldown of Haegele et al. 2024, section 3, which ends at 0.
"""

from __future__ import annotations

import math

from webtext.train.settings import TrainSettings


def learning_rate(settings: TrainSettings, step: int) -> float:
    """Return the rate of update `step`, counted from 0.

    >>> settings = TrainSettings.of(learning_rate=1.0, warmup_steps=4, steps=105)
    >>> [round(learning_rate(settings, step), 3) for step in (0, 1, 3, 4, 54, 104)]
    [0.25, 0.5, 1.0, 1.0, 0.55, 0.1]
    """
    warmup, steps = settings.warmup_steps, settings.steps
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    if settings.schedule.schedule == "cosine":
        angle = math.pi * min(1.0, (step - warmup) / max(1, steps - 1 - warmup))
        return settings.learning_rate * (0.1 + 0.9 * (1 + math.cos(angle)) / 2)
    start = max(steps - math.ceil(steps * settings.schedule.decay_ratio), warmup)
    return settings.learning_rate * (1.0 if step < start else 1 - math.sqrt((step + 1 - start) / (steps - start)))
