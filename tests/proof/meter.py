"""Runs a command and measures it with all its descendants: seconds, CPU seconds, and the peak of their memory together."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

SECONDS_BETWEEN_LOOKS = 0.5
TAIL = 15  # lines of the log that an error shows


def run_measured(
    name: str,
    command: list[str],
    log: Path,
    *,
    stage_of: Callable[[str], str | None] = lambda line: None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Run `command` with both outputs in `log`; one row of figures, and one more from each line that `stage_of` gives a name.

    Memory is the sum of proportional set sizes, so shared pages count once. RuntimeError when the command fails.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    rows = [_row(name)]
    with (
        open(log, "w+", encoding="utf-8", errors="replace") as file,
        open(log, encoding="utf-8", errors="replace") as seen,
    ):
        process = psutil.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)
        cpu = 0.0
        started = time.monotonic()
        while True:
            ended = process.poll() is not None
            now, used, memory = time.monotonic(), *_use_of(process)
            rows[-1]["seconds"] += now - started
            rows[-1]["cpu_seconds"] += max(used - cpu, 0.0)
            rows[-1]["peak_mib"] = max(rows[-1]["peak_mib"], memory / 2**20)
            started, cpu = now, max(used, cpu)
            rows += [_row(stage) for line in seen if (stage := stage_of(line))]
            if ended:
                break
            time.sleep(SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL:])
        raise RuntimeError(f"{name} ended with exit code {process.returncode}; the end of '{log}':\n{tail}")
    return [row for row in rows if row["seconds"] > 0]


def _row(name: str) -> dict[str, Any]:
    return {"name": name, "seconds": 0.0, "cpu_seconds": 0.0, "peak_mib": 0.0}


def _use_of(process: psutil.Popen) -> tuple[float, float]:
    """CPU seconds so far and bytes of memory now, of the process and its descendants, those that ended included."""
    cpu = memory = 0.0
    for each in _family(process):
        with contextlib.suppress(psutil.Error):
            cpu += sum(each.cpu_times()[:4])
            memory += each.memory_full_info().pss
    return cpu, memory


def _family(process: psutil.Popen) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        yield process
        yield from process.children(recursive=True)
