"""The guard of a run: an update whose loss or gradient is no number, or far above those before it, is stopped or skipped.

A spike lies more than `spike_sigmas` standard deviations above the mean of the last 128 updates that were made, by the loss or
by the gradient's norm. A skipped step takes its batch and leaves parameters and moments as they are: the batch is not seen
again (Chowdhery et al. 2022, section 5.1, skip batches around a spike by hand, and find that it does not come back).
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

from webtext.base.errors import RunFailed
from webtext.train.settings import TrainSettings

WINDOW = 128
MIN_UPDATES = 64  # before a mean and a deviation say anything
MAX_SKIPS_IN_A_ROW = 10  # then it is no spike: the run has diverged


class Guard:
    """Judges each step before its update; `state_dict` makes a run that goes on judge as if it had not stopped."""

    def __init__(self, settings: TrainSettings) -> None:
        self.skips = settings.on_spike == "skip"
        self.sigmas = settings.spike_sigmas
        self.in_a_row = 0
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._norms: deque[float] = deque(maxlen=WINDOW)

    def check(self, step: int, loss: float, norm: float) -> str | None:
        """Why this step's update is to be skipped, or None. RunFailed where the run is to stop."""
        reason = self._fault("loss", loss, self._losses) or self._fault("gradient norm", norm, self._norms)
        if reason is None:
            self._losses.append(loss)
            self._norms.append(norm)
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
        return {"losses": list(self._losses), "norms": list(self._norms), "in_a_row": self.in_a_row}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self._losses.extend(state["losses"])
        self._norms.extend(state["norms"])
        self.in_a_row = int(state["in_a_row"])

    def _fault(self, name: str, value: float, before: deque[float]) -> str | None:
        if not math.isfinite(value):
            return f"the {name} is {value}"
        if self.sigmas is None or len(before) < MIN_UPDATES:
            return None
        mean, deviation = statistics.fmean(before), statistics.pstdev(before)
        if value <= mean + self.sigmas * deviation:
            return None
        return f"the {name} is {value:.4g}, and was {mean:.4g} with a deviation of {deviation:.2g}"
