"""Every mesh computes what one process computes: loss and gradient norm of each step, in float64 within 1e-12."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

CHILD = Path(__file__).with_name("parallel_child.py")
SHORT = ["dp=4 1f1b float64", "dp=2,fsdp=2 1f1b float64", "dp=2,tp=2 1f1b float64", "pp=2,tp=2 zbv float64"]
"""What `make test` holds; between them, every axis and every mend of a known silent error."""
WHOLE = {
    2: ["dp=2", "fsdp=2", "tp=2", "pp=2"],
    4: ["dp=4", "fsdp=4", "tp=4", "pp=4", "dp=2,fsdp=2", "dp=2,tp=2", "fsdp=2,tp=2", "pp=2,dp=2", "pp=2,fsdp=2", "pp=2,tp=2"],
    8: ["dp=2,fsdp=2,tp=2", "pp=2,dp=2,tp=2", "pp=2,fsdp=2,tp=2", "pp=4,tp=2", "pp=2,dp=2,fsdp=2"],
}  # fmt: skip


def _child() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parallel_child", CHILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_processes(n: int, runs: list[str], steps: int, folder: Path) -> dict[str, list[list[dict[str, Any]]]]:
    """What each of n processes wrote of each run: rows by rank."""
    folder.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    arguments = [str(n), str(folder), str(steps), *runs]
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(open(folder / f"{rank}.log", "w")) for rank in range(n)]
        command = [sys.executable, str(CHILD)]
        children = [
            subprocess.Popen([*command, str(rank), *arguments], env=environment, stderr=log)
            for rank, log in enumerate(logs)
        ]
        codes = [child.wait() for child in children]
    assert codes == [0] * n, "\n".join((folder / f"{rank}.log").read_text() for rank in range(n))
    return {run: [json.loads((folder / f"{run}.{rank}.json").read_text()) for rank in range(n)] for run in runs}


def alone(dtype: torch.dtype, steps: int) -> list[tuple[float, float]]:
    """Loss and gradient norm of each step of the plain model in one process."""
    child = _child()
    model = child.made_model(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    rows = []
    for step in range(steps):
        parts = child.batch_of(step).split(child.MICROBATCH)
        losses = [model.loss(part[:, :-1], part[:, 1:]) / len(parts) for part in parts]
        for loss in losses:
            loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), child.MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        rows.append((float(sum(loss.detach().double() for loss in losses)), float(norm)))
    return rows


def check(run: str, by_rank: list[list[dict[str, Any]]], expected: list[tuple[float, float]], within: float) -> None:
    """Every rank tells the numbers of one process; whoever holds the same piece of a parameter holds the same bits."""
    for rows in by_rank:
        assert [row["loss"] for row in rows] == pytest.approx([loss for loss, _ in expected], rel=within), run
        assert [row["norm"] for row in rows] == pytest.approx([norm for _, norm in expected], rel=within), run
    assert all(
        [(row["loss"], row["norm"]) for row in rows] == [(row["loss"], row["norm"]) for row in by_rank[0]]
        for rows in by_rank
    ), run
    for step in range(len(expected)):
        assert_replicas_are_equal(run, [rows[step]["held"] for rows in by_rank])


def assert_replicas_are_equal(run: str, held: list[list[tuple[str, str, str]]]) -> None:
    """By name and place along the axes that split it: a set of bits for each, which must have one member."""
    from webtext.train.parallel.mesh import MeshShape

    shape = MeshShape.parse(run.split()[0])
    places = list(itertools.product(range(shape.pp), range(shape.dp), range(shape.fsdp), range(shape.tp)))
    found = defaultdict(set)
    for (_, _, fsdp, tp), parameters in zip(places, held, strict=True):
        for name, placements, bits in parameters:
            is_split = name.endswith(TENSOR_PARALLEL) if shape.tp > 1 else False
            found[name, fsdp, tp if is_split else 0].add(bits)
            assert placements or shape.size == shape.pp
    assert {key for key, values in found.items() if len(values) != 1} == set(), run


TENSOR_PARALLEL = (
    "token_embedding.weight",
    *(f"{layer}.{kind}" for layer in ("query", "key", "value", "expand") for kind in ("weight", "bias")),
    "projection.weight",
    "contract.weight",
)


def test_every_axis_gives_the_numbers_of_one_process(tmp_path: Path) -> None:
    expected = alone(torch.float64, 3)
    for run, by_rank in on_processes(4, SHORT, 3, tmp_path / "runs").items():
        check(run, by_rank, expected, 1e-12)


def _whole() -> Iterator[tuple[int, str, str]]:
    for n in WHOLE:
        for schedule in ("1f1b", "interleaved", "zbv"):
            yield n, schedule, "float64"
        yield n, "1f1b", "float32"


@pytest.mark.dist
@pytest.mark.parametrize(("n", "schedule", "dtype"), list(_whole()))
def test_all_meshes_and_schedules_give_the_numbers_of_one_process(
    n: int, schedule: str, dtype: str, tmp_path: Path
) -> None:
    steps = 20
    expected = alone(getattr(torch, dtype), steps)
    runs = [f"{mesh} {schedule} {dtype}" for mesh in WHOLE[n] if schedule == "1f1b" or "pp" in mesh]
    for run, by_rank in on_processes(
        n, [r for r in runs if not ("pp=4" in r and schedule == "none")], steps, tmp_path / "runs"
    ).items():
        check(run, by_rank, expected, 1e-12 if dtype == "float64" else 1e-5)
