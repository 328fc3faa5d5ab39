"""Model folders in a store: uploads change what changed, in an order in which no half checkpoint counts."""

from __future__ import annotations

from typing import Any

import pytest

from webtext.base.storage import Folder
from webtext.train.checkpoint.model_copy import ModelCopy, local_model

STEP = "checkpoints/step-000001"


def test_what_is_uploaded_is_downloaded_and_only_changes_are_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    url, put = "memory://models/one", []
    copy = ModelCopy(url)
    assert list(copy.path.iterdir()) == []
    (copy.path / STEP).mkdir(parents=True)
    for name in ("state.json", "optimizer-00000.safetensors", "model-00000.safetensors"):
        (copy.path / STEP / name).write_text(name)
    (copy.path / "metrics.jsonl").write_text("1\n")
    (copy.path / "checkpoints/.step-000002.tmp").mkdir()
    (copy.path / "checkpoints/.step-000002.tmp/model-00000.safetensors").write_text("half")
    publish = Folder.publish
    monkeypatch.setattr(Folder, "publish", lambda *a: (put.append(a[2]), publish(*a)))
    copy.upload()
    written = ("model-00000.safetensors", "optimizer-00000.safetensors", "state.json")
    names = [*(f"{STEP}/{name}" for name in written), "metrics.jsonl"]
    assert put == names == Folder(url).names_within()
    assert (ModelCopy(url).path / STEP / "state.json").read_text() == "state.json"
    put.clear()
    (copy.path / "metrics.jsonl").write_text("1\n2\n")
    copy.upload()
    assert put == ["metrics.jsonl"]
    for path in (copy.path / STEP).iterdir():
        path.unlink()
    removed: list[Any] = []
    monkeypatch.setattr(Folder, "remove", lambda _, name: removed.append(name))
    copy.upload()
    assert removed == names[2::-1]


def test_a_checkpoint_whose_upload_was_cut_short_does_not_count_and_is_removed() -> None:
    folder = Folder("memory://models/half")
    for name in (
        "step-000001/model-00000.safetensors",
        "step-000001/state.json",
        "step-000002/model-00000.safetensors",
    ):
        folder.write_bytes(f"checkpoints/{name}", b"{}")
    copy = ModelCopy(folder.url)
    assert [path.name for path in (copy.path / "checkpoints").iterdir()] == ["step-000001"]
    copy.upload()
    assert folder.names_within() == [f"{STEP}/model-00000.safetensors", f"{STEP}/state.json"]


def test_names_that_would_leave_the_copy_are_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    Folder("memory://models/two").write_bytes("config.json", b"{}")
    found = ["/models/two/../../three/x", "/models/two/a/../../../x", "/models/two/..", "/models/two/config.json"]
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.find", lambda *_: found)
    copy = ModelCopy("memory://models/two")
    assert [path.name for path in copy.path.rglob("*")] == ["config.json"]


def test_a_local_folder_is_used_where_it_is(tmp_path: Any) -> None:
    assert local_model(tmp_path) == tmp_path
