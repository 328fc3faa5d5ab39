"""Staleness: a set knows its parents' parts by digest, and finds its parents even after all were moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from webtext.base.console import Console
from webtext.base.parts.lineage import Stale, stale, stale_neighbours, warn_if_stale
from webtext.base.parts.partset import PartSet
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


def test_a_set_is_stale_when_a_part_it_was_made_from_has_other_records(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = write(tmp_path / "parent", "a", "b", "c")
    child = copied(parent, tmp_path / "child", run)
    assert stale(child) == stale_neighbours(parent) == []
    parent = write(tmp_path / "parent", "a", "changed", "c")
    (found,) = stale(child)
    assert found == Stale(set=child.folder.url, stage="test.copy", parent=parent.folder.url, parts=1)
    assert stale_neighbours(parent) == [found]
    warn_if_stale(child, Console("quiet"))
    told = capsys.readouterr().err
    assert "child' is stale: 1 part of '" in told
    assert "rerun 'test copy'" in told
    assert stale(copied(parent, tmp_path / "child", run)) == []


def test_an_added_or_removed_part_is_a_change_but_another_recipe_with_equal_records_is_not(
    tmp_path: Path, run: Run
) -> None:
    child = copied(write(tmp_path / "parent", "a", "b"), tmp_path / "child", run)
    write(tmp_path / "parent", "a", "b", recipe="second")
    assert stale(child) == []
    write(tmp_path / "parent", "a", "b", "c")
    assert [each.parts for each in stale(child)] == [1]
    write(tmp_path / "parent", "a")
    assert [each.parts for each in stale(child)] == [1]


def test_staleness_is_found_after_a_build_was_moved_as_a_whole(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(write(tmp_path / "old" / "parent", "a"), tmp_path / "old" / "child", run)
    (tmp_path / "old").rename(tmp_path / "new")
    parent = write(tmp_path / "new" / "parent", "b")
    assert [each.parts for each in stale_neighbours(parent)] == [1]
    monkeypatch.chdir(tmp_path / "new")
    (found,) = stale(PartSet.open("child"))
    assert (found.set, found.parent) == ("child", "parent")


@pytest.mark.parametrize("run_json", [None, b"", b"[]", b"{}", b'{"parents": 5}', b'{"parents": ["nowhere", 7]}'])
def test_a_missing_parent_is_ignored(tmp_path: Path, run: Run, run_json: bytes | None) -> None:
    child = copied(write(tmp_path / "parent", "a"), tmp_path / "child", run)
    write(tmp_path / "parent", "b")
    assert stale(child)
    (tmp_path / "child" / "run.json").unlink()
    if run_json is not None:
        (tmp_path / "child" / "run.json").write_bytes(run_json)
    assert stale(child) == []


def test_a_parent_that_is_being_written_is_ignored(tmp_path: Path, run: Run) -> None:
    parent = write(tmp_path / "parent", "a")
    child = copied(parent, tmp_path / "child", run)
    (tmp_path / "parent" / "manifest.json").unlink()
    assert stale(child) == []
