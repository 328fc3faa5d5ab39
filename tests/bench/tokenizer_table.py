"""Figures of the tokenizer's bench from the runs of its jobs: medians and ratios, as table and as JSON.

A job's runs are the output of `tokenizer_child.py`, one dictionary per run. The parent adds "right": whether ids or
merges equal the reference's, None if unknown. A failed run has only "error".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tokenizer_rows import Job, Row

Run = Mapping[str, Any]
Runs = Mapping[Job, Sequence[Run]]

UNITS = {
    "warm": "MB/s",
    "cold": "MB/s",
    "wall": "MB/s",
    "seconds": "s",
    "memory": "MB",
    "worst": "s",
    "different": "texts",
}
LABELS = {"seconds": "CPU time", "memory": "peak memory above input", "worst": "CPU time", "wall": "", "different": ""}
LESS_IS_BETTER = ("s", "MB", "texts")
NAMES = {"tokenizers": "HF tokenizers"}


@dataclass(frozen=True)
class Line:
    """One line of the table. `ratio` is how many times as good as the peer we are."""

    name: str
    label: str
    unit: str
    ours: float | None
    peer_name: str
    peer: float | None
    ratio: float | None
    is_right: bool
    others: dict[str, float | None]
    notes: list[str]


def line_of(row: Row, kind: str, runs: Runs) -> Line:
    """Return the figures of one measure."""
    unit = UNITS[kind]
    ours = figure(runs.get(row.ours, ()), kind)
    best: dict[str, float | None] = {}
    for job in row.peers:
        value, name = figure(runs.get(job, ()), kind), name_of(job, row)
        best[name] = better(best.get(name), value, unit)
    peer_name = next(iter(best), "")
    peer = best.pop(peer_name, None)
    return Line(
        name=f"{row.name} {kind}",
        label=", ".join(filter(None, [row.label, LABELS.get(kind, kind)])),
        unit=unit,
        ours=ours,
        peer_name=peer_name,
        peer=peer,
        ratio=ratio(ours, peer, unit),
        is_right=all(run.get("right") is not False for run in runs.get(row.ours, ())),
        others=best,
        notes=notes(row, runs),
    )


def figure(runs: Sequence[Run], kind: str) -> float | None:
    """Return the median over the runs of one job; None if none succeeded.

    >>> run = {"n_bytes": 2e6, "passes": [{"cpu": 4.0}, {"cpu": 1.0}, {"cpu": 2.0}, {"cpu": 9.0}]}
    >>> figure([run], "cold"), figure([run], "warm")
    (0.5, 1.0)
    """
    done = [run for run in runs if "error" not in run]
    if not done:
        return None
    if kind == "different":
        return max(run["n_different"] for run in done)
    if kind == "worst":
        return max(seconds for _, seconds in hostile_seconds(done))
    if kind == "memory":
        return statistics.median(run.get("loaded_bytes", 0) + run["peak_bytes"] for run in done) / 1e6
    if kind == "seconds":
        return statistics.median(run["passes"][0]["cpu"] for run in done)
    if kind == "cold":
        return done[0]["n_bytes"] / 1e6 / statistics.median(run["passes"][0]["cpu"] for run in done)
    clock = "wall" if kind == "wall" else "cpu"
    warm = [statistics.median(time[clock] for time in run["passes"][1:] or run["passes"]) for run in done]
    return done[0]["n_bytes"] / 1e6 / statistics.median(warm)


def hostile_seconds(done: Sequence[Run]) -> list[tuple[str, float]]:
    """Return the name and median seconds of each hostile text."""
    return [(name, statistics.median(run["texts"][name]["cpu"] for run in done)) for name in done[0]["texts"]]


def name_of(job: Job, row: Row) -> str:
    """Return the name of a peer; if webtext is its own peer, the difference between the jobs."""
    return "one thread" if job.engine == row.ours.engine else NAMES.get(job.engine, job.engine)


def better(one: float | None, other: float | None, unit: str) -> float | None:
    """Return the better of two figures."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other) if unit in LESS_IS_BETTER else max(one, other)


def ratio(ours: float | None, peer: float | None, unit: str) -> float | None:
    """Return how many times as fast (or as small) ours is.

    >>> ratio(0.5, 2.0, "s"), ratio(300.0, 200.0, "MB/s"), ratio(300.0, None, "MB/s")
    (4.0, 1.5, None)
    """
    if not ours or not peer:
        return None
    return peer / ours if unit in LESS_IS_BETTER else ours / peer


def notes(row: Row, runs: Runs) -> list[str]:
    """Return notes on a row's jobs: failures, wrong ids, the slowest hostile texts."""
    said = []
    for job in (row.ours, *row.peers):
        done = [run for run in runs.get(job, ()) if "error" not in run]
        name = f"{NAMES.get(job.engine, job.engine)}, {job.task}"
        said += [f"{name}: {run['error']}" for run in runs.get(job, ()) if "error" in run][:1]
        if any(run.get("right") is False for run in done):
            wrong = "merges are not HF's" if job.task == "train" else f"{job.vocabulary}'s ids are not tiktoken's"
            found = next((run["shortest"] for run in done if run.get("shortest")), [])
            said.append(f"{name}: {wrong}" + (f", e.g. of {', '.join(found)}" if found else ""))
        if row.ours.task == "hostile" and done:
            slowest = sorted(hostile_seconds(done), key=lambda entry: -entry[1])[:3]
            said.append(f"{name}: slowest are " + ", ".join(f"{text} {_shown(time)} s" for text, time in slowest))
    return said


def as_table(lines: Iterable[Line]) -> str:
    """Format the lines as a Markdown table with aligned columns, and the notes below it."""
    lines = list(lines)
    head = ["", "webtext", "peer", "", "ratio", "others"]
    cells = [head, [], *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in cells if row) for column in range(len(head))]
    cells[1] = ["-" * width for width in widths]
    table = ["| " + " | ".join(map(str.ljust, row, widths)).rstrip() + " |" for row in cells]
    said = dict.fromkeys(note for line in lines for note in line.notes)
    return "\n".join([*table, *(f"- {note}" for note in said)])


def _cells(line: Line) -> list[str]:
    """Return one line's cells, figures with three digits."""
    return [
        f"{line.label}, {line.unit}",
        _shown(line.ours),
        _shown(line.peer),
        line.peer_name,
        "wrong ids" if not line.is_right else "" if line.ratio is None else f"{line.ratio:.2f}",
        ", ".join(f"{name} {_shown(value)}" for name, value in line.others.items()),
    ]


def _shown(value: float | None) -> str:
    """Format a figure with three digits.

    >>> _shown(0.0123456), _shown(1234.5), _shown(None)
    ('0.0123', '1234', '–')
    """
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def as_json(header: Mapping[str, Any], lines: Iterable[Line], runs: Runs) -> dict[str, Any]:
    """Return everything for the JSON file: the machine, the lines, and each run of each job."""
    jobs = [{"job": asdict(job), "runs": list(done)} for job, done in runs.items()]
    return {**header, "rows": [asdict(line) for line in lines], "jobs": jobs}
