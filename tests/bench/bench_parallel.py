"""Meshes of processes: measured and modelled scaling, comparison with torch's DDP, and equal losses.

    python tests/bench/bench_parallel.py                       # a few minutes on two idle cores
    python tests/bench/bench_parallel.py --rounds 9 --page curves.html
    python tests/bench/bench_parallel.py --only curves

Two processes, each with one thread on its own core, take complete steps: first each alone (both at the same time, so
that they share the machine in the same way), then together on each mesh. Strong scaling halves the work of each
process; weak scaling doubles the batch. Printed are the medians of the rounds' efficiencies and, for machines with
other load, the efficiency of the fastest steps. The model's inputs (computing, update, gloo's bandwidth and latency)
are the fastest measured in the same rounds. gloo's threads share the process's core, so communication isn't hidden.
First losses are compared; at the end seven runs with one to eight processes draw their loss curves.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from parallel_page import page
from parallel_peers import MICROBATCHES, MODELS, VOCAB_SIZES

from webtext.train.mesh import MeshShape
from webtext.train.plan.cost import UPDATE_BYTES, Link, Machine, step_time
from webtext.train.plan.layout import Layout

HERE = Path(__file__).parent
TOLERANCE = 1e-5
DDP = "torch's DDP"
MEASURED = {
    "dp=2": ["all_reduce"],
    "fsdp=2": ["all_gather"],
    "tp=2": ["all_gather", "all_to_all"],  # a CPU implements reduce-scatter this way
    "pp=2": ["message"],
}
"""Meshes, and the collectives that each uses most (equally often), on which its model is based."""
CURVES = [
    ("dp=2", "1f1b"),
    ("dp=2,fsdp=2", "1f1b"),
    ("fsdp=2,tp=2", "1f1b"),
    ("pp=2,tp=2", "1f1b"),
    ("pp=2,fsdp=2,tp=2", "zbv"),
    ("pp=2,dp=2,tp=2", "interleaved"),
]
SMALL_BYTES, LARGE_BYTES = 8, 2**22


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


def seconds_of(answers: Sequence[dict[str, float]]) -> float:
    """Return the seconds of a step, which are those of its slowest process."""
    return max(answer["gradients"] + answer["update"] for answer in answers)


def measure_scaling(rounds: int) -> None:
    """Print the table of efficiencies, measured and modelled, and the comparison with torch's DDP."""
    settings = MODELS["measured"]
    batch = settings.batch_size
    labels = ["alone", *MEASURED, DDP]
    seconds: dict[tuple[str, int], list[float]] = {(label, n): [] for label in labels for n in (batch, 2 * batch)}
    links: list[dict[str, dict[str, float]]] = []
    alone: list[dict[str, float]] = []
    with processes(2) as group:
        for label in labels:
            group.ask("make", label, "measured", label, "1f1b")
        check_losses({label: [group.ask("train", label, batch)[0]["loss"] for _ in range(2)] for label in labels})
        for _ in range(rounds):
            alone += group.ask("train", "alone", batch)
            seconds["alone", batch].append(max(answer["gradients"] + answer["update"] for answer in alone[-2:]))
            for label in labels[1:]:
                for n in (batch, 2 * batch):
                    seconds[label, n].append(seconds_of(group.ask("train", label, n)))
            links.append({str(n): group.ask("link", n)[0] for n in (SMALL_BYTES, LARGE_BYTES)})
    machines = {label: machine_of(label, alone, links) for label in MEASURED}
    print_inputs(machines, min(seconds["alone", batch]))
    print("| mesh | strong scaling, 1 to 2 | fastest | modelled | weak scaling, 1 to 2 | fastest | modelled |")
    print("|---|---|---|---|---|---|---|")
    single = seconds["alone", batch]
    for label in labels[1:]:
        modelled = modelled_ratios(label, machines[label]) if label in machines else None
        columns = [
            f"{statistics.median(a / parts / b for a, b in zip(single, seconds[label, n], strict=True)):.0%} | "
            f"{min(single) / parts / min(seconds[label, n]):.0%} | "
            + (f"{modelled[n // batch - 1]:.0%}" if modelled else "")
            for parts, n in ((2, batch), (1, 2 * batch))
        ]
        print(f"| {label} | {' | '.join(columns)} |")
    ours, theirs = (seconds["dp=2", batch] + seconds["dp=2", 2 * batch], seconds[DDP, batch] + seconds[DDP, 2 * batch])
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    print(
        f"\ndp=2 is {statistics.median(ratios):.2f} times as fast as torch's DDP, median of {len(ratios)} "
        f"({min(ratios):.2f} to {max(ratios):.2f}); by the fastest steps "
        f"{min(seconds[DDP, batch]) / min(seconds['dp=2', batch]):.2f}"
    )


def check_losses(losses: dict[str, list[float]]) -> None:
    """Exit with an error if a mesh's loss differs from one process's on the same tokens, before or after an update."""
    for label, found in losses.items():
        for loss, expected in zip(found, losses["alone"], strict=True):
            if abs(loss / expected - 1) > TOLERANCE:
                raise SystemExit(f"{label} has a loss of {loss}, one process has {expected}")
    print(f"first two losses of {', '.join(losses)}: equal within {TOLERANCE:g}")


def machine_of(label: str, alone: Sequence[dict[str, float]], links: Sequence[dict[str, Any]]) -> Machine:
    """Return a description of this machine from its fastest measurements."""
    settings, collectives = MODELS["measured"], MEASURED[label]
    config = settings.config(VOCAB_SIZES["measured"])
    link = Link(bandwidth=1.0, latency=0.0)
    unit = Machine(flops=1.0, inside=link, between=link, devices_per_node=2, memory_bandwidth=1.0)
    flops = step_time(config, settings, layout_of("", settings.batch_size), unit).compute
    small, large = (
        statistics.mean(min(row[str(n)][collective] for row in links) for collective in collectives)
        for n in (SMALL_BYTES, LARGE_BYTES)
    )
    sent = LARGE_BYTES / (2 if label in ("fsdp=2", "tp=2") else 1)
    link = Link(bandwidth=sent / max(large - small, 1e-9), latency=small / (2 if label == "dp=2" else 1))
    return Machine(
        flops=flops / min(row["gradients"] for row in alone),
        inside=link,
        between=link,
        devices_per_node=2,
        memory_bandwidth=UPDATE_BYTES * config.n_parameters / min(row["update"] for row in alone),
        overlap_ratio=0.0,
    )


def layout_of(mesh: str, batch: int) -> Layout:
    """Return the layout that the processes use."""
    shape = MeshShape.parse(mesh)
    microbatch = min(MICROBATCHES["measured"], batch // shape.n_data)
    return Layout(shape=shape, microbatch=microbatch, n_microbatches=batch // shape.n_data // microbatch)


def modelled_ratios(mesh: str, machine: Machine) -> tuple[float, float]:
    """Return strong and weak scaling as predicted by the model."""
    settings = MODELS["measured"]
    config, batch = settings.config(VOCAB_SIZES["measured"]), settings.batch_size
    single, strong, weak = (
        step_time(config, settings, layout_of(where, n), machine).total
        for where, n in (("", batch), (mesh, batch), (mesh, 2 * batch))
    )
    return single / 2 / strong, single / weak


def print_inputs(machines: dict[str, Machine], seconds: float) -> None:
    """Print the inputs of the model."""
    settings, some = MODELS["measured"], machines["dp=2"]
    print(
        f"{settings.shape.n_layer} layers of {settings.shape.n_embd}, {settings.batch_size} x {settings.context} tokens, "
        f"float32: "
        f"{seconds * 1000:,.0f} ms per step of one process while the other makes its own\n"
        f"measured: computing {some.flops / 1e9:,.1f} GFLOP/s, update {some.memory_bandwidth / 1e9:.1f} GB/s; gloo "
        + ", ".join(
            f"{' and '.join(MEASURED[mesh])} {machine.inside.bandwidth / 1e9:.2f} GB/s and {machine.inside.latency * 1e6:,.0f} us"
            for mesh, machine in machines.items()
        )
        + "\n"
    )


def draw_curves(steps: int, target: Path) -> None:
    """Print and draw the losses of one process and of six meshes on the same tokens, and their differences."""
    batch = MODELS["curve"].batch_size
    with processes(1) as group:
        group.ask("make", "run", "curve", "alone", "")
        expected = [group.ask("train", "run", batch)[0]["loss"] for _ in range(steps)]
    curves = {"one process": expected}
    print(
        "\n| mesh | processes | first loss | last loss | largest difference of a step's loss |\n|---|---|---|---|---|"
    )
    print(f"| one process | 1 | {expected[0]:.4f} | {expected[-1]:.4f} | |")
    for mesh, schedule in CURVES:
        n = MeshShape.parse(mesh).size
        name = mesh if schedule == "1f1b" else f"{mesh}, {schedule}"
        with processes(n) as group:
            group.ask("make", "run", "curve", mesh, schedule)
            losses = [group.ask("train", "run", batch)[0]["loss"] for _ in range(steps)]
        curves[name] = losses
        apart = max(abs(loss / wanted - 1) for loss, wanted in zip(losses, expected, strict=True))
        if apart > TOLERANCE:
            raise SystemExit(f"{name} differs by {apart:.1e} from one process")
        print(f"| {name} | {n} | {losses[0]:.4f} | {losses[-1]:.4f} | {apart:.1e} |")
    tokens = batch * MODELS["curve"].context
    target.write_text(page(curves, tokens))
    print(f"\nwrote '{target}'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=24, help="steps of the loss curves")
    parser.add_argument("--page", type=Path, default=Path("build/parallel_curves.html"), metavar="FILE")
    parser.add_argument("--only", choices=["scaling", "curves"])
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} cores, {options.rounds} rounds")
    if options.only != "curves":
        measure_scaling(options.rounds)
    if options.only != "scaling":
        options.page.parent.mkdir(exist_ok=True)
        draw_curves(options.steps, options.page)


if __name__ == "__main__":
    main()
