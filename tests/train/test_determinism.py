"""`deterministic`: what it sets, the same losses, and a clear error if it is impossible."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from small_runs import saved_bytes, small, talking, train

from webtext.base.config import changed
from webtext.base.errors import MachineError
from webtext.train import train_model
from webtext.train.run.determinism import deterministic

SETTINGS = small(
    steps=4,
    dropout=0.1,
    eval_windows=2,
    eval_interval=None,
    checkpoint_interval=2,
    keep_checkpoints=None,
    dtype="float32",
)
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, "")  # so that it is restored
    monkeypatch.delenv(WORKSPACE)


def test_torchs_settings_are_set_and_restored() -> None:
    with deterministic(False):
        assert not torch.are_deterministic_algorithms_enabled()
        assert WORKSPACE not in os.environ
    with deterministic(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ[WORKSPACE] == ":4096:8"
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            torch.zeros(2).put_(torch.tensor([0, 0]), torch.ones(2))
    assert not torch.are_deterministic_algorithms_enabled()


def test_it_is_rejected_if_cuda_has_started_without_the_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    with pytest.raises(MachineError, match=f"CUDA is already in use\nset {WORKSPACE}=:4096:8"), deterministic(True):
        pass
    monkeypatch.setenv(WORKSPACE, ":16:8")
    with deterministic(True):
        assert os.environ[WORKSPACE] == ":16:8"


def test_on_a_cpu_it_changes_no_bit_and_a_resumed_run_reports_the_change(
    tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("plain", "deterministic"):
        train(tokens, tmp_path / name, changed(SETTINGS, deterministic=name != "plain"))
    assert saved_bytes(tmp_path / "plain", 4) == saved_bytes(tmp_path / "deterministic", 4)
    for file in (tmp_path / "deterministic/checkpoints/step-000004").iterdir():
        file.unlink()
    train_model(tokens, str(tmp_path / "deterministic"), SETTINGS, talking())
    talk = capsys.readouterr().err
    assert "deterministic is False but was True: results equal only up to rounding" in talk
