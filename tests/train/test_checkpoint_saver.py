"""Saving while the run continues: what is saved, what waits, what a failure or a kill leaves, and several processes."""

from __future__ import annotations

import errno
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
import two_savers
from safetensors import SafetensorError
from safetensors.torch import load_file
from small_runs import SECONDS, PinnedMemory, on_ranks, small, train
from torch import Tensor

from webtext.base.errors import MachineError
from webtext.train.checkpoint import storage as checkpoint_storage
from webtext.train.checkpoint.checkpoint import Checkpoint, checkpoint_path, list_checkpoints, open_checkpoint
from webtext.train.checkpoint.saver import CheckpointSaver
from webtext.train.distributed import World
from webtext.train.metrics import steps_made

Save = Callable[..., Checkpoint]


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[CheckpointSaver]:
    with CheckpointSaver(tmp_path, World(0, 1, torch.device("cpu")), keep=2) as saver:
        yield saver


class Gate:
    """Blocks a writing thread until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        write = checkpoint_storage.write_tensors

        def wait(path: Path, tensors: Any) -> None:
            self.reached.set()
            assert self.opened.wait(SECONDS)
            write(path, tensors)

        monkeypatch.setattr(checkpoint_storage, "write_tensors", wait)


def test_copies_from_a_gpu_are_pinned_once_at_their_exact_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own pinned memory is rounded up to a power of two."""
    pinned, queue, used = PinnedMemory(), MagicMock(), MagicMock()
    queues = dict.fromkeys(("current_stream", "Stream", "stream"), queue)
    for name, stands_in in {**queues, "cudart": lambda: pinned, "set_device": used}.items():
        monkeypatch.setattr(torch.cuda, name, stands_in)
    tensors = {"model.weight": torch.ones(5, 100), "optimizer.weight.step": torch.tensor(1.0)}
    with CheckpointSaver(tmp_path, World(0, 1, torch.device("cuda")), keep=None) as saver:
        for step in (1, 2):
            tensors["model.weight"].fill_(step)
            saver.begin(step, tensors, {"result": {"loss": 1.0}})
            saver.finish()
            assert sorted(pinned.registered.values()) == [4, 2000]
    used.assert_called_once_with(torch.device("cuda"))
    del saver
    gc.collect()
    assert not pinned.registered
    open_checkpoint(checkpoint_path(tmp_path, 1)).read(tensors)
    assert tensors["model.weight"].eq(1).all()


def test_the_run_continues_while_files_are_written_and_its_changes_are_not_saved(
    saver: CheckpointSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    tensors = {"model.weight": torch.ones(3), "optimizer.weight.step": torch.tensor(1.0)}
    state = {"result": {"loss": 1.0}}
    saver.begin(1, tensors, state)
    saver.wait_until_staged()
    for tensor in tensors.values():
        tensor.zero_()
    state["result"]["loss"] = 0.0
    assert gate.reached.wait(SECONDS)
    assert list_checkpoints(tmp_path) == []
    assert not saver.failed
    gate.opened.set()
    saved = saver.finish()
    assert saved is not None
    opened = open_checkpoint(saved.path)
    assert opened.state["result"] == {"loss": 1.0}
    opened.read(tensors)
    assert tensors["model.weight"].tolist() == [1.0] * 3
    assert tensors["optimizer.weight.step"] == 1


def test_the_next_save_waits_for_the_one_in_progress_and_reuses_its_memory(
    saver: CheckpointSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = checkpoint_storage.write_tensors

    def note(path: Path, tensors: dict[str, Tensor]) -> None:
        written.extend(tensor.data_ptr() for tensor in tensors.values())
        write(path, tensors)

    monkeypatch.setattr(checkpoint_storage, "write_tensors", note)
    for step in (1, 2, 3):
        saver.begin(step, {"model.weight": torch.full((1000,), float(step))}, {})
    saver.finish()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-000002", "step-000003"]
    assert len(written) == 3
    assert len(set(written)) == 1
    tensors = {"model.weight": torch.zeros(1000)}
    open_checkpoint(checkpoint_path(tmp_path, 2)).read(tensors)
    assert tensors["model.weight"].eq(2).all()


def full_disk(*_: object, **__: object) -> None:
    """The message is that of safetensors 0.8 on a full file system."""
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_a_full_disk_is_reported_in_two_lines_and_leaves_nothing(
    saver: CheckpointSaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webtext.train.model.huggingface.save_file", full_disk)
    saver.begin(1, {"model.weight": torch.ones(3)}, {})
    saver.wait_until_staged()
    with pytest.raises(
        MachineError, match="no space left while writing .*step-000001'\non the file system at .*\nfree some space"
    ):
        saver.finish()
    assert list((tmp_path / "checkpoints").iterdir()) == []
    monkeypatch.undo()
    saver.begin(2, {"model.weight": torch.ones(3)}, {})
    saver.finish()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000002"]


def stopped(model_dir: Path, step: int) -> None:
    with CheckpointSaver(model_dir, World(0, 1, torch.device("cpu")), keep=2) as saver:
        saver.begin(step, {"model.weight": torch.ones(3)}, {})
        raise KeyError


def test_an_error_of_the_run_itself_is_the_one_that_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The save in progress is waited for, so its checkpoint is published."""
    with pytest.raises(KeyError):
        stopped(tmp_path, 1)
    assert len(list_checkpoints(tmp_path)) == 1
    monkeypatch.setattr("webtext.train.model.huggingface.save_file", full_disk)
    with pytest.raises(KeyError):
        stopped(tmp_path, 2)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_a_run_whose_save_fails_ends_soon_with_the_reason_and_resumes_later(
    tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second save fails. The run must not train to its end, 10,000 steps later."""
    settings = small(steps=10_000, checkpoint_interval=5, eval_interval=None, eval_windows=1)
    write, calls = checkpoint_storage.write_tensors, []

    def second_fails(path: Path, tensors: Any) -> None:
        calls.append(path)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, tensors)

    monkeypatch.setattr(checkpoint_storage, "write_tensors", second_fails)
    with pytest.raises(MachineError, match="no space left while writing .*step-000010'"):
        train(tokens, tmp_path, settings)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000005"]
    assert steps_made(tmp_path) <= 15, "the save of step 15 waits for the one before"


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_point_of_a_save_resumes_to_the_same_bytes(every: int, tokens: str, tmp_path: Path) -> None:
    """Every checkpoint file and loss is equal after a kill before each operation of a save and within its files."""
    script = [sys.executable, str(Path(__file__).with_name("killed_saves.py")), tokens, str(tmp_path), str(every)]
    said = subprocess.run(script, check=True, capture_output=True, text=True, timeout=SECONDS).stdout.splitlines()
    n_points = int(said[-1].split()[-1])
    assert n_points > 30
    assert said == [f"killed at point {n} of {n_points}" for n in range(1, n_points + 1, every)]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that `two_savers.py` wrote."""
    folder = tmp_path_factory.mktemp("two")
    with CheckpointSaver(folder / "one", World(0, 1, torch.device("cpu")), keep=None) as saver:
        saver.begin(1, two_savers.trained(lambda layer: None, 2), {})
    ended = on_ranks(2, Path(two_savers.__file__), folder)
    assert [code for code, _ in ended] == [0, -signal.SIGKILL], ended
    return folder


def pieces_of(folder: Path) -> dict[str, dict[str, list[int]]]:
    """Return the shape of each piece by its key, for each file."""
    files = checkpoint_path(folder, 1).glob("*.safetensors")
    return {file.name: {key: list(piece.shape) for key, piece in load_file(file).items()} for file in files}


def test_two_processes_with_the_same_tensors_write_half_each(two_processes: Path) -> None:
    pieces = pieces_of(two_processes / "replicated")
    assert pieces.keys() == {f"{kind}-0000{rank}.safetensors" for kind in ("model", "optimizer") for rank in (0, 1)}
    keys = [key for of_one in pieces.values() for key in of_one]
    assert len(keys) == len(set(keys)) == len(two_savers.trained(lambda layer: None, 0))
    sizes = [sum(path.stat().st_size for path in (two_processes / "replicated").rglob(f"*-0000{i}.*")) for i in (0, 1)]
    assert 0.5 < sizes[0] / sizes[1] < 2.0


def test_shards_are_written_by_the_process_that_has_them(two_processes: Path) -> None:
    """9 rows over two processes are 5 and 4. (The processes themselves assert how each loads what the other wrote.)"""
    pieces, name = pieces_of(two_processes / "sharded"), "optimizer.0.weight.exp_avg"
    assert pieces["optimizer-00000.safetensors"][f"{name}@0,0"] == [5, 6]
    assert pieces["optimizer-00001.safetensors"][f"{name}@5,0"] == [4, 6]


@pytest.mark.parametrize("name", ["replicated", "sharded"])
def test_what_two_processes_saved_one_process_reads(two_processes: Path, name: str) -> None:
    expected = load_file(two_processes / "expected") if name == "sharded" else two_savers.trained(lambda layer: None, 2)
    tensors = two_savers.trained(lambda layer: None, 0, reverse=True)
    open_checkpoint(checkpoint_path(two_processes / name, 1)).read(tensors)
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in tensors.items())
    assert tensors["optimizer.0.weight.exp_avg"].any()


def test_nothing_is_published_if_one_of_two_processes_fails(two_processes: Path) -> None:
    """If one disk is full, both raise. If one is killed while it writes, the older checkpoint stays the latest."""
    assert list((two_processes / "full/checkpoints").iterdir()) == []
    assert [path.name for path in (two_processes / "killed/checkpoints").iterdir()] == ["step-000001"]
