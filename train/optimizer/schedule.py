"""The learning rate and the batch size over a run.

The learning rate warms up linearly, and then follows half a cosine, or stays stable and decays at the end.

Cosine: Radford et al. 2018, section 4.1; Brown et al. 2020, appendix B. Warm-up, stable, decay: Hu et al. 2024
(MiniCPM), section 4; the decay is 1 - sqrt over the last fifth, the cooldown of Haegele et al. 2024, section 3.

The batch has its full size at once, or doubles up to it. Early gradients point the same way in every sequence, so small
batches lose nothing and allow more updates for the same tokens (McCandlish et al. 2018; Merrill et al. 2025, arXiv
2505.23971, measure that the critical batch size starts near 0). With equally many steps of each size it grows in
proportion to the tokens seen, as in Brown et al. 2020, appendix B. The learning rate depends on the update's number,
not on its batch.
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


def batch_size(settings: TrainSettings, step: int) -> int:
    """Return the number of sequences of update `step`, counted from 0, over all processes together.

    >>> settings = TrainSettings.of(batch_size=512, batch_ramp_start=64, batch_ramp_steps=3000)
    >>> [batch_size(settings, step) for step in (0, 999, 1000, 2000, 3000, 19_999)]
    [64, 64, 128, 256, 512, 512]
    """
    if step >= settings.schedule.batch_ramp_steps:
        return settings.batch_size
    n_sizes = (settings.batch_size // settings.first_batch_size).bit_length() - 1
    return settings.first_batch_size << (step * n_sizes // settings.schedule.batch_ramp_steps)


def sequences_before(settings: TrainSettings, step: int) -> int:
    """Return the number of sequences of all updates before `step`, which is the sampler's position."""
    ramp = sum(batch_size(settings, i) for i in range(min(step, settings.schedule.batch_ramp_steps)))
    return ramp + max(0, step - settings.schedule.batch_ramp_steps) * settings.batch_size


def total_tokens(settings: TrainSettings) -> int:
    """Return the number of tokens that the entire run trains on."""
    return sequences_before(settings, settings.steps) * settings.context


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
