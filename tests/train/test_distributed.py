"""Two gloo processes under torchrun compared with one process: the same command, the same global batch."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from small_runs import flags, losses
from torch.distributed import HashStore, ProcessGroup, distributed_c10d

from webtext.app.main import run
from webtext.base.errors import ConfigError, MachineError
from webtext.train import distributed
from webtext.train.checkpoint.saver import CheckpointSaver
from webtext.train.data.windows import WindowRules
from webtext.train.distributed import HANG_TIMEOUT, World, gpu_of, join_world, require_own_gpus
from webtext.train.mesh import MeshShape
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.initialization import drawn
from webtext.train.run.trainer import make_engine
from webtext.train.settings import MachineSettings, TrainSettings

SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context": 32, "batch_size": 8}
FLAGS = flags(
    **SHAPE, steps=12, warmup_steps=2, learning_rate=0.01, eval_interval=6, checkpoint_interval=6, dtype="float32",
)  # fmt: skip


ADDRESS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def command(tokens: str, out: Path, *more: str) -> list[str]:
    return ["train", "run", tokens, "--out", str(out), *FLAGS, "--quiet", *more]


def test_every_group_of_a_run_waits_equally_long_for_a_hung_process(
    alone: ProcessGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MachineSettings, "mesh_shape", lambda *_: MeshShape())
    world, settings = World(0, 2, torch.device("cpu")), TrainSettings.of(**SHAPE)
    model = GPT2(config := settings.config(64))
    make_engine(model, settings, WindowRules(), world, torch.float32, drawn(config, 0))
    with CheckpointSaver(tmp_path, world, keep=1):
        groups = distributed_c10d._world.pg_map
        assert {group._get_backend(world.device).options._timeout for group in groups} == {HANG_TIMEOUT}
        assert len(groups) == 2


MUON = "--set train.optimizer.optimizer=muon --set train.optimizer.muon_learning_rate=0.003"


@pytest.mark.parametrize(
    ("more", "bound"),
    [
        ("--set train.data.documents=padded", 1e-5),
        pytest.param("--set train.data.documents=joined", 1e-5, marks=pytest.mark.slow),
        pytest.param(MUON, 5e-5, marks=pytest.mark.slow),
    ],
)
def test_two_processes_lose_what_one_loses(
    tokens: str, tmp_path: Path, more: str, bound: float, torchrun: Callable[..., list[str]]
) -> None:
    """One process has four microbatches per step, each of two has two: sums are in another order, so 1e-5 in float32.

    Windows inside documents are padded, so that the processes have unequal numbers of targets.
    Muon computes in bfloat16, which amplifies a last bit, and more so at a higher rate.
    """
    assert run(command(tokens, tmp_path / "one", *more.split())) == 0
    two_processes = torchrun(2, "-m", "webtext.app.main", *command(tokens, tmp_path / "two", *more.split()))
    subprocess.run(two_processes, check=True)
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == 12 + 3
    assert two == pytest.approx(one, abs=bound)
    assert sorted(path.name for path in (tmp_path / "two/checkpoints").iterdir()) == ["step-000006", "step-000012"]


def test_a_missing_gpu_and_a_broken_environment_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(MachineError, match="torch sees no GPU"), join_world("cuda"):
        pass
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ConfigError, match="use torchrun"), join_world("cpu"):
        pass
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    missing = "WORLD_SIZE is 2, but MASTER_ADDR or MASTER_PORT is not set\nuse torchrun"
    with pytest.raises(ConfigError, match=missing), join_world("cpu"):
        pass


def store_of(size: int) -> HashStore:
    """Return the store in which `size` other processes have told their GPUs: one each, on another machine."""
    store = HashStore()
    for rank in range(size):
        store.set(f"gpu of {rank}", f"elsewhere {rank}")
    return store


def test_a_process_takes_the_gpu_of_its_number_or_the_only_one_that_it_sees() -> None:
    assert [gpu_of(rank, 4).index for rank in range(4)] == [0, 1, 2, 3]
    assert [gpu_of(rank, 1).index for rank in range(4)] == [0, 0, 0, 0]  # Slurm's --gpus-per-task=1
    with pytest.raises(MachineError, match="process 4 of this machine has no GPU: torch sees 4"):
        gpu_of(4, 4)


def test_two_processes_with_one_gpu_are_named_before_nccl_meets_them() -> None:
    store = store_of(4)
    require_own_gpus(store, 1, 4, "here a")
    require_own_gpus(store, 2, 4, "here b")
    require_own_gpus(store, 3, 4, "another machine a")
    with pytest.raises(MachineError, match="processes 0 and 2 of the run have the same GPU \\(here b\\)"):
        require_own_gpus(store, 0, 4, "here b")


def test_a_run_on_the_cpu_leaves_a_machines_gpu_alone(
    tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinned memory would open a context on the GPU; here, without one, it is an error."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert run([*command(tokens, tmp_path / "model"), "--set", "train.device=cpu"]) == 0


@pytest.mark.parametrize(("device", "given"), [("cuda", ("nccl", torch.device("cuda", 1))), ("cpu", ("gloo", None))])
def test_processes_connect_from_the_gpu_that_they_use(
    device: str, given: tuple[str, torch.device | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Joined(Exception):
        pass

    def init_process_group(backend: str, *, device_id: torch.device | None, **_: object) -> None:
        assert (backend, device_id) == given
        raise Joined

    for name, value in {**dict.fromkeys(("RANK", "LOCAL_RANK"), "1"), "WORLD_SIZE": "8", **ADDRESS}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    monkeypatch.setattr("torch.cuda.set_device", lambda place: None)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda place: SimpleNamespace(uuid=place.index))
    monkeypatch.setattr(distributed, "_attempt_store", lambda *_: store_of(8))
    monkeypatch.setattr(distributed.distributed, "init_process_group", init_process_group)
    with pytest.raises(Joined), join_world(device):
        pass
