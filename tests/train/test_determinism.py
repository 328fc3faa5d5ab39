"""`deterministic`: what it sets, and the same losses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import saved_bytes, small, talking, train

from webtext.base.config import changed
from webtext.train import train_model

SETTINGS = small(
    steps=4, eval_windows=2, eval_interval=None, checkpoint_interval=2, keep_checkpoints=None, dtype="float32",
)  # fmt: skip


def test_on_a_cpu_it_changes_no_bit_and_a_resumed_run_reports_the_change(
    tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("plain", "deterministic"):
        train(tokens, tmp_path / name, changed(SETTINGS, deterministic=name != "plain"))
        assert torch.are_deterministic_algorithms_enabled() is (name != "plain")
    assert saved_bytes(tmp_path / "plain", 4) == saved_bytes(tmp_path / "deterministic", 4)
    for file in (tmp_path / "deterministic/checkpoints/step-000004").iterdir():
        file.unlink()
    train_model(tokens, str(tmp_path / "deterministic"), SETTINGS, talking())
    talk = capsys.readouterr().err
    assert "deterministic is False but was True: results equal only up to rounding" in talk
