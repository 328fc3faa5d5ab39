"""The model of a step's time against published runs: its errors as they are, so that a change of the model shows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
import bench_published as bench
from bench_published import A100, FRONTIER, MT_NLG, OF_FRONTIER, SIZES, STRONG_175B, STRONG_530B, Row

from webtext.train.plan.cost import Machine


@pytest.mark.parametrize(
    ("rows", "machine", "off_by"),
    [
        (SIZES, A100, [0, -6, -16, -16, -20, -19, -22, -24, -28, -31]),
        (STRONG_175B, A100, [0, -1, -2, 20, 70, 166]),
        (STRONG_530B, A100, [0, -1, -2, 34, 61, 155]),
        (MT_NLG, A100, [0, 1, 4]),
        (OF_FRONTIER, FRONTIER, [0, -1, -10]),
    ],
    ids=["1.7B to 1T", "175B", "530B", "MT-NLG 530B", "Frontier's 22B, 175B and 1T"],
)
def test_predicted_rates_are_off_by_so_many_percent(rows: Sequence[Row], machine: Machine, off_by: list[int]) -> None:
    """The first row of each table is fitted. Shards that span nodes and models of other sizes are predicted badly."""
    machine = bench.fitted(rows[0], machine)
    assert [round(100 * (bench.predicted(row, machine)[1] / row.tflops - 1)) for row in rows] == off_by


def test_the_seconds_of_mt_nlgs_steps_are_predicted_within_4_percent() -> None:
    machine = bench.fitted(MT_NLG[0], A100)
    for row in MT_NLG:
        assert bench.predicted(row, machine)[0] == pytest.approx(row.seconds, rel=0.04)


def test_the_largest_models_on_one_device_are_predicted_within_3_percent() -> None:
    """Published are 32 layers, 1.717 billion parameters, on the device, and 100, 5.141 billion, with STRONGHOLD."""
    assert [bench.most_layers(offload) for offload, _ in bench.LARGEST.values()] == [33, 102]


def test_all_tables_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_published.py"])
    bench.main()
    out = capsys.readouterr().out
    assert out.count("off by") == 7
    assert "| STRONGHOLD, offloaded | 100 | 102 | +2% |" in out
    assert "175B, 128 to 1,024 devices, pp=16,dp=16,tp=4: weak scaling 99.7%, published 100 %" in out
