"""The Ray engine on a real cluster: lost workers, nodes and drivers cost nothing, a record that does harm costs itself."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from webtext.base.console import Console
from webtext.base.errors import ConfigError, InputError, MachineError, NetworkError
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers import ray_engine
from webtext.base.workers.local_engine import LocalEngine, TaskFailure, WorkerLimits, ignore
from webtext.base.workers.ray_engine import RayEngine

HERE = Path(__file__).parent
for place in (HERE, HERE.parent / "base"):
    sys.path.append(str(place))
import ray_functions  # noqa: E402
import worker_functions as work  # noqa: E402
from ray_nodes import Nodes, children, raylet, until  # noqa: E402
from stage_functions import files  # noqa: E402
from worker_functions import Heard  # noqa: E402

SMALL = WorkerLimits(record_seconds=60, memory_bytes=300 << 20)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def engine(nodes: Nodes, heard: Heard) -> Iterator[RayEngine]:
    with RayEngine(nodes.address, limits=SMALL, warn=heard.warnings.append) as engine:
        yield engine


def test_a_record_that_kills_its_worker_is_all_that_is_lost(engine: RayEngine, heard: Heard) -> None:
    """Also records that are known to kill, an error of a task, and a result that is too large, in one quick test."""
    known = {1: {1: "signal 11"}}
    assert heard.map(engine, work.process, [["a", "exit", "b"], ["c", "segfault"], ["d"]], set_aside=known) == []
    assert heard.results == {0: ["A", "B"], 1: ["C"], 2: ["D"]}
    assert heard.set_aside == {(0, 1): "exit status 3"}
    failures = heard.map(engine, work.process, [[7]])
    node = platform.node()
    assert failures == [TaskFailure(0, f"AttributeError: 'int' object has no attribute 'partition' (on {node})")]
    for function, task in ((ray_functions.large, 65 << 20), (work.process, ["x" * (65 << 20)])):
        with pytest.raises(ConfigError, match=r"has 68,157,\d+ bytes; Ray carries 67,108,864 at most"):
            heard.map(engine, function, [task])
    assert heard.warnings == []


@pytest.mark.slow
def test_records_that_segfault_hang_and_eat_memory_are_all_that_is_lost(
    nodes: Nodes, heard: Heard, tmp_path: Path
) -> None:
    tasks = [["a", "segfault", "b", "hang", "c", "eat", "d"], ["e", "f"]]
    with RayEngine(nodes.address, limits=WorkerLimits(record_seconds=3, memory_bytes=300 << 20)) as engine:
        assert heard.map(engine, work.process, tasks) == []
    assert heard.results == {0: ["A", "B", "C", "D"], 1: ["E", "F"]}
    assert heard.set_aside == {(0, 1): "signal 11", (0, 3): "no progress for 3 s", (0, 5): "memory above 300 MiB"}


@pytest.mark.slow
def test_paths_are_relative_to_the_driver_s_folder(
    engine: RayEngine, heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").touch()
    monkeypatch.chdir(tmp_path)
    assert heard.map(engine, ray_functions.where, ["here"], writes=[Folder("."), Folder("new")]) == []
    assert heard.results == {0: (str(tmp_path), True)}
    assert (sorted(os.listdir()), os.listdir("new")) == (["here", "new"], [])


def test_no_task_is_sent_while_the_nodes_that_are_left_have_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(ray_engine, "_run_on_a_node", SimpleNamespace(remote=lambda *call: sent.append(call)))
    parts = [ray_engine._Part(number, {}) for number in range(10)]
    engine: Any = SimpleNamespace(max_in_flight=2, limits=SMALL, quiet=True)
    waiting, running = deque(parts[4:]), dict(enumerate(parts[:4]))
    ray_engine._Map(engine, work.process, [[]] * 10, ignore, ignore, waiting, [], running)._send_waiting()
    assert sent == []


def test_a_node_that_does_not_see_the_driver_s_folder_refuses_its_tasks(tmp_path: Path) -> None:
    place = ray_engine._Place(str(tmp_path), [], SMALL, True, [str(tmp_path / ".seen.tmp")])
    assert ray_engine._run(ray_engine._software(), place, b"", {})[::2] == ("not seen", str(tmp_path / ".seen.tmp"))


def test_a_node_with_other_software_refuses_its_tasks() -> None:
    ours = ray_engine._software()
    assert {"Python", "webtext", "numpy", "pyarrow", "lxml"} <= ours.keys()
    assert "pytest" not in ours
    place = ray_engine._Place("/", [], SMALL, True, [])
    kind, _, differences = ray_engine._run(ours | {"Python": "3.9.1", "lxml": "1.0"}, place, b"", {})
    assert kind == "differs"
    assert differences == f"Python {ours['Python']} instead of 3.9.1, lxml {ours['lxml']} instead of 1.0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (
            ("differs", "node7", "lxml 6 instead of 5"),
            MachineError,
            "the node node7 has other software than this machin",
        ),
        (("not seen", "node7", "OUT/.seen.tmp"), MachineError, "the node node7 does not see the folder '"),
        (("stops", "node7", InputError("no file 'a'", "look")), InputError, r"no file 'a' \(on node7\)\nlook"),
    ],
)
def test_what_a_node_refuses_is_an_error_that_names_it(
    engine: RayEngine,
    heard: Heard,
    answer: tuple[str, str, Any],
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer of a node that isn't of this cluster is put in the place of its own."""
    seen = tmp_path / ".seen.tmp"
    seen.touch()
    answer = (*answer[:2], str(seen) if answer[0] == "not seen" else answer[2])
    monkeypatch.setattr(ray_engine.ray, "get", lambda _: answer)
    with pytest.raises(error, match=message):
        heard.map(engine, work.process, [["a"]], writes=[Folder(tmp_path)])


@pytest.mark.slow
def test_a_ray_worker_that_is_killed_costs_nothing(engine: RayEngine, heard: Heard, tmp_path: Path) -> None:
    """Its own worker ends with it, and the task is sent again."""
    engine.map(ray_functions.where, ["."], on_done=lambda *_: None)
    marks = tmp_path / "marks"
    marks.mkdir()

    def kill() -> None:
        until(lambda: ray_functions.marks(marks), "the task has begun")
        [(_, worker, node)] = ray_functions.marks(marks)
        [ray_worker] = [child for child in children(node) if worker in children(child)]
        os.kill(ray_worker, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{worker}").exists(), "its worker has ended")

    with meanwhile(kill, tmp_path / "go") as go:
        made = numbered(tmp_path / "out", Run(engine, Console("quiet")), marks=str(marks), waits_for=go)
    assert made.records == 11
    assert heard.warnings == ["a Ray worker was killed; sending 1 of its tasks again"]


SCRIPT = """
import sys
sys.path += {path!r}
from pathlib import Path
from test_ray_engine import SMALL, numbered
from webtext.base.console import Console
from webtext.base.run import Run
from webtext.base.workers.ray_engine import RayEngine
console = Console("quiet")
with RayEngine({address!r}, limits=SMALL, warn=console.warn) as engine:
    numbered(Path({out!r}), Run(engine, console), 6, marks={marks!r}, waits_for={go!r})
"""


@pytest.fixture
def drive(nodes: Nodes, tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    """Starts another process that makes six parts on so many nodes, whose tasks then wait for the file `go`."""
    processes = []

    def drive(n_nodes: int) -> subprocess.Popen[str]:
        nodes.grow_to(n_nodes)
        marks = tmp_path / "marks"
        marks.mkdir()
        path = [str(HERE), str(HERE.parent / "base")]
        where = {"out": str(tmp_path / "out"), "marks": str(marks), "go": str(tmp_path / "go")}
        script = SCRIPT.format(path=path, address=nodes.address, **where)
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        begun = f"{n_nodes} tasks have begun"
        until(lambda: len(ray_functions.marks(marks)) >= n_nodes or process.poll() is not None, begun)
        assert process.poll() is None, process.communicate()
        return process

    yield drive
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_node_that_is_lost_and_one_that_joins_change_no_byte(
    nodes: Nodes, drive: Callable[[int], subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Three tasks wait on three nodes; one node is killed, and another joins and gets its task."""
    driver = drive(3)
    lost, before = nodes.others[0], ray_functions.marks(tmp_path / "marks")
    assert raylet(lost) in {node for _, _, node in before}
    nodes.kill(lost)
    joined = nodes.add()
    until(lambda: joined in {node for _, _, node in ray_functions.marks(tmp_path / "marks")}, "the new node has a task")
    (tmp_path / "go").touch()
    out, error = driver.communicate(timeout=60)
    assert driver.returncode == 0, error
    assert out == "", "Ray printed something among the data"
    assert [line.partition(";")[0] for line in error.splitlines()] == ["warning: a node was lost"]
    with LocalEngine(2) as local:
        numbered(tmp_path / "local", Run(local, Console("quiet")), 6)
    assert files(tmp_path / "out") == files(tmp_path / "local")


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_is_killed_or_interrupted_leaves_no_task_and_resumes(
    drive: Callable[[int], subprocess.Popen[str]], sent: signal.Signals, engine: RayEngine, tmp_path: Path
) -> None:
    driver = drive(2)
    driver.send_signal(sent)
    driver.communicate(timeout=60)
    workers = [Path(f"/proc/{worker}") for _, worker, _ in ray_functions.marks(tmp_path / "marks")]
    until(lambda: not any(map(Path.exists, workers)), "the tasks' workers have ended")
    (tmp_path / "go").touch()
    numbered(tmp_path / "out", Run(engine, Console("quiet")), 6)
    with LocalEngine(1) as local:
        numbered(tmp_path / "local", Run(local, Console("quiet")), 6)
    assert files(tmp_path / "out") == files(tmp_path / "local")


@pytest.mark.slow
def test_a_second_driver_on_the_same_folder_is_refused(
    drive: Callable[[int], subprocess.Popen[str]], engine: RayEngine, tmp_path: Path
) -> None:
    driver = drive(2)
    with pytest.raises(InputError, match=f"(?s)another run is writing '{tmp_path}.*process {driver.pid} on "):
        numbered(tmp_path / "out", Run(engine, Console("quiet")), 6)
    (tmp_path / "go").touch()
    assert driver.communicate(timeout=60) == ("", "")
    assert PartSet.open(str(tmp_path / "out"), "dropped").records == 65


@pytest.mark.slow
def test_an_error_that_stops_the_map_cancels_the_other_tasks(
    nodes: Nodes, engine: RayEngine, heard: Heard, tmp_path: Path
) -> None:
    nodes.grow_to(3)
    with pytest.raises(InputError, match=r"was altered \(on "):
        heard.map(engine, ray_functions.wait_or_stop, [(str(tmp_path), index) for index in range(3)])
    workers = [Path(f"/proc/{worker}") for _, worker, _ in ray_functions.marks(tmp_path)]
    assert len(workers) == 2
    until(lambda: not any(map(Path.exists, workers)), "the tasks' workers have ended")


@pytest.mark.slow
def test_a_task_that_is_lost_again_and_again_fails_with_the_cause(
    engine: RayEngine, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: Any) -> None:
        raise ray_engine.ray.exceptions.OutOfMemoryError("memory on the node was 10 GB / 10 GB")

    monkeypatch.setattr(ray_engine.ray, "get", lost)
    monkeypatch.setattr(ray_engine, "pause_seconds", lambda _: 0.0)
    cause = "Ray killed a worker because its node ran out of memory"
    assert heard.map(engine, work.process, [["a"]]) == [TaskFailure(0, f"given up after 9 losses: {cause}")]
    assert heard.warnings == [f"{cause}; sending 1 of its tasks again"] * 9


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:99999", "no.such.host.invalid:6379"])
def test_an_address_without_a_cluster_is_an_error_that_says_how_to_start_one(address: str) -> None:
    with RayEngine(address) as engine, pytest.raises(NetworkError, match=f"no Ray cluster at {address}.*\n.*ray start"):
        engine.map(work.process, [["a"]], on_done=lambda *_: None)


@contextmanager
def meanwhile(act: Callable[[], None], go: Path) -> Iterator[str]:
    """Do something in a thread while tasks wait for the file `go`, which appears at the end of it, also if it fails."""

    def acting() -> None:
        try:
            act()
        finally:
            go.touch()

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(acting)
        yield str(go)
        done.result()


def numbered(out: Path, run: Run, n_parts: int = 1, **payload: str) -> PartSet:
    """Make a set of eleven numbers per part, of which one kills its worker."""
    tasks = [
        PartTask(index=i, sources=(), payload={"numbers": range(11 * i, 11 * i + 11), **payload}, depends=str(i))
        for i in range(n_parts)
    ]
    return run_parts(
        ray_functions.number,
        tasks,
        recipe=Recipe(stage="test.number", code_version=1, settings={}),
        outputs={"out": (str(out), "dropped")},
        parents=[],
        run=run,
    )["out"]
