"""`compile`: the same losses up to rounding, one compilation for all blocks, and a clear error if it is impossible."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from webtext.base.errors import ConfigError, MachineError
from webtext.base.run import Run
from webtext.train import TrainSettings, train_model
from webtext.train.model.compilation import compiles

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SETTINGS = TrainSettings(
    n_layer=3, n_head=2, n_embd=32, context=16, batch_size=4, microbatch_size=2, steps=4, warmup_steps=1,
    learning_rate=1e-2, eval_windows=2, eval_interval=2, checkpoint_interval=None, dtype="bfloat16", threads=1,
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
        TrainSettings(compile="yes")


def test_compiled_blocks_lose_what_others_lose_and_are_compiled_once(tokens: str, tmp_path: Path) -> None:
    torch.compiler.reset()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    losses = {}
    for name in ("on", "off"):
        train_model(tokens, str(tmp_path / name), replace(SETTINGS, compile=name), Run.quiet())
        rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        losses[name] = [row.get("loss", row.get("validation_loss")) for row in rows]
    assert losses["on"] == pytest.approx(losses["off"], rel=1e-2)
    assert len(losses["on"]) == 4 + 3
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == 1
