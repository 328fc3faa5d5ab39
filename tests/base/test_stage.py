"""Stages run part by part, resume, and account for every record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from webtext.base.console import Console
from webtext.base.errors import DryRun, InputError, MachineError, RunFailed
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import FailedRecord, PartSet, parents_of
from webtext.base.parts.recipe import Recipe, with_check, without_check
from webtext.base.parts.stage import PartContext, PartTask, SetWriter, run_parts
from webtext.base.run import Parts, Run
from webtext.base.storage import Folder
from webtext.base.workers.local_engine import LocalEngine

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import stage_functions  # noqa: E402
from stage_functions import files  # noqa: E402


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with LocalEngine(workers=2) as engine:
        yield Run(engine, Console("quiet"))


def tasks(numbers: Sequence[Sequence[int]], **payload: Any) -> list[PartTask]:
    return [
        PartTask(index=i, sources=(), payload={"numbers": list(n), **payload}, depends=str(n))
        for i, n in enumerate(numbers)
    ]


def double(folder: Path, made: Sequence[PartTask], run: Run, version: int = 1) -> dict[str, PartSet]:
    return run_parts(
        stage_functions.double,
        made,
        recipe=Recipe(stage="test.double", code_version=version, settings={}),
        outputs={"kept": (str(folder / "kept"), "dropped"), "dropped": (str(folder / "dropped"), "dropped")},
        parents=[],
        run=run,
    )


def test_every_record_is_kept_or_dropped_or_failed(tmp_path: Path, run: Run) -> None:
    made = double(tmp_path, tasks([[1, 2, 3], [4, 1001, 6]]), run)
    assert made["kept"].counts == Counts(6, 3, {"odd": 2}, {"raised": 1})
    assert list(made["kept"].failures(1)) == [FailedRecord("1001", "raised", "ValueError: a bad record")]
    assert [row["id"] for row in made["dropped"].table(0).to_pylist()] == ["1", "3"]
    assert made["kept"].manifest["reproducible"]


def test_a_record_that_kills_its_worker_costs_itself_alone(tmp_path: Path, run: Run) -> None:
    made = double(tmp_path, tasks([[2, 1000, 4], [6, 8]]), run)
    assert made["kept"].counts == Counts(5, 4, {}, {"killed_worker": 1})
    assert list(made["kept"].failures(0)) == [FailedRecord("1000", "killed_worker", "signal 11")]
    assert not made["kept"].manifest["reproducible"]
    assert (tmp_path / "kept" / "quarantine.json").is_file()


@pytest.mark.slow
def test_two_records_in_a_row_that_kill_their_worker_cost_themselves_alone(tmp_path: Path, run: Run) -> None:
    made = double(tmp_path, tasks([[2, 1000, 1000, 1000, 4]]), run)
    assert made["kept"].counts == Counts(5, 2, {}, {"killed_worker": 3})


def test_running_again_redoes_nothing_and_changes_no_byte(tmp_path: Path, run: Run) -> None:
    double(tmp_path, tasks([[1, 2], [3, 4]]), run)
    before = files(tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    double(tmp_path, tasks([[1, 2], [3, 4]]), run)
    assert files(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == stamps


def test_an_altered_or_missing_part_alone_is_made_again(tmp_path: Path, run: Run) -> None:
    double(tmp_path, tasks([[1, 2], [3, 4], [5, 6]]), run)
    before = files(tmp_path)
    untouched = tmp_path / "kept" / "part-00000.parquet"
    stamp = untouched.stat().st_mtime_ns
    (tmp_path / "kept" / "part-00001.parquet").write_bytes(b"PAR1")
    (tmp_path / "dropped" / "part-00002.parquet").unlink()
    double(tmp_path, tasks([[1, 2], [3, 4], [5, 6]]), run)
    assert files(tmp_path) == before
    assert untouched.stat().st_mtime_ns == stamp


def test_a_changed_recipe_redoes_all_and_a_changed_source_its_part(tmp_path: Path, run: Run) -> None:
    first = double(tmp_path, tasks([[1, 2], [3, 4]]), run)["kept"]
    other = double(tmp_path, tasks([[1, 2], [3, 6]]), run)["kept"]
    assert first.parts[0] == other.parts[0]
    assert first.parts[1].record_digest != other.parts[1].record_digest
    assert double(tmp_path, tasks([[1, 2], [3, 6]]), run, version=2)["kept"].parts[0].key != first.parts[0].key


def test_a_changed_recipe_is_named_before_the_work_begins(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Run(run.engine, Console())
    for version in (1, 1, 2):
        double(tmp_path, tasks([[1, 2]]), told, version)
        assert ("test.double: made again, because code version 1 is now 2" in capsys.readouterr().err) == (version == 2)


def test_parts_that_no_task_asks_for_and_files_that_no_part_names_are_removed(tmp_path: Path, run: Run) -> None:
    double(tmp_path, tasks([[1, 2], [3, 4]]), run)
    for name in ("part-00000.overlap", "train-00000-1.tok"):  # as a part leaves them that is made again without them
        (tmp_path / "kept" / name).touch()
    made = double(tmp_path, tasks([[1, 2]]), run)
    assert len(made["kept"].parts) == 1
    assert [path.name for path in (tmp_path / "kept").glob("*-0*")] == ["part-00000.parquet"]


def test_a_part_that_breaks_leaves_the_others_done_and_the_set_unsealed(tmp_path: Path, run: Run) -> None:
    broken = [*tasks([[2, 4]]), PartTask(index=1, sources=(), payload={"numbers": [6], "breaks": True})]
    with pytest.raises(RunFailed, match="1 of 2 parts failed; part 1: RuntimeError: the part breaks"):
        double(tmp_path, broken, run)
    assert (tmp_path / "kept" / "part-00000.parquet").is_file()
    with pytest.raises(InputError, match="not sealed"):
        PartSet.open(str(tmp_path / "kept"))
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_broken_input_stops_the_run_with_its_own_error(tmp_path: Path, run: Run) -> None:
    with pytest.raises(InputError, match="a part was altered"):
        double(tmp_path, tasks([[1002]]), run)


@pytest.mark.parametrize(("number", "words"), [(1003, "no space left"), (1004, "is not installed")])
def test_a_lack_of_this_machine_is_not_charged_to_the_record(number: int, words: str, tmp_path: Path, run: Run) -> None:
    with pytest.raises(MachineError, match=words):
        double(tmp_path, tasks([[2, number, 4]]), run)


def test_a_dry_run_writes_nothing(tmp_path: Path, run: Run) -> None:
    with pytest.raises(DryRun):
        double(tmp_path, tasks([[1, 2]]), Run(run.engine, run.console, dry_run=True))
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_removes_no_part_that_the_real_run_would(tmp_path: Path, run: Run) -> None:
    double(tmp_path, tasks([[1, 2], [3, 4]]), run)
    before = files(tmp_path)
    dry = Run(run.engine, run.console, dry_run=True)
    with pytest.raises(DryRun):
        double(tmp_path, tasks([[1, 2]]), dry)
    assert files(tmp_path) == before
    assert double(tmp_path, tasks([[1, 2], [3, 4]]), dry)["kept"].records == 2


def test_one_worker_and_two_give_the_same_bytes(tmp_path: Path, run: Run) -> None:
    numbers = [range(i, i + 30) for i in range(0, 120, 30)]
    double(tmp_path / "two", tasks(numbers), run)
    with LocalEngine(workers=1) as engine:
        double(tmp_path / "one", tasks(numbers), Run(engine, Console("quiet")))
    assert files(tmp_path / "one") == files(tmp_path / "two")


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
from test_stage import double, tasks
from webtext.base.run import Parts, Run
double(Path({folder!r}), tasks([range(i, i + 10) for i in range(0, 80, 10)], endless={endless!r}), Run.quiet(2))
"""


@pytest.mark.parametrize("parts_before_kill", [1, 3, 6])
def test_killed_with_9_and_run_again_gives_the_same_bytes(tmp_path: Path, parts_before_kill: int, run: Run) -> None:
    """The later parts never end by themselves, so the run is always killed during them, however fast it is."""
    endless = list(range(parts_before_kill, 8))
    script = SCRIPT.format(here=str(HERE), folder=str(tmp_path / "killed"), endless=endless)
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    entries = tmp_path / "killed" / "kept" / "_parts"
    while len(list(entries.glob("*.json"))) < parts_before_kill and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(list(entries.glob("*.json"))) == parts_before_kill
    numbers = [range(i, i + 10) for i in range(0, 80, 10)]
    double(tmp_path / "killed", tasks(numbers), run)
    double(tmp_path / "whole", tasks(numbers), run)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_half_written_files_of_a_killed_run_are_removed(tmp_path: Path, run: Run) -> None:
    entries = tmp_path / "kept" / "_parts"
    entries.mkdir(parents=True)
    leftovers = [entries / ".00000.json.1.tmp", tmp_path / "kept" / ".part-00000.parquet.1.tmp"]
    for path in leftovers:
        path.write_bytes(b"half")
    double(tmp_path, tasks([range(10)]), run)
    assert not any(path.exists() for path in leftovers)


def test_a_folder_that_holds_another_kind_is_left_alone(tmp_path: Path, run: Run) -> None:
    double(tmp_path, tasks([[1, 2]]), run)
    before = files(tmp_path)
    recipe = Recipe(stage="test.other", code_version=1, settings={})
    outputs = {"kept": (str(tmp_path / "kept"), "corpus"), "dropped": (str(tmp_path / "more"), "dropped")}
    with pytest.raises(InputError, match="contains dropped, which corpus would replace"):
        run_parts(stage_functions.double, tasks([[3]]), recipe=recipe, outputs=outputs, parents=[], run=run)
    assert files(tmp_path) == before


def test_a_set_is_never_written_over_while_it_is_read(tmp_path: Path, run: Run) -> None:
    parent = double(tmp_path, tasks([[1, 2]]), run)["kept"]
    before = files(tmp_path)
    recipe = Recipe(stage="test.other", code_version=1, settings={})
    outputs = {"kept": (f"{tmp_path}/x/../kept", "dropped"), "dropped": (str(tmp_path / "more"), "dropped")}
    with pytest.raises(InputError, match="is both input and output"):
        run_parts(stage_functions.double, tasks([[3]]), recipe=recipe, outputs=outputs, parents=[parent], run=run)
    assert files(tmp_path) == before


def test_a_second_run_on_the_same_folder_is_refused_and_disturbs_nothing(tmp_path: Path, run: Run) -> None:
    with Folder(tmp_path / "kept").held(), pytest.raises(InputError, match="another run is writing"):
        double(tmp_path, tasks([[1, 2]]), run)
    assert files(tmp_path) == {}
    double(tmp_path, tasks([[1, 2]]), run)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_runs_of_some_parts_seal_nothing_and_a_run_of_all_completes_them_to_the_same_bytes(
    n: int, tmp_path: Path, run: Run
) -> None:
    numbers = [range(i, i + 3) for i in range(5)]
    double(tmp_path / "whole", tasks(numbers), run)
    for k in range(1, n + 1):
        for _ in ("made", "found"):
            left = sum(index % n > k - 1 for index in range(5))
            said = (
                rf"test.double: the parts of run {k}/{n} are made, and nothing is sealed; {left} of 5 parts are missing"
            )
            with pytest.raises(RunFailed, match=rf"{said}\nwhen the other runs have ended: webtext double"):
                double(tmp_path / "shared", tasks(numbers), replace(run, parts=Parts(k, n, "webtext double")))
        made = {int(path.stem) for path in (tmp_path / "shared/kept/_parts").iterdir()}
        assert made == {index for index in range(5) if index % n < k}
    with pytest.raises(InputError, match="is not sealed"):
        PartSet.open(str(tmp_path / "shared/kept"))
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "shared").rglob("part-*")}
    double(tmp_path / "shared", tasks(numbers), run)
    assert files(tmp_path / "shared") == files(tmp_path / "whole")
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    double(tmp_path / "shared", tasks(numbers), replace(run, parts=Parts(1, n)))  # all is done


def test_runs_of_some_parts_may_be_at_work_together_but_not_beside_a_run_of_all(tmp_path: Path, run: Run) -> None:
    made = tasks([[1, 2], [3, 4]])
    with Folder(tmp_path / "kept").held(shared=True):
        with pytest.raises(RunFailed, match="1 of 2 parts are missing"):
            double(tmp_path, made, replace(run, parts=Parts(1, 2)))
        with pytest.raises(InputError, match="another run is writing"):
            double(tmp_path, made, run)
    with Folder(tmp_path / "kept").held(), pytest.raises(InputError, match="another run is writing"):
        double(tmp_path, made, replace(run, parts=Parts(1, 2)))


def rename(path: Path, name: str) -> None:
    """Rename the part in an entry or a manifest, as an attacker would do it."""
    value = json.dumps(without_check(json.loads(path.read_text())))
    path.write_text(json.dumps(with_check(json.loads(value.replace('"part-00000.parquet"', f'"{name}"')))))


@pytest.mark.parametrize("name", ["../part-00000.parquet", "sub/part-00000.parquet", "nonsense", ".."])
def test_an_entry_that_names_files_elsewhere_is_not_valid(name: str, tmp_path: Path, run: Run) -> None:
    made = double(tmp_path, tasks([[1, 2]]), run)
    before = files(tmp_path)
    entry = tmp_path / "kept" / "_parts" / "00000.json"
    rename(entry, name)
    assert double(tmp_path, tasks([[1, 2]]), run)["kept"].hash == made["kept"].hash
    assert files(tmp_path) == before
    manifest = tmp_path / "kept" / "manifest.json"
    rename(manifest, name)
    with pytest.raises(InputError, match="is damaged"):
        PartSet.open(str(tmp_path / "kept"))


def write_parent(folder: Path, reason: str) -> PartSet:
    """Write a set of one decision."""
    writer = SetWriter(str(folder), "dropped", Recipe(stage="test.write", code_version=1, settings={}))
    with writer.part(0, key=reason) as part:
        part.write([{"id": reason, "stage": "test", "reason": reason, "text_start": ""}])
        return writer.seal([part.publish()])


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
    copied(write_parent(tmp_path / "old" / "parent", "a"), tmp_path / "old" / "child", run)
    (tmp_path / "old").rename(tmp_path / "new")
    parent = write_parent(tmp_path / "new" / "parent", "b")
    assert [each.hash for each in parents_of(PartSet.open(str(tmp_path / "new" / "child")))] == [parent.hash]
    monkeypatch.chdir(tmp_path / "new")
    assert [each.folder.url for each in parents_of(PartSet.open("child"))] == ["parent"]


@pytest.mark.parametrize("run_json", [None, b"", b"[]", b"{}", b'{"parents": 5}', b'{"parents": ["nowhere", 7]}'])
def test_a_missing_parent_is_ignored(tmp_path: Path, run: Run, run_json: bytes | None) -> None:
    child = copied(write_parent(tmp_path / "parent", "a"), tmp_path / "child", run)
    assert list(parents_of(child))
    (tmp_path / "child" / "run.json").unlink()
    if run_json is not None:
        (tmp_path / "child" / "run.json").write_bytes(run_json)
    assert list(parents_of(child)) == []


def test_a_parent_that_is_being_written_is_ignored(tmp_path: Path, run: Run) -> None:
    child = copied(write_parent(tmp_path / "parent", "a"), tmp_path / "child", run)
    (tmp_path / "parent" / "manifest.json").unlink()
    assert list(parents_of(child)) == []


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads the peak of memory in /proc")
def test_the_memory_of_a_process_is_not_that_of_the_one_that_started_it() -> None:
    child = [sys.executable, "-c", "from webtext.base.run import peak_bytes; print(peak_bytes())"]
    held = bytearray(400 << 20)
    held[::4096] = b"x" * len(held[::4096])
    answer = subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert 1 << 20 < int(answer) < len(held) // 2
