"""The verbs from pages to a model in a store that spoils answers: the bytes of the same commands on a disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.test_unchanged import MODEL, write_warc
from object_store import ObjectStore

from webtext.app.main import run

from .conftest import files, spoiled

TRAIN = " ".join(f"--{each}" for each in MODEL.split())
TRAIN += " --set train.checkpoint.checkpoint_interval=3 --set train.checkpoint.keep_checkpoints=2"


def commands(warc: Path, out: str) -> list[str]:
    return [
        f"clean extract {warc} --out {out}/documents",
        f"clean filter {out}/documents --out {out}/filtered",
        f"clean dedup {out}/filtered/corpus --out {out}/deduplicated",
        f"clean run {warc} --out {out}/build",
        f"clean decontaminate {out}/build/corpus --against {out}/build/corpus/part-00000.parquet#title --out {out}/clean",
        f"clean release {out}/build --out {out}/release",
        f"tokenizer train {out}/build/corpus --out {out}/tokenizer.json --vocab-size 600",
        f"shards pack {out}/build/corpus --tokenizer {out}/tokenizer.json --out {out}/tokens",
        f"shards verify {out}/tokens",
        f"shards convert {out}/tokens --to nanogpt --out {out}/nanogpt",
        f"train run {out}/tokens --out {out}/model {TRAIN}",
        f"train export {out}/model --tokenizer {out}/tokenizer.json --out {out}/exported",
        f"train eval {out}/exported {out}/tokens --tokenizer {out}/tokenizer.json",
        f"report {out}/build",
    ]


@pytest.mark.slow
def test_every_verb_gives_in_a_spoiled_store_the_bytes_that_it_gives_on_a_disk(
    store: ObjectStore, place: str, tmp_path: Path
) -> None:
    write_warc(tmp_path / "pages.warc.gz")
    for command in commands(tmp_path / "pages.warc.gz", str(tmp_path / "here")):
        assert run(command.split()) == 0, command
    store.spoil = spoiled(7, 0.05)
    for command in commands(tmp_path / "pages.warc.gz", place):
        assert run(command.split()) == 0, command
    store.clear()
    near, far = files(str(tmp_path / "here")), files(place)
    assert near.keys() == far.keys()
    with_places = {"build/report.html", "build/report.json"}
    assert [name for name in near if near[name] != far[name] and name not in with_places] == []


@pytest.mark.slow
@pytest.mark.parametrize("last", ["step-000003/state.json", "step-000006/optimizer-00000.safetensors"])
def test_training_that_dies_in_an_upload_is_resumed_to_the_same_checkpoints(
    last: str, store: ObjectStore, place: str, tmp_path: Path
) -> None:
    write_warc(tmp_path / "pages.warc.gz")
    here = str(tmp_path / "here")
    for command in commands(tmp_path / "pages.warc.gz", here):
        if command.split()[0] in ("tokenizer", "shards") or command.startswith("clean run"):
            assert run(command.split()) == 0, command
    train = f"train run {here}/tokens {TRAIN} --out"

    def kill(operation: str, key: str) -> str:
        if operation == "PUT" and key.endswith(last):
            os.kill(child.pid, signal.SIGKILL)
            return "reset"
        return ""

    store.spoil = kill
    child = subprocess.Popen([sys.executable, "-m", "webtext.app.main", *train.split(), f"{place}/model"])
    assert child.wait() == -signal.SIGKILL
    store.clear()
    assert run([*train.split(), f"{here}/model"]) == 0
    assert run([*train.split(), f"{place}/model"]) == 0
    near, far = files(f"{here}/model"), files(f"{place}/model")
    assert near == far
    assert sum(name.endswith(".safetensors") for name in far) == 4


@pytest.mark.slow
def test_files_of_other_trainers_are_read_from_a_disk_alone(
    store: ObjectStore, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("a plain text " * 50)
    assert run(f"tokenizer train {tmp_path}/a.txt --out {tmp_path}/t.json --vocab-size 260".split()) == 0
    command = f"shards convert {place} --from nanogpt --tokenizer {tmp_path}/t.json --out {place}/tokens"
    assert run(command.split()) == 3
    assert "is not on this machine\n  name a folder on a local disk" in capsys.readouterr().err
