"""The recipes: each is a config file of `build` too, plans without error, and keeps the paper's batch."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import flags, rows

import webtext.train.settings
from webtext.app.config import classes_of_other_verbs, settings_classes
from webtext.app.main import run
from webtext.base.config import load_config, read_sections
from webtext.train.footprint import plan_training
from webtext.train.metrics import METRICS
from webtext.train.settings import TrainSettings

FOLDER = Path(webtext.train.settings.__file__).parent / "recipes"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.toml"))
GPU_MEMORY = 80 * 2**30


def read(name: str) -> TrainSettings:
    config = load_config(str(FOLDER / f"{name}.toml"))
    settings = read_sections(
        config,
        lambda: {name: cls for name, cls in (settings_classes() | classes_of_other_verbs()).items() if name != "build"},
    )
    found = settings["train"]
    assert isinstance(found, TrainSettings)
    return found


def test_there_is_one_for_a_toy_for_one_gpu_and_for_each_size_on_eight() -> None:
    assert RECIPES == [
        "gpt2-124M-1gpu",
        "gpt2-124M-8gpu",
        "gpt2-124M-fast",
        "gpt2-1558M-8gpu",
        "gpt2-355M-8gpu",
        "gpt2-774M-8gpu",
        "toy-cpu",
        "toy-cpu-fast",
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_loads_and_plans(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings, n = read(name), 1 if name.endswith("1gpu") else 8
    assert run(["train", "plan", "--config", str(FOLDER / f"{name}.toml"), "--processes", str(n), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["memory"]["total"] == plan_training(settings, processes=n)[0]["memory"]["total"]
    if name.startswith("gpt2"):
        assert settings.model == name.split("-")[1]
        layout = answer["layout"]
        assert answer["settings"]["batch_size"] * answer["settings"]["context"] == 512 * 1024
        assert layout["microbatch"] * layout["n_microbatches"] * n == 512
        assert answer["memory"]["total"] < GPU_MEMORY
    else:
        assert answer["config"]["parameters"] < 10**7 + 50_257 * 128


@pytest.mark.parametrize(
    ("fast", "plain", "share"), [("gpt2-124M-fast", "gpt2-124M-8gpu", 0.77), ("toy-cpu-fast", "toy-cpu", 0.65)]
)
def test_a_fast_recipe_has_the_plain_ones_model_and_batch_and_a_share_of_its_tokens(
    fast: str, plain: str, share: float
) -> None:
    ours, theirs = (read(name) for name in (fast, plain))
    assert ours.config(50_257) == theirs.config(50_257)
    assert ours.batch_size == theirs.batch_size
    assert share - 0.01 < ours.total_tokens / theirs.total_tokens <= share
    assert (ours.optimizer.optimizer, ours.schedule.schedule) == ("muon", "wsd")


@pytest.mark.parametrize("name", ["toy-cpu", "toy-cpu-fast"])
def test_the_toy_recipes_train(name: str, tokens: str, tmp_path: Path) -> None:
    recipe = str(FOLDER / f"{name}.toml")
    less = ["--n-embd", "16", "--context", "16", "--batch-size", "4", "--steps", "3", "--warmup-steps", "1"]
    command = ["train", "run", tokens, "--out", str(tmp_path / "toy"), "--config", recipe, *less, "--quiet"]
    assert run([*command, "--microbatch-size", "4"]) == 0
    assert (tmp_path / "toy" / METRICS).exists()


def free_port() -> int:
    """Return a free port among the thousand from which the Slurm file chooses."""
    for port in range(29500 + os.getpid() % 500, 30500):
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise OSError("no port from 29500 to 30499 is free")


@pytest.mark.parametrize("trains", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_slurm_file_starts_torchrun_with_a_log_for_each_rank(trains: bool, tokens: str, tmp_path: Path) -> None:
    """Slurm's own programs are replaced: `srun` runs its arguments here, `scontrol` names this host.

    The job's number is chosen so that its port is free. Without training, torchrun only notes its arguments.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    torchrun = f'exec "{sys.executable}" "{Path(__file__).with_name("forking_torchrun.py")}" "$@"'
    torchrun = torchrun if trains else f'echo "$@" > "{tmp_path}/arguments"'
    for name, script in {"srun": 'exec "$@"', "scontrol": "echo localhost", "torchrun": torchrun}.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    job = {
        "SLURM_JOB_ID": str(1000 * os.getpid() + free_port() - 29500),
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_JOB_NUM_NODES": "1",
    }
    place = {"SLURM_GPUS_ON_NODE": "2", "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", str(FOLDER / "slurm.sbatch"), "train", "run", tokens, "--out", "model", *flags(steps=3)]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, **job, **place})
    if not trains:
        said = (tmp_path / "arguments").read_text()
        assert said.endswith(f"-m webtext.app.main {' '.join(command[2:])}\n")
        assert "--nnodes 1 --nproc-per-node 2 " in said
        assert "--log-dir logs " in said
        return
    assert len(rows(tmp_path / "model")) == 3 + 2
    logs = {path.parent.name: path.read_text() for path in (tmp_path / "logs").rglob("stderr.log")}
    assert sorted(logs) == ["0", "1"]
    assert "on cpu, dp=2" in logs["0"]
