"""`train run` with `offload`: the numbers, files and errors of a plain run, with the model on the host."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_runs
import torch
from safetensors.torch import load_file
from small_runs import small, timeless, train, wait_until

from webtext.base.config import all_settings, changed
from webtext.base.errors import ConfigError, MachineError
from webtext.train.offload.offloaded import OffloadedModel

PLAIN = small(
    n_layer=3, n_head=2, context=32, microbatch_size=4, steps=6, warmup_steps=2, learning_rate=1e-2,
    eval_interval=3, eval_windows=8, checkpoint_interval=3, dtype="float32",
)  # fmt: skip
OFFLOADED = changed(PLAIN, offload=True)


def last_tensors(out: Path) -> dict[str, torch.Tensor]:
    folder = sorted((out / "checkpoints").iterdir())[-1]
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def assert_same_runs(a: Path, b: Path) -> None:
    assert timeless(a) == timeless(b)
    ours, theirs = last_tensors(a), last_tensors(b)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"documents": "masked"},
        {"dtype": "bfloat16"},
        {"max_grad_norm": None},
        pytest.param({"documents": "padded", "max_grad_norm": 0.2}, marks=pytest.mark.slow),
        pytest.param({"optimizer": "muon", "microbatch_size": 2, "steps": 4}, marks=pytest.mark.slow),
        pytest.param({"spike_sigmas": 0.1, "steps": 12, "learning_rate": 1e-5}, marks=pytest.mark.slow),
    ],
    ids=lambda changes: ",".join(changes) or "plain",
)
def test_an_offloaded_run_is_the_plain_run(
    tokens: str, tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, except for sums over a group's microbatches, where the shared embedding's differ."""
    monkeypatch.setattr("webtext.train.run.guard.MIN_UPDATES", 4)
    train(tokens, tmp_path / "plain", changed(PLAIN, **changes))
    train(tokens, tmp_path / "host", changed(OFFLOADED, **changes))
    if "microbatch_size" not in changes:
        assert_same_runs(tmp_path / "host", tmp_path / "plain")
    else:
        losses = [[row["loss"] for row in timeless(tmp_path / run) if "loss" in row] for run in ("host", "plain")]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    if "spike_sigmas" in changes:
        assert any("skipped" in row for row in timeless(tmp_path / "host"))


def test_a_checkpoint_resumes_offloaded_or_plain(tokens: str, tmp_path: Path) -> None:
    train(tokens, tmp_path / "whole", replace(PLAIN, steps=9))
    for stop, settings in ((3, PLAIN), (6, OFFLOADED), (9, PLAIN)):
        train(tokens, tmp_path / "parts", changed(settings, steps=9, stop_at_step=stop))
    assert_same_runs(tmp_path / "parts", tmp_path / "whole")


def test_a_killed_run_resumes(tokens: str, tmp_path: Path) -> None:
    settings = changed(OFFLOADED, steps=3000, checkpoint_interval=3)
    run = json.dumps([(tokens, str(tmp_path / "killed"), all_settings(settings))])
    child = subprocess.Popen([sys.executable, small_runs.__file__, "0", "1", str(tmp_path), run])
    wait_until(lambda: list((tmp_path / "killed").glob("checkpoints/step-*")), child)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    stop = 3 + int(max((tmp_path / "killed/checkpoints").glob("step-*")).name.removeprefix("step-"))
    train(tokens, tmp_path / "killed", changed(settings, stop_at_step=stop))
    train(tokens, tmp_path / "whole", changed(settings, offload=False, stop_at_step=stop))
    assert_same_runs(tmp_path / "killed", tmp_path / "whole")


def test_processes_that_offload_have_shards_and_one_is_not_compiled(tokens: str, tmp_path: Path) -> None:
    for mesh in ("dp=2", "fsdp=2,tp=2", "pp=2"):
        with pytest.raises(ConfigError, match=f"offload is on, but mesh is '{mesh}'\nchoose mesh fsdp=N"):
            changed(OFFLOADED, mesh=mesh)
    assert [changed(OFFLOADED, mesh=mesh).machine.mesh_shape(4).fsdp for mesh in ("dp=2,fsdp=2", None)] == [2, 4]
    with pytest.raises(ConfigError, match="but compile is 'on': one process can't have both\nleave one of them out"):
        train(tokens, tmp_path / "model", changed(OFFLOADED, compile="on"))
    assert not (tmp_path / "model").exists()


def test_a_device_too_small_for_two_layers_is_an_error_with_a_remedy(
    tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_small(*_: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(OffloadedModel, "forward_backward", too_small)
    with pytest.raises(MachineError, match=r"do not fit .*\nchoose microbatch_size = 2;"):
        train(tokens, tmp_path / "model", OFFLOADED)
