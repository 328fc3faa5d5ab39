"""Checkpoints: published complete and listed in order; damaged ones, other formats and other models are rejected."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from webtext.base.errors import InputError
from webtext.base.parts.recipe import with_check, without_check
from webtext.train.checkpoint.checkpoint import (
    Checkpoint,
    best_checkpoint,
    checkpoint_of,
    latest_checkpoint,
    list_checkpoints,
    load_model,
    open_checkpoint,
    prune_checkpoints,
)
from webtext.train.evaluate.measured import run_facts
from webtext.train.model.gpt2 import GPT2
from webtext.train.shape import GPT2Config

CONFIG = GPT2Config(n_layer=1, n_head=1, n_embd=8, context=8, vocab_size=20)
Save = Callable[..., Checkpoint]


def weight(value: float) -> dict[str, Tensor]:
    return {"model.weight": torch.full((3,), value)}


def test_what_is_saved_is_read_back_from_files_that_say_what_they_are(tmp_path: Path, save: Save) -> None:
    saved = save(tmp_path, 7, weight(7.0), {"note": [1]})
    found = latest_checkpoint(tmp_path, pytest.fail)
    assert found is not None
    assert (found.path, found.step, found.config, found.state["note"]) == (saved.path, 7, CONFIG, [1])
    tensors = weight(0.0)
    found.read(tensors)
    assert tensors["model.weight"].tolist() == [7.0] * 3
    assert sorted(path.name for path in found.path.iterdir()) == ["model-00000.safetensors", "state.json"]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000007"]
    assert len({path.stat().st_mode for path in found.path.iterdir()}) == 1


def test_the_latest_is_decided_by_number_and_old_ones_are_removed(tmp_path: Path, save: Save) -> None:
    for step in (5, 999_999, 1_000_000):
        save(tmp_path, step, weight(1.0))
    (tmp_path / "checkpoints/.step-000009.tmp").mkdir()
    latest = latest_checkpoint(tmp_path, pytest.fail)
    assert latest is not None
    assert latest.step == 1_000_000
    prune_checkpoints(latest.path, None)
    assert len(list_checkpoints(tmp_path)) == 3
    prune_checkpoints(latest.path, 2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-999999", "step-1000000"]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_the_newest_and_the_best_are_kept_of_those_that_were_not_skipped(tmp_path: Path, save: Save) -> None:
    """Losses 3, 2, 2, none, 5: the later 2 is the best, one without a measurement doesn't count, and 6 was damaged."""
    assert best_checkpoint(tmp_path) is None
    for step, loss in enumerate((3.0, 2.0, 2.0, None, 5.0), 1):
        path = save(tmp_path, step, weight(1.0), {"validation_loss": loss}).path
    shutil.copytree(path.with_name("step-000003"), path.with_name("step-000006"))
    prune_checkpoints(path, 1)
    assert [path.name[-1] for path in list_checkpoints(tmp_path)] == ["3", "5"]
    assert best_checkpoint(tmp_path) == (tmp_path / "checkpoints/step-000003", 2.0)


WEIGHTS = "model-00000.safetensors"


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        (WEIGHTS, lambda raw: raw[:-1]),
        (WEIGHTS, lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])),
        (WEIGHTS, None),
        ("state.json", lambda raw: b"{"),
        ("state.json", lambda raw: b"[" * 100_000),
        ("state.json", None),
        ("state.json", lambda raw: raw.replace(b'"step": 2', b'"step": 3')),
        ("state.json", lambda raw: raw.replace(b'"n_embd": 8', b'"n_embd": 9')),
        ("state.json", lambda raw: json.dumps({**json.loads(raw), "files": {"../p": ""}, "check": None}).encode()),
    ],
)
def test_a_damaged_one_is_skipped_and_named(
    tmp_path: Path, save: Save, name: str, damaged: Callable[[bytes], bytes] | None
) -> None:
    save(tmp_path, 1, weight(1.0))
    path = save(tmp_path, 2, weight(2.0)).path
    raw = (path / name).read_bytes()
    (path / name).write_bytes(damaged(raw)) if damaged else (path / name).unlink()
    said: list[str] = []
    latest = latest_checkpoint(tmp_path, said.append)
    assert latest is not None
    assert latest.step == 1
    assert len(said) == 1
    assert "step-000002" in said[0]
    with pytest.raises(InputError, match="step-000002"):
        open_checkpoint(path)
    shutil.rmtree(path.with_name("step-000001"))
    with pytest.raises(InputError, match=r"every checkpoint in '.*' is damaged\nthe newest: '.*step-000002"):
        latest_checkpoint(tmp_path, pytest.fail)


@pytest.mark.parametrize("version", [1, 3])
def test_one_of_another_format_is_rejected_and_not_skipped(tmp_path: Path, save: Save, version: int) -> None:
    """Skipping it would start the run again in the same folder."""
    save(tmp_path, 1, weight(1.0))
    state = save(tmp_path, 2, weight(2.0)).path / "state.json"
    state.write_text(json.dumps(with_check({**without_check(json.loads(state.read_text())), "format": version})))
    for find in (checkpoint_of, lambda folder: latest_checkpoint(folder, pytest.fail)):
        with pytest.raises(InputError, match=f"has checkpoint format {version}, but this webtext reads format 2\n"):
            find(tmp_path)


def model_tensors(config: GPT2Config) -> dict[str, Tensor]:
    return {f"model.{name}": tensor for name, tensor in GPT2(config).state_dict().items()}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"n_embd": 16}, r"its 'model.blocks.0.attention.key.bias' is float32 \[8\], where float32 \[16\] is expected"),
        ({"n_layer": 2}, r"its 'model.blocks.1.attention.key.bias' is nothing, where float32 \[8\] is expected"),
        ({"context": 9}, r"its 'model.position_embedding.weight' is float32 \[8, 8\], where float32 \[9, 8\] is"),
    ],
)
def test_one_of_another_model_is_rejected_before_anything_is_overwritten(
    tmp_path: Path, save: Save, other: dict[str, int], message: str
) -> None:
    saved = save(tmp_path, 1, model_tensors(CONFIG))
    tensors = model_tensors(replace(CONFIG, **other))
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    with pytest.raises(InputError, match=message):
        saved.read(tensors)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors.items())


def test_tensors_of_another_dtype_or_too_many_are_rejected(tmp_path: Path, save: Save) -> None:
    saved = save(tmp_path, 1, weight(1.0) | {"optimizer.weight.step": torch.tensor(3.0)})
    with pytest.raises(InputError, match=r"'model.weight' is float32 \[3\], where bfloat16 \[3\] is expected"):
        saved.read({"model.weight": torch.zeros(3, dtype=torch.bfloat16), "optimizer.weight.step": torch.tensor(0.0)})
    with pytest.raises(InputError, match=r"'optimizer.weight.step' is float32 \[\], where nothing is expected"):
        saved.read(weight(0.0))


def test_a_part_is_read_where_other_processes_read_the_rest(tmp_path: Path, save: Save) -> None:
    """Pipeline stages do this. Together they must ask for exactly what is stored, by name, shape and dtype."""
    saved = save(tmp_path, 1, weight(1.0) | {"model.bias": torch.tensor([2.0])})
    tensors = weight(0.0)
    saved.read(tensors, {"model.bias": torch.empty(1, device="meta")})
    assert tensors["model.weight"].tolist() == [1.0] * 3
    for elsewhere, message in (
        ({}, r"'model.bias' is float32 \[1\], where nothing is expected"),
        ({"model.bias": torch.empty(2, device="meta")}, r"'model.bias' is float32 \[1\], where float32 \[2\] is"),
        ({"model.bias": torch.empty(1), "model.gain": torch.empty(1)}, r"'model.gain' is nothing, where float32 \[1\]"),
    ):
        with pytest.raises(InputError, match=message):
            saved.read(tensors, elsewhere)


def test_a_model_is_loaded_without_its_optimizer(tmp_path: Path, save: Save) -> None:
    tensors = model_tensors(CONFIG)
    saved = save(tmp_path, 1, tensors | {"optimizer.x.step": torch.tensor(3.0)})
    for place in (tmp_path, saved.path):
        model = load_model(place)
        assert all(torch.equal(tensor, tensors[f"model.{name}"]) for name, tensor in model.state_dict().items())
        assert all(parameter.requires_grad for parameter in model.parameters())


def change_state(checkpoint: Checkpoint, change: Callable[[dict[str, Any]], object]) -> Checkpoint:
    path = checkpoint.path / "state.json"
    state = without_check(json.loads(path.read_text()))
    change(state)
    path.write_text(json.dumps(with_check(state)))
    return open_checkpoint(checkpoint.path)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("config"),
        lambda state: state.update(config=[1]),
        lambda state: state["config"].update(n_layer="x"),
        lambda state: state["config"].update(n_layer=1.0),
        lambda state: state["config"].update(n_layer=-1),
        lambda state: state["config"].update(depth=1),
    ],
)
def test_a_config_that_is_not_a_shape_is_rejected(
    change: Callable[[dict[str, Any]], object], tmp_path: Path, save: Save
) -> None:
    with pytest.raises(InputError, match="has no valid model shape as its config"):
        load_model(change_state(save(tmp_path, 1, weight(1.0)), change).path)


def test_a_config_of_more_layers_than_are_stored_is_rejected_before_they_are_made(tmp_path: Path, save: Save) -> None:
    tensors = {f"model.{name}": tensor for name, tensor in GPT2(CONFIG).state_dict().items()}
    saved = save(tmp_path, 1, tensors)
    assert load_model(saved.path).config == CONFIG
    with pytest.raises(InputError, match=r"contains 1 layers, but its state.json says 1,000,000,000"):
        load_model(change_state(saved, lambda state: state["config"].update(n_layer=10**9)).path)


@pytest.mark.parametrize("name", ["recipe", "sampler", "guard", "result", "environment"])
def test_a_state_that_no_run_wrote_is_rejected(name: str, tmp_path: Path, save: Save) -> None:
    whole = dict.fromkeys(("recipe", "sampler", "guard", "result", "environment"), {"settings": {}, "code_version": 1})
    saved = save(tmp_path, 1, weight(1.0), whole)
    assert saved.run_state()["recipe"] == {"settings": {}, "code_version": 1}
    with pytest.raises(InputError, match="has no 'tokenizer', so another version of webtext wrote it"):
        run_facts(saved)
    for change in (lambda state: state.pop(name), lambda state: state.update({name: 1})):
        with pytest.raises(InputError, match=f"has no {name}, so no run wrote it"):
            change_state(save(tmp_path / str(id(change)), 1, weight(1.0), whole), change).run_state()
