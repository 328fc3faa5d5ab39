"""The guard of a run: it stops the run or skips an update if the loss or gradient is not finite or far above the usual.

A spike is a loss or gradient norm more than `spike_sigmas` standard deviations above the mean of the last 128 updates
made, without the step just before. So a step's limits are known before the previous step is over: the device itself
compares and skips (`optimizer.py`), and the host, which reads the numbers later, reaches the same decision. A skipped
step consumes its batch and leaves parameters and moments unchanged, as Chowdhery et al. 2022, section 5.1, do by hand.
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
MIN_UPDATES = 64  # with fewer, mean and deviation mean little
MAX_SKIPS_IN_A_ROW = 10  # after more, it is not a spike: the run has diverged
_LOSS, _NORM = 1, 2  # in (step, loss, norm)


class Guard:
    """Judges each step's update. With `state_dict` a resumed run judges as if it had not stopped."""

    def __init__(self, settings: TrainSettings) -> None:
        self.sigmas = settings.optimizer.spike_sigmas
        self.in_a_row = 0
        self._updates: deque[tuple[int, float, float]] = deque(maxlen=WINDOW + 1)

    def limits(self, step: int) -> tuple[float, float]:
        """Return the highest loss and gradient norm that are not spikes at `step`; infinity if there is no limit."""
        return self._limit(step, _LOSS)[0], self._limit(step, _NORM)[0]

    def check(self, step: int, loss: float, norm: float) -> str | None:
        """Return why this step's update is skipped, or None. Raises RunFailed if the run has to stop."""
        reason = self._fault("loss", loss, step, _LOSS) or self._fault("gradient norm", norm, step, _NORM)
        if reason is None:
            self._updates.append((step, loss, norm))
            self.in_a_row = 0
            return None
        self.in_a_row += 1
        if self.sigmas is not None and self.in_a_row <= MAX_SKIPS_IN_A_ROW:
            return reason
        after = f", after {MAX_SKIPS_IN_A_ROW} skipped steps in a row" if self.sigmas else ""
        how = " or lengthen warmup_steps," if self.sigmas else ", lengthen warmup_steps or set spike_sigmas = 6,"
        raise RunFailed(f"step {step:,}: {reason}{after}", f"lower learning_rate{how} and use another --out")

    def state_dict(self) -> dict[str, Any]:
        return {"updates": [list(update) for update in self._updates], "in_a_row": self.in_a_row}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._updates.extend((int(step), loss, norm) for step, loss, norm in state["updates"])
        self.in_a_row = int(state["in_a_row"])

    def _fault(self, name: str, value: float, step: int, kind: int) -> str | None:
        if not math.isfinite(value):
            return f"the {name} is {value}"
        limit, mean, deviation = self._limit(step, kind)
        if value <= limit:
            return None
        return f"the {name} is {value:.4g}, but its recent mean is {mean:.4g} with a deviation of {deviation:.2g}"

    def _limit(self, step: int, kind: int) -> tuple[float, float, float]:
        """Return the limit, rounded to float32 because the device compares in it, and its mean and deviation."""
        before = [update[kind] for update in self._updates if update[0] < step - 1][-WINDOW:]
        if self.sigmas is None or len(before) < MIN_UPDATES:
            return math.inf, math.nan, math.nan
        mean, deviation = statistics.fmean(before), statistics.pstdev(before)
        return float(np.float32(mean + self.sigmas * deviation)), mean, deviation
