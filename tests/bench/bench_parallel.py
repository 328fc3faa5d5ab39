"""Weak and strong scaling of training on meshes of two processes, beside torch's DistributedDataParallel.

    python tests/bench/bench_parallel.py [--rounds N]          # a few minutes on two idle cores

Two processes, each with one thread on its own core, take complete steps: first each alone (both at the same time, so
that they share the machine in the same way), then together on each mesh. Strong scaling halves the work of each
process; weak scaling doubles the batch. Printed are the medians of the rounds' efficiencies and, for machines with
other load, the efficiency of the fastest steps. gloo's threads share the process's core, so communication isn't hidden.
First losses are compared with one process's.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arguments import parser
from parallel_peers import DDP, SETTINGS

HERE = Path(__file__).parent
TOLERANCE = 1e-5
MESHES = ("dp=2", "fsdp=2", "tp=2", "pp=2")


class Group:
    """A group of processes that get each request at the same time."""

    def __init__(self, n: int, store: Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, str(HERE / "parallel_peers.py")]
        self._processes = [
            subprocess.Popen(
                [*command, str(rank), str(n), str(store)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for rank in range(n)
        ]

    def ask(self, *word: Any) -> list[Any]:
        """Send a request to all processes; return their answers."""
        for process in self._processes:
            assert process.stdin is not None
            print(json.dumps(word), file=process.stdin, flush=True)
        lines = [process.stdout.readline() for process in self._processes if process.stdout is not None]
        if not all(lines):
            raise SystemExit(f"a process ended at {word}")
        return [json.loads(line) for line in lines]

    def end(self) -> None:
        """Close the processes' inputs, which ends them, and wait."""
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            process.wait()


@contextlib.contextmanager
def processes(n: int) -> Iterator[Group]:
    """Yield a group of processes, which ends with the block."""
    with tempfile.TemporaryDirectory() as folder:
        group = Group(n, Path(folder) / "store")
        try:
            yield group
        finally:
            group.end()


def measure_scaling(rounds: int) -> None:
    """Print the table of efficiencies, and the comparison with torch's DDP."""
    batch = SETTINGS.batch_size
    labels = ("alone", *MESHES, DDP)
    seconds: dict[tuple[str, int], list[float]] = {(label, n): [] for label in labels for n in (batch, 2 * batch)}
    with processes(2) as group:
        for label in labels:
            group.ask("make", label)
        check_losses({label: [group.ask("train", label, batch)[0]["loss"] for _ in range(2)] for label in labels})
        for _ in range(rounds):
            for label in labels:
                for n in (batch, 2 * batch)[: 1 if label == "alone" else 2]:
                    seconds[label, n].append(max(answer["seconds"] for answer in group.ask("train", label, n)))
    print("| mesh | strong scaling, 1 to 2 | fastest | weak scaling, 1 to 2 | fastest |\n|---|---|---|---|---|")
    single = seconds["alone", batch]
    for label in labels[1:]:
        columns = [
            f"{statistics.median(a / parts / b for a, b in zip(single, seconds[label, n], strict=True)):.0%} | "
            f"{min(single) / parts / min(seconds[label, n]):.0%}"
            for parts, n in ((2, batch), (1, 2 * batch))
        ]
        print(f"| {label} | {' | '.join(columns)} |", flush=True)
    ours, theirs = (seconds["dp=2", batch] + seconds["dp=2", 2 * batch], seconds[DDP, batch] + seconds[DDP, 2 * batch])
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    print(
        f"\ndp=2 is {statistics.median(ratios):.2f} times as fast as torch's DDP, median of {len(ratios)} "
        f"({min(ratios):.2f} to {max(ratios):.2f})"
    )


def check_losses(losses: dict[str, list[float]]) -> None:
    """Exit with an error if a mesh's loss differs from one process's on the same tokens, before or after an update."""
    for label, found in losses.items():
        for loss, expected in zip(found, losses["alone"], strict=True):
            if abs(loss / expected - 1) > TOLERANCE:
                raise SystemExit(f"{label} has a loss of {loss}, one process has {expected}")
    print(f"first two losses of {', '.join(losses)}: equal within {TOLERANCE:g}")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=7)
    rounds = options.parse_args().rounds
    print(f"load {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} cores, {rounds} rounds")
    measure_scaling(rounds)


if __name__ == "__main__":
    main()
