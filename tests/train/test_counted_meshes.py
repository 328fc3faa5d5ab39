"""What each rank of a mesh asks of its device, counted on meta tensors in a process of its own (`counted_mesh.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SLOW = pytest.mark.slow
MASKS, PADS = {"documents": "masked"}, {"documents": "padded"}
MUON, INTERLEAVED = {"optimizer": "muon"}, {"pipeline_schedule": "interleaved"}


def counted(changes: dict[str, Any], mesh: str, ranks: list[int]) -> list[dict[str, Any]]:
    """Check what holds on all meshes, and return the counts of each rank."""
    command = [sys.executable, str(Path(__file__).with_name("counted_mesh.py")), json.dumps(changes), mesh]
    done = subprocess.run([*command, *map(str, ranks)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["rank"] for row in rows] == list(ranks)
    pp = int(mesh[3]) if mesh.startswith("pp=") else 1
    for row in rows:
        assert row["waits"] == [] or changes.get("offload")
        assert row["reads"] == 1  # of held-out losses
        assert row["blocks"] == changes.get("n_layer", 12) / pp
        assert row["bytes"] <= 2  # times those of an ideal step of the complete model with as many tokens
    return rows


@pytest.mark.parametrize(
    ("changes", "mesh", "ranks"),
    [
        ({}, "dp=2,fsdp=2,tp=2", [0]),
        ({}, "pp=2,fsdp=4", [7]),
        pytest.param({}, "dp=8", [0, 7], marks=SLOW),
        pytest.param({}, "pp=2,fsdp=2,tp=2", [0, 7], marks=SLOW),
        pytest.param(INTERLEAVED, "pp=2,fsdp=4", [0, 7], marks=SLOW),
        pytest.param({}, "fsdp=8", [0, 7], marks=SLOW),
        pytest.param({}, "tp=8", [0, 7], marks=SLOW),
        pytest.param({"n_layer": 16}, "pp=8", [0, 3, 7], marks=SLOW),
        pytest.param({}, "dp=2,fsdp=2,tp=2", [7], marks=SLOW),
        pytest.param({}, "pp=2,dp=2,tp=2", range(8), marks=SLOW),
        pytest.param({}, "fsdp=64", [0, 63], marks=SLOW),
        pytest.param({}, "dp=8,tp=8", [0, 63], marks=SLOW),
        pytest.param({}, "dp=2,fsdp=4,tp=8", [0, 31, 63], marks=SLOW),
        pytest.param({}, "pp=4,dp=8,tp=2", [0, 31, 63], marks=SLOW),
        pytest.param(INTERLEAVED, "pp=4,dp=2", [0, 7], marks=SLOW),
        pytest.param(MASKS, "pp=2,dp=2,tp=2", [0, 7], marks=SLOW),
        pytest.param(MASKS, "fsdp=8", [0], marks=SLOW),
        pytest.param(PADS, "dp=2,fsdp=2,tp=2", [0], marks=SLOW),
    ],
    ids=str,
)
def test_a_rank_asks_its_device_for_nothing_and_launches_little(
    changes: dict[str, Any], mesh: str, ranks: list[int]
) -> None:
    """Except where shards are in a pipeline: there torch adds up the gradients of each parameter by itself."""
    for row in counted(changes, mesh, ranks):
        assert row["step"] <= (250 if "pp" in mesh and "fsdp" in mesh else 160)
        assert row["update"] <= 60


def test_gradients_of_a_microbatch_leave_shards() -> None:
    """Kept are parameters, moments and gradients, 16 bytes on eight ranks, two bytes of parameters, and what of the
    embeddings was sent last: before a step's last microbatch not much more than before its first.
    """
    changes = {"n_layer": 2, "n_head": 16, "n_embd": 1024}
    (row,) = counted(changes, "fsdp=8", [0])
    ends = (50304 + 1024) * 1024 + 2 * 1024
    n_parameters = ends + 2 * (12 * 1024**2 + 13 * 1024)
    assert row["kept"] < n_parameters * (16 / 8 + 2) + 4 * ends * 1.1
    (row,) = counted(changes | {"offload": True}, "fsdp=8", [0])
    assert row["homes"] == ["cpu"]  # of parameters and moments
    assert row["kept"] < n_parameters * 4.01 / 8  # the sums of gradients


@pytest.mark.slow
@pytest.mark.parametrize(("mesh", "most"), [("dp=8", 100), ("dp=2,fsdp=2,tp=2", 140)])
def test_muon_launches_some_more_where_two_axes_split_its_matrices(mesh: str, most: int) -> None:
    for row in counted(MUON, mesh, [0, 7]):
        assert row["step"] <= 160
        assert row["update"] <= most
