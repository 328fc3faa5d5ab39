"""`two_savers.py RANK 2 FOLDER`: one of two gloo processes that save and load, for test_checkpoint_saver.

FOLDER/one is a checkpoint that the test saved in one process. Sizes are odd, so that shards are uneven.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_runs import joined_ranks
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from webtext.base.errors import MachineError
from webtext.train.checkpoint import storage as checkpoint_storage
from webtext.train.checkpoint.checkpoint import checkpoint_path, open_checkpoint
from webtext.train.checkpoint.saver import CheckpointSaver
from webtext.train.distributed import World
from webtext.train.optimizer.optimizer import make_optimizer, optimizer_tensors
from webtext.train.settings import TrainSettings


def trained(shard: Callable[[nn.Module], Any], steps: int, *, reverse: bool = False) -> dict[str, Tensor]:
    """Return the tensors of a small model and its optimizer after some updates, the same in every process."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5))
    for layer in (model[0], model[2], model):
        shard(layer)
    optimizer = make_optimizer(dict(model.named_parameters()), TrainSettings())
    if reverse:
        optimizer.param_groups.reverse()
    for step in range(steps):
        torch.manual_seed(step)
        model(torch.randn(4, 6)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    state = {
        f"optimizer.{name}": tensor
        for name, tensor in optimizer_tensors(dict(model.named_parameters()), optimizer).items()
    }
    return {f"model.{name}": tensor for name, tensor in model.state_dict().items()} | state


def whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return each tensor with all its shards, in its own memory."""
    return {n: (t.full_tensor() if isinstance(t, DTensor) else t).detach().clone() for n, t in tensors.items()}


def main(rank: int, folder: Path) -> None:
    world = World(rank, 2, torch.device("cpu"))
    replicated, sharded = trained(lambda layer: None, 2), trained(fully_shard, 2)
    save(world, folder / "replicated", replicated)
    save(world, folder / "sharded", sharded)
    expected = whole(sharded)
    if rank == 0:
        save_file(expected, folder / "expected")
    for name, tensors in (("one", replicated), ("replicated", replicated), ("sharded", expected)):
        fresh = trained(fully_shard, 0, reverse=True)
        open_checkpoint(checkpoint_path(folder / name, 1)).read(fresh)
        for key, tensor in whole(fresh).items():
            assert torch.equal(tensor, tensors[key]), (name, key)
    with failing(rank, full_disk), pytest.raises(MachineError, match="no space left"):
        save(world, folder / "full", sharded)
    save(world, folder / "killed", sharded)
    with failing(rank, kill), CheckpointSaver(folder / "killed", world, keep=None) as saver:
        saver.begin(2, sharded, {})
        with pytest.raises(Exception, match=""):
            saver.finish()
        os._exit(0)  # the other process has ended, so the group can't be left


def save(world: World, model_dir: Path, tensors: dict[str, Tensor]) -> None:
    with CheckpointSaver(model_dir, world, keep=None) as saver:
        saver.begin(1, tensors, {})


@contextlib.contextmanager
def failing(rank: int, how: Callable[[], None]) -> Iterator[None]:
    """Make process 1 fail as `how` says when it would write its tensors."""
    write = checkpoint_storage.write_tensors

    def fail(path: Path, tensors: Any) -> None:
        how() if rank == 1 else write(path, tensors)

    checkpoint_storage.write_tensors = fail
    yield
    checkpoint_storage.write_tensors = write


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with joined_ranks() as (rank, _, folder, _):
        main(rank, folder)
