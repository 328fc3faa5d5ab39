"""What each rank of a mesh asks of its device, counted on meta tensors in a process of its own (`counted_mesh.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("mesh", "ranks"),
    [
        ("dp=2,fsdp=2,tp=2", [0, 7]),
        pytest.param("dp=8", [0, 7], marks=SLOW),
        pytest.param("fsdp=8", [0, 7], marks=SLOW),
        pytest.param("tp=8", [0, 7], marks=SLOW),
        pytest.param("dp=2,fsdp=2,tp=2", range(8), marks=SLOW),
        pytest.param("fsdp=64", [0, 63], marks=SLOW),
        pytest.param("dp=8,tp=8", [0, 63], marks=SLOW),
        pytest.param("dp=2,fsdp=4,tp=8", [0, 31, 63], marks=SLOW),
    ],
    ids=str,
)
def test_a_rank_asks_its_device_for_nothing_and_launches_little(mesh: str, ranks: list[int]) -> None:
    """Beside the compiled blocks, and beside what FSDP2 does with each parameter's gradient, at most three operations."""
    command = [sys.executable, str(Path(__file__).with_name("counted_mesh.py")), mesh, *map(str, ranks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["rank"] for row in rows] == list(ranks)
    for row in rows:
        assert row["waits"] == []
        assert row["blocks"] == 12
        assert row["step"] <= 150
        assert row["of_parameters"] <= 3
        assert row["update"] <= 60
