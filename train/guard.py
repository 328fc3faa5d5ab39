"""The guard of a run: an update whose loss or gradient is no number, or far above those before it, is stopped or skipped.

A spike lies more than `spike_sigmas` standard deviations above the mean of the last 128 updates that were made, the step just
before left out, by the loss or by the gradient's norm. So a step's limits are known before the step before it is over: the
device itself compares and skips (`update.py`), and the host, which reads the numbers later, comes to the same. A skipped step
takes its batch and leaves parameters and moments as they are: the batch is not seen again (Chowdhery et al. 2022, section
5.1, skip batches around a spike by hand, and find that it does not come back).
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from webtext.base.errors import RunFailed
from webtext.train.settings import TrainSettings

WINDOW = 128
MIN_UPDATES = 64  # before a mean and a deviation say anything
MAX_SKIPS_IN_A_ROW = 10  # then it is no spike: the run has diverged
_LOSS, _NORM = 1, 2  # in (step, loss, norm)


class Guard:
    """Judges each step's update; `state_dict` makes a run that goes on judge as if it had not stopped."""

    def __init__(self, settings: TrainSettings) -> None:
        self.skips = settings.on_spike == "skip"
        self.sigmas = settings.spike_sigmas
        self.in_a_row = 0
        self._updates: deque[tuple[int, float, float]] = deque(maxlen=WINDOW + 1)

    def limits(self, step: int) -> tuple[float, float]:
        """The highest loss and the highest gradient norm that are no spikes at `step`; infinity where none is known."""
        return self._limit(step, _LOSS)[0], self._limit(step, _NORM)[0]

    def check(self, step: int, loss: float, norm: float) -> str | None:
        """Why this step's update is skipped, or None. RunFailed where the run is to stop."""
        reason = self._fault("loss", loss, step, _LOSS) or self._fault("gradient norm", norm, step, _NORM)
        if reason is None:
            self._updates.append((step, loss, norm))
            self.in_a_row = 0
            return None
        if not self.skips:
            raise RunFailed(
                f"step {step:,}: {reason}",
                "lower learning_rate, lengthen warmup_steps, or choose on_spike = 'skip', and begin with another --out",
            )
        self.in_a_row += 1
        if self.in_a_row > MAX_SKIPS_IN_A_ROW:
            raise RunFailed(
                f"step {step:,}: {reason}, after {MAX_SKIPS_IN_A_ROW} skipped steps in a row",
                "lower learning_rate or lengthen warmup_steps, and begin with another --out",
            )
        return reason

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, as JSON."""
        return {"updates": [list(update) for update in self._updates], "in_a_row": self.in_a_row}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self._updates.extend((int(step), loss, norm) for step, loss, norm in state["updates"])
        self.in_a_row = int(state["in_a_row"])

    def _fault(self, name: str, value: float, step: int, kind: int) -> str | None:
        if not math.isfinite(value):
            return f"the {name} is {value}"
        limit, mean, deviation = self._limit(step, kind)
        if value <= limit:
            return None
        return f"the {name} is {value:.4g}, and was {mean:.4g} with a deviation of {deviation:.2g}"

    def _limit(self, step: int, kind: int) -> tuple[float, float, float]:
        """The limit, rounded to float32, in which a device compares; the mean and the deviation that it comes from."""
        before = [update[kind] for update in self._updates if update[0] < step - 1][-WINDOW:]
        if self.sigmas is None or len(before) < MIN_UPDATES:
            return math.inf, math.nan, math.nan
        mean, deviation = statistics.fmean(before), statistics.pstdev(before)
        return float(np.float32(mean + self.sigmas * deviation)), mean, deviation
