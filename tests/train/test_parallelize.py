"""Every mesh computes what one process computes: loss and gradient norm of each step, in float64 within 1e-12."""

from __future__ import annotations

import functools
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import parallel_child
import pytest
import torch
from small_runs import on_ranks

from webtext.train.engine import Engine
from webtext.train.mesh import MeshShape

EVERY_AXIS = ["dp=2,tp=2 1f1b float64 masks full", "pp=2,fsdp=2 1f1b float64 pads"]
SHORT = [
    "dp=4 1f1b float64 pads",
    "pp=4 1f1b float64 pads full",
    "dp=2,fsdp=2 1f1b float64 plain full",
    "dp=2,tp=2 1f1b float64 masks full",
    "pp=2,tp=2 interleaved float64 pads",
    "pp=2,dp=2 interleaved bfloat16 plain",
    "pp=2,fsdp=2 interleaved bfloat16 masks",
]
"""Together they have every axis and every fix of a known silent error."""
WITHIN = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 2e-2}
WHOLE = {
    2: ["dp=2", "fsdp=2", "tp=2", "pp=2"],
    4: ["dp=4", "fsdp=4", "tp=4", "pp=4", "dp=2,fsdp=2", "dp=2,tp=2", "fsdp=2,tp=2", "pp=2,dp=2", "pp=2,fsdp=2", "pp=2,tp=2"],
    8: ["dp=2,fsdp=2,tp=2", "pp=2,dp=2,tp=2", "pp=2,fsdp=2,tp=2", "pp=4,tp=2", "pp=2,dp=2,fsdp=2"],
}  # fmt: skip


def on_processes(
    n: int, runs: list[str], steps: int, folder: Path, n_layer: int = 8
) -> dict[str, list[list[dict[str, Any]]]]:
    """Return the rows that each of n processes wrote for each run, by rank."""
    ended = on_ranks(n, Path(parallel_child.__file__), folder, str(steps), str(n_layer), *runs)
    assert [code for code, _ in ended] == [0] * n, "\n".join(said for _, said in ended)
    return {run: [json.loads((folder / f"{run}.{rank}.json").read_text()) for rank in range(n)] for run in runs}


@functools.cache
def alone(dtype: str, windows: str, steps: int, n_layer: int = 8, optimizer: str = "adamw") -> list[dict[str, Any]]:
    """Return the same rows for the complete model in this process."""
    model = parallel_child.made_model(n_layer, getattr(torch, dtype))
    engine = Engine(model, parallel_child.RULES[windows], parallel_child.CPU, getattr(torch, dtype))
    rows: list[dict[str, Any]] = parallel_child.train(engine, steps, optimizer)
    return rows


def check(run: str, by_rank: list[list[dict[str, Any]]], expected: list[dict[str, Any]]) -> None:
    """Every rank reports the numbers of one process, and all copies of a shard have the same bits."""
    within = WITHIN[run.split()[2]]
    told = [[{k: v for k, v in row.items() if k != "held"} for row in rows] for rows in (*by_rank, expected)]
    assert all(rows == told[0] for rows in told[:-1]), run
    for ours, theirs in zip(told[0], told[-1], strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            assert value == pytest.approx(theirs[name], rel=within), (run, name)
    for step in range(len(expected) - 2):
        assert_replicas_are_equal(run, [rows[step]["held"] for rows in by_rank])


def assert_replicas_are_equal(run: str, held: list[list[tuple[str, str]]]) -> None:
    """Collect the bits of each shard by name and place along the axes that split it: each set must have one member."""
    shape = MeshShape.parse(run.split()[0])
    places = list(itertools.product(range(shape.pp), range(shape.dp), range(shape.fsdp), range(shape.tp)))
    found = defaultdict(set)
    for (_, _, fsdp, tp), parameters in zip(places, held, strict=True):
        for name, bits in parameters:
            is_split = name.endswith(TENSOR_PARALLEL) if shape.tp > 1 else False
            found[name, fsdp, tp if is_split else 0].add(bits)
    assert {key for key, values in found.items() if len(values) != 1} == set(), run


TENSOR_PARALLEL = (
    "token_embedding.weight",
    *(f"{layer}.{kind}" for layer in ("query", "key", "value", "expand") for kind in ("weight", "bias")),
    "projection.weight",
    "contract.weight",
)


@pytest.mark.parametrize(("meshes", "steps"), [(EVERY_AXIS, 2), pytest.param(SHORT, 3, marks=pytest.mark.slow)])
def test_every_axis_gives_the_numbers_of_one_process(meshes: list[str], steps: int, tmp_path: Path) -> None:
    """Four layers: as many as the largest number of stages of any mesh."""
    for run, by_rank in on_processes(4, meshes, steps, tmp_path / "runs", n_layer=4).items():
        check(run, by_rank, alone(*run.split()[2:4], steps, n_layer=4))


@pytest.mark.parametrize(
    ("n", "meshes"),
    [
        (4, ["dp=2,fsdp=2"]),
        pytest.param(2, WHOLE[2], marks=pytest.mark.dist),
        pytest.param(4, WHOLE[4], marks=pytest.mark.dist),
        pytest.param(8, [*WHOLE[8], "fsdp=8", "dp=8"], marks=pytest.mark.dist),
    ],
)
def test_muon_on_every_mesh_makes_the_updates_of_one_process(n: int, meshes: list[str], tmp_path: Path) -> None:
    """Four layers: 16 square matrices and 4 of each other shape, so on 8 processes some have nothing to do.

    In float64 the Newton-Schulz steps are made in float64, too.
    """
    runs = [f"{mesh} 1f1b float64 masks none muon" for mesh in meshes]
    for run, by_rank in on_processes(n, runs, 3, tmp_path / "runs", n_layer=4).items():
        check(run, by_rank, alone("float64", "masks", 3, n_layer=4, optimizer="muon"))


def test_offloaded_shards_have_the_numbers_of_shards_on_the_device_to_the_bit(tmp_path: Path) -> None:
    runs = ["fsdp=2 1f1b bfloat16 pads full adamw", "fsdp=2 1f1b float32 masks none muon"]
    both = [run + more for run in runs for more in ("", " offloaded")]
    found = on_processes(2, both, 2, tmp_path / "runs", n_layer=4)
    for run in runs:
        assert found[f"{run} offloaded"] == found[run]


@pytest.mark.dist
def test_a_step_on_a_mesh_is_the_same_to_the_bit_with_any_checkpointing(tmp_path: Path) -> None:
    steps = [
        "fsdp=2 1f1b bfloat16 masks {}",
        "tp=2 1f1b float64 pads {}",
        "pp=2 interleaved float32 masks {}",
        "pp=2 1f1b bfloat16 plain {}",
    ]
    hows = ("none", "full")
    found = on_processes(2, [step.format(how) for step in steps for how in hows], 2, tmp_path / "runs")
    for step in steps:
        kept, computed_twice = (found[step.format(how)] for how in hows)
        assert computed_twice == kept, step


def _whole() -> Iterator[tuple[int, str, str, str]]:
    for n in WHOLE:
        for schedule in ("1f1b", "interleaved"):
            yield n, schedule, "float64", "plain"
        for windows in ("masks", "pads"):
            yield n, "1f1b", "float64", windows
        yield n, "1f1b", "float32", "plain"
        yield n, "interleaved", "bfloat16", "masks"


@pytest.mark.dist
@pytest.mark.parametrize(("n", "schedule", "dtype", "windows"), list(_whole()))
def test_all_meshes_and_schedules_give_the_numbers_of_one_process(
    n: int, schedule: str, dtype: str, windows: str, tmp_path: Path
) -> None:
    meshes = [mesh for mesh in WHOLE[n] if schedule == "1f1b" or "pp" in mesh or dtype == "bfloat16"]
    runs = [f"{mesh} {schedule} {dtype} {windows}" for mesh in meshes]
    for run, by_rank in on_processes(n, runs, 20, tmp_path / "runs").items():
        check(run, by_rank, alone(dtype, windows, 20))
