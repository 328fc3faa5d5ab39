"""Checkpoints: published whole, listed in order, damaged ones known, nothing pickled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from webtext.base.errors import EnvironmentError_, InputError
from webtext.train import checkpoint as checkpoints
from webtext.train.checkpoint import (
    Checkpoint,
    best_checkpoint,
    latest_checkpoint,
    list_checkpoints,
    prune_checkpoints,
    save_checkpoint,
)
from webtext.train.shape import GPT2Config

CONFIG = GPT2Config(n_layer=1, n_head=1, n_embd=8, context=8, vocab_size=20)


def save(model_dir: Path, step: int, validation_loss: float | None = None) -> Checkpoint:
    files = {"model.safetensors": {"weight": torch.full((3,), float(step))}}
    return save_checkpoint(model_dir, step, CONFIG, files, {"recipe": {}, "validation_loss": validation_loss})


def test_what_is_saved_is_read_back_from_files_that_say_what_they_are(tmp_path: Path) -> None:
    saved = save(tmp_path, 7)
    found = latest_checkpoint(tmp_path, pytest.fail)
    assert found is not None
    assert (found.path, found.step, found.config) == (saved.path, 7, CONFIG)
    assert found.tensors("model.safetensors")["weight"].tolist() == [7.0] * 3
    assert sorted(path.name for path in found.path.iterdir()) == ["model.safetensors", "state.json"]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000007"]


def test_the_latest_is_decided_by_number_and_old_ones_go(tmp_path: Path) -> None:
    for step in (999_999, 1_000_000, 5):
        save(tmp_path, step)
    (tmp_path / "checkpoints/.step-000009.123.tmp").mkdir()
    latest = latest_checkpoint(tmp_path, pytest.fail)
    assert latest is not None
    assert latest.step == 1_000_000
    prune_checkpoints(tmp_path, None, keep_best=True)
    assert len(list_checkpoints(tmp_path)) == 3
    prune_checkpoints(tmp_path, 2, keep_best=True)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-999999", "step-1000000"]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_the_best_stays_beside_the_newest(tmp_path: Path) -> None:
    """Losses 3, 2, 2, none, 5: the later 2 is the best, and one without a measurement is not judged."""
    assert best_checkpoint(tmp_path) is None
    for step, loss in enumerate((3.0, 2.0, 2.0, None, 5.0), 1):
        path = save(tmp_path, step, loss).path
    (path.parent / "step-000006").mkdir()  # damaged: no state
    assert best_checkpoint(tmp_path) == (tmp_path / "checkpoints/step-000003", 2.0)
    prune_checkpoints(tmp_path, 3, keep_best=True)
    assert [path.name[-1] for path in list_checkpoints(tmp_path)] == ["3", "4", "5", "6"]
    prune_checkpoints(tmp_path, 3, keep_best=False)
    assert [path.name[-1] for path in list_checkpoints(tmp_path)] == ["4", "5", "6"]


@pytest.mark.parametrize("damage", ["cut", "missing", "no json", "no state", "newer"])
def test_a_damaged_one_is_passed_over_and_named(tmp_path: Path, damage: str) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2).path
    state, weights = path / "state.json", path / "model.safetensors"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif damage == "missing":
        weights.unlink()
    elif damage == "no json":
        state.write_text("{")
    elif damage == "no state":
        state.unlink()
    else:
        state.write_text(json.dumps({**json.loads(state.read_text()), "format": 2}))
    said: list[str] = []
    latest = latest_checkpoint(tmp_path, said.append)
    assert latest is not None
    assert latest.step == 1
    assert len(said) == 1
    assert "step-000002" in said[0]
    with pytest.raises(InputError, match="step-000002"):
        checkpoints.open_checkpoint(path)


def test_a_checkpoint_that_fails_to_be_written_leaves_nothing(tmp_path: Path) -> None:
    bad = {"model.safetensors": {"weight": "no tensor"}}
    with pytest.raises(Exception, match="expected torch.Tensor"):
        save_checkpoint(tmp_path, 1, CONFIG, bad, {})  # type: ignore[dict-item]
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_full_disk_is_told_in_two_lines_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is what safetensors 0.8 says on a full file system."""

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(EnvironmentError_, match="no space left while writing .*step-000001'\nfree some space"):
        save(tmp_path, 1)
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_no_module_of_the_stage_unpickles() -> None:
    for path in Path(checkpoints.__file__).parent.rglob("*.py"):
        source = path.read_text()
        assert "torch.load" not in source, path
        assert "import pickle" not in source, path
