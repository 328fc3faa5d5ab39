"""`train run --offload`: the numbers, files and errors of a plain run, with the model on the host or in files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from webtext.base.errors import ConfigError, MachineError
from webtext.base.run import Run
from webtext.train import TrainResult, TrainSettings, train_model
from webtext.train.offload.device_memory import check_offload
from webtext.train.resilience.distributed import World

PLAIN = TrainSettings(
    n_layer=3,
    n_head=2,
    n_embd=16,
    context=32,
    batch_size=4,
    microbatch_size=4,
    steps=12,
    warmup_steps=2,
    learning_rate=1e-2,
    eval_interval=6,
    eval_windows=8,
    checkpoint_interval=6,
    dtype="float32",
    threads=1,
)
OFFLOADED = replace(PLAIN, offload="host", device_memory_gib=0.01)
CLOCKED = ("seconds", "tokens_per_second", "mfu_ratio", "memory_bytes")


def train(tokens: str, out: Path, settings: TrainSettings) -> TrainResult:
    return train_model(tokens, str(out), settings, Run.quiet())


def metrics(out: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in CLOCKED} for row in rows]


def last_tensors(out: Path) -> dict[str, torch.Tensor]:
    folder = sorted((out / "checkpoints").iterdir())[-1]
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def assert_same_runs(a: Path, b: Path) -> None:
    assert metrics(a) == metrics(b)
    ours, theirs = last_tensors(a), last_tensors(b)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"document_masks": True, "dropout": 0.2},
        {"crosses_documents": False, "max_grad_norm": 0.2},
        {"optimizer": "muon", "batch_ramp_start": 2, "batch_ramp_steps": 3, "microbatch_size": 2, "steps": 4},
        {"on_spike": "skip", "spike_sigmas": 0.1, "steps": 18, "learning_rate": 1e-5},
    ],
    ids=lambda changes: ",".join(changes) or "plain",
)
def test_an_offloaded_run_is_the_plain_run(
    tokens: str, tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, except for sums over a group's microbatches (the batch ramp), where the shared embedding's differ."""
    monkeypatch.setattr("webtext.train.run.guard.MIN_UPDATES", 4)
    folder = str(tmp_path / "rows")
    train(tokens, tmp_path / "plain", replace(PLAIN, **changes))
    train(tokens, tmp_path / "host", replace(OFFLOADED, **changes))
    train(tokens, tmp_path / "files", replace(OFFLOADED, **changes, offload=folder))
    assert_same_runs(tmp_path / "files", tmp_path / "host")
    if "batch_ramp_start" not in changes:
        assert_same_runs(tmp_path / "host", tmp_path / "plain")
    else:
        losses = [[row["loss"] for row in metrics(tmp_path / run) if "loss" in row] for run in ("host", "plain")]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    if "on_spike" in changes:
        assert any("skipped" in row for row in metrics(tmp_path / "host"))
    assert list(Path(folder).iterdir()) == []


def test_a_checkpoint_resumes_offloaded_or_plain(tokens: str, tmp_path: Path) -> None:
    train(tokens, tmp_path / "whole", replace(PLAIN, steps=18))
    steps = ((6, PLAIN), (12, OFFLOADED), (18, PLAIN))
    for stop, settings in steps:
        train(tokens, tmp_path / "parts", replace(settings, steps=18, stop_at_step=stop))
    assert_same_runs(tmp_path / "parts", tmp_path / "whole")


def test_a_killed_run_leaves_no_files_and_resumes(tokens: str, tmp_path: Path) -> None:
    settings = replace(OFFLOADED, offload=str(tmp_path / "rows"), steps=3000, checkpoint_interval=3)
    code = (
        "import sys; from webtext.base.run import Run; from webtext.train import TrainSettings, train_model; "
        "from pathlib import Path; "
        f"train_model({tokens!r}, {str(tmp_path / 'killed')!r}, {settings!r}, Run.quiet())"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    while child.poll() is None and not list((tmp_path / "killed").glob("checkpoints/step-*")):
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert list((tmp_path / "rows").iterdir()) == []
    reached = int(max((tmp_path / "killed/checkpoints").glob("step-*")).name.removeprefix("step-"))
    stop = reached + 3
    train(tokens, tmp_path / "killed", replace(settings, stop_at_step=stop))
    train(tokens, tmp_path / "whole", replace(settings, offload=None, device_memory_gib=None, stop_at_step=stop))
    assert_same_runs(tmp_path / "killed", tmp_path / "whole")


def test_settings_that_exclude_offloading_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    in_file = replace(OFFLOADED, offload=str(tmp_path / "file" / "rows"))
    alone = World(0, 1, torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"the device is the CPU, whose memory is the host's\ngive device_memory_gib"):
        check_offload(replace(OFFLOADED, device_memory_gib=None), alone)
    with pytest.raises(MachineError, match=r"file/rows' can't store files of an offloaded model"):
        check_offload(in_file, alone)
    for changes, said in {
        (
            "mesh",
            "fsdp=2",
        ): "offload is 'host' and mesh 'fsdp=2': an offloaded run is one process or its replicas\nchoose",
        ("mesh", "dp=2,tp=2"): "and mesh 'dp=2,tp=2': an offloaded run is one process or its replicas",
        ("mesh", "pp=2"): "and mesh 'pp=2': an offloaded run is one process or its replicas",
        ("compile", "on"): "offload is 'host' and compile is 'on'",
        ("offload", "hots"): "offload is 'hots'\nit must be 'host', or a folder's path with a slash",
        ("offload", None): "device_memory_gib is 0.01\nit must be left out if nothing is offloaded",
        ("device_memory_gib", 0.0): "device_memory_gib is 0.0\nit must be above 0",
    }.items():
        with pytest.raises(ConfigError, match=said):
            replace(OFFLOADED, **dict([changes]))


def test_settings_are_rejected_before_anything_is_written(tokens: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give device_memory_gib"):
        train(tokens, tmp_path / "model", replace(OFFLOADED, device_memory_gib=None))
    assert not (tmp_path / "model").exists()


def test_a_device_too_small_for_two_layers_is_an_error_with_a_remedy(tokens: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"do not fit .*\nchoose microbatch_size = 2 or a larger device_memory_gib"):
        train(tokens, tmp_path / "model", replace(OFFLOADED, device_memory_gib=1e-5))
