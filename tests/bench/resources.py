"""CPU seconds and peak memory of this process, for the benches."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping

Work = Callable[[], object]


def cpu_seconds(work: Work, runs: int = 1) -> float:
    """Return the median CPU seconds of some runs."""
    return cpu_seconds_in_turn({"": work}, runs)[""]


def cpu_seconds_in_turn(
    works: Mapping[str, Work],
    runs: int,
    chosen: Callable[[Iterable[float]], float] = statistics.median,
    before: Work = int,
) -> dict[str, float]:
    """Return the chosen CPU seconds of each work, run in turn so that other load affects all; `before` isn't counted."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            before()
            start = time.process_time()
            work()
            seconds[name].append(time.process_time() - start)
    return {name: chosen(taken) for name, taken in seconds.items()}


def peak_mib() -> float:
    """Return the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
