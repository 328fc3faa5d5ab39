"""A set finds its parents, even after all were moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from webtext.base.console import Console
from webtext.base.parts.partset import PartSet, parents_of
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.workers.engine import LocalEngine


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with LocalEngine(workers=1) as engine:
        yield Run(engine, Console("quiet"))


def write(folder: Path, *reasons: str, recipe: str = "first") -> PartSet:
    """Write a set of decisions with one part for each reason."""
    writer = SetWriter(str(folder), "dropped", Recipe(stage="test.write", code_version=1, settings={"as": recipe}))
    parts = []
    for index, reason in enumerate(reasons):
        with writer.part(index, key=f"{recipe} {reason}") as part:
            part.write([{"id": reason, "stage": "test", "reason": reason, "text_start": ""}])
            parts.append(part.publish())
    return writer.seal(parts)


def copy_part(context: PartContext, task: PartTask) -> None:
    context.main.write_table(PartSet.open(task.payload).table(task.index))


def copied(parent: PartSet, out: Path, run: Run) -> PartSet:
    tasks = [PartTask(index=p.index, sources=(parent.source(p),), payload=parent.folder.url) for p in parent.parts]
    recipe = Recipe(stage="test.copy", code_version=1, settings={})
    outputs = {"out": (str(out), "dropped")}
    return run_parts(copy_part, tasks, recipe=recipe, outputs=outputs, parents=[parent], run=run)["out"]


def test_parents_are_found_as_they_are_now_also_after_a_build_was_moved_as_a_whole(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(write(tmp_path / "old" / "parent", "a"), tmp_path / "old" / "child", run)
    (tmp_path / "old").rename(tmp_path / "new")
    parent = write(tmp_path / "new" / "parent", "b")
    assert [each.hash for each in parents_of(PartSet.open(str(tmp_path / "new" / "child")))] == [parent.hash]
    monkeypatch.chdir(tmp_path / "new")
    assert [each.folder.url for each in parents_of(PartSet.open("child"))] == ["parent"]


@pytest.mark.parametrize("run_json", [None, b"", b"[]", b"{}", b'{"parents": 5}', b'{"parents": ["nowhere", 7]}'])
def test_a_missing_parent_is_ignored(tmp_path: Path, run: Run, run_json: bytes | None) -> None:
    child = copied(write(tmp_path / "parent", "a"), tmp_path / "child", run)
    assert list(parents_of(child))
    (tmp_path / "child" / "run.json").unlink()
    if run_json is not None:
        (tmp_path / "child" / "run.json").write_bytes(run_json)
    assert list(parents_of(child)) == []


def test_a_parent_that_is_being_written_is_ignored(tmp_path: Path, run: Run) -> None:
    child = copied(write(tmp_path / "parent", "a"), tmp_path / "child", run)
    (tmp_path / "parent" / "manifest.json").unlink()
    assert list(parents_of(child)) == []
