"""CPU seconds and peak memory of this process, for the benches."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

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
    """Return the peak memory of this process so far; in a fork, since its start."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def grown_mib(work: Work) -> float:
    """Return by how many MiB a fork of this process grows while it does a work, which needs no pickling."""
    fork = multiprocessing.get_context("fork")
    result, answer = fork.Pipe(duplex=False)

    def grow() -> None:
        before = peak_mib()
        work()
        answer.send(peak_mib() - before)

    child = fork.Process(target=grow)
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"a measured process ended with code {child.exitcode}")
    return result.recv()
