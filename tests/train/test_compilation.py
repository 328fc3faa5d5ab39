"""`compile`: the same losses up to rounding, one compilation for all blocks, and a clear error if it is impossible."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import losses, small, train
from torch import nn

from webtext.base.config import changed
from webtext.base.errors import ConfigError, MachineError
from webtext.train import TrainSettings
from webtext.train.model.compilation import compiles

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SETTINGS = small(
    n_layer=3, n_head=2, n_embd=32, steps=4, learning_rate=1e-2, eval_windows=2, eval_interval=2,
    checkpoint_interval=None, dtype="bfloat16",
)  # fmt: skip


def test_it_is_on_if_set_or_on_a_gpu_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [compiles(setting, CPU) for setting in ("on", "auto", "off")] == [True, False, False]
    for can in (True, False):
        monkeypatch.setattr("torch.utils._triton.has_triton", lambda can=can: can)
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
    compiled_by = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda block, **how: compiled_by(block, backend=backend, **how))
    torch.compiler.reset()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for name in ("on", "off"):
        train(tokens, tmp_path / name, changed(SETTINGS, compile=name))
    compiled, plain = losses(tmp_path / "on"), losses(tmp_path / "off")
    assert compiled == pytest.approx(plain, rel=1e-2)
    assert len(compiled) == 4 + 3
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == 1
