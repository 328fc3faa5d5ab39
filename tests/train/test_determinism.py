"""`deterministic` and `compile`: what they set, the same losses, and a clear error if they are impossible."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest
import torch
from small_runs import losses, saved_bytes, small, talking, train

from webtext.base.config import changed
from webtext.base.errors import ConfigError, MachineError
from webtext.train import TrainSettings, train_model
from webtext.train.model.compilation import compiles
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


CPU, CUDA = torch.device("cpu"), torch.device("cuda")
COMPILED = small(
    n_layer=3, n_head=2, n_embd=32, steps=4, learning_rate=1e-2, eval_windows=2, eval_interval=2,
    checkpoint_interval=None, dtype="bfloat16",
)  # fmt: skip


def test_it_is_on_if_set_or_on_a_gpu_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [compiles(setting, CPU) for setting in ("on", "auto", "off")] == [True, False, False]
    monkeypatch.setattr("webtext.train.model.compilation.find_spec", lambda name: name)
    for can in (True, False):
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda device, can=can: (7 if can else 6, 0))
        assert compiles("auto", CUDA) is can
        assert not compiles("off", CUDA)
    with pytest.raises(MachineError, match="compile is 'on', but torch finds no Triton"):
        compiles("on", CUDA)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MachineError, match="there is no C\\+\\+ compiler"):
        compiles("on", CPU)
    with pytest.raises(ConfigError, match="compile is 'yes'"):
        TrainSettings.of(compile="yes")


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_blocks_lose_what_others_lose_and_are_compiled_once(
    backend: str, tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """'eager' is torch.compile without the C++ compiler, which takes longest."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    torch.compiler.reset()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for name in ("on", "off"):
        train(tokens, tmp_path / name, changed(COMPILED, compile=name))
    compiled, plain = losses(tmp_path / "on"), losses(tmp_path / "off")
    assert compiled == pytest.approx(plain, rel=1e-2)
    assert len(compiled) == 4 + 3
    n_graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] - before
    assert n_graphs == 2  # a block, and the sum of its gradients
