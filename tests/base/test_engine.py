"""The local engine: a crash, a hang or excessive memory costs one record; no work is repeated, no process is left."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from webtext.base.console import Console
from webtext.base.errors import ConfigError, InputError, MachineError, RunFailed
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.attempt import Attempt
from webtext.base.workers.local_engine import LocalEngine, TaskFailure, WorkerLimits

HERE = str(Path(__file__).parent)
sys.path.append(HERE)
import worker_functions as work  # noqa: E402
from worker_functions import Heard  # noqa: E402

SMALL = WorkerLimits(record_seconds=60, memory_bytes=300 << 20)  # no record is a minute of work on any machine
PATIENCE = 120.0  # a guard against hanging; nothing is measured by it


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with LocalEngine(2, SMALL) as engine:
        yield engine


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], float]], None]:
    """Replaces the engine's clock (seconds), so that a test decides how long a record lasts, not a busy machine."""
    return lambda clock: monkeypatch.setattr("webtext.base.workers.local_engine.time", SimpleNamespace(monotonic=clock))


def test_finished_records_are_counted_also_in_unfinished_tasks(engine: LocalEngine, tmp_path: Path) -> None:
    heard: list[int] = []
    tasks = [["a", "b", "wait 0.5"], ["segfault_once " + str(tmp_path / "once"), "c"]]
    assert not Heard().map(engine, work.process, tasks, on_records=heard.append)
    assert heard[-1] == max(heard) == 5
    assert 2 in heard  # while the third record was waiting
    heard.clear()
    assert not Heard().map(engine, work.process_batches, [["a"] * 10], on_records=heard.append)
    assert heard[-1] == 10


def test_three_records_that_segfault_hang_and_eat_memory_are_all_that_is_lost(
    heard: Heard, tmp_path: Path, set_clock: Callable[[Callable[[], float]], None]
) -> None:
    """The clock advances a second per reading while the hanging record is being processed, and is stopped otherwise."""
    hangs, seconds = tmp_path / "hangs", itertools.count(1.0)
    now = [0.0]

    def clock() -> float:
        if hangs.exists() and (0, 3) not in heard.set_aside:
            now[0] = next(seconds)
        return now[0]

    set_clock(clock)
    tasks = [["a", "segfault", "b", f"hang {hangs}", "c", "eat", "d"], ["e", "f"]]
    with LocalEngine(1, WorkerLimits(record_seconds=3, memory_bytes=SMALL.memory_bytes)) as engine:
        failures = heard.map(engine, work.process, tasks)
    assert failures == []
    assert heard.results == {0: ["A", "B", "C", "D"], 1: ["E", "F"]}
    assert heard.set_aside == {(0, 1): "signal 11", (0, 3): "no progress for 3 s", (0, 5): "memory above 300 MiB"}


def test_one_huge_allocation_is_refused_and_has_the_same_cause(engine: LocalEngine, heard: Heard) -> None:
    assert heard.map(engine, work.process, [["a", "jump", "b"]]) == []
    assert heard.results == {0: ["A", "B"]}
    assert heard.set_aside == {(0, 1): "memory above 300 MiB"}


def test_an_exit_names_its_status(engine: LocalEngine, heard: Heard) -> None:
    heard.map(engine, work.process, [["exit", "a"]])
    assert heard.results == {0: ["A"]}
    assert heard.set_aside == {(0, 0): "exit status 3"}


def test_records_known_to_kill_are_left_out_from_the_start(engine: LocalEngine, heard: Heard) -> None:
    heard.map(engine, work.process, [["a"], ["b", "segfault"]], set_aside={1: {1: "signal 11"}})
    assert heard.results == {0: ["A"], 1: ["B"]}
    assert heard.set_aside == {}


def test_a_record_that_kills_once_is_not_lost(engine: LocalEngine, heard: Heard, tmp_path: Path) -> None:
    record = f"exit_once {tmp_path / 'marker'}"
    assert heard.map(engine, work.process, [["a", record, "b"]]) == []
    assert heard.results == {0: ["A", record.upper(), "B"]}
    assert heard.set_aside == {}


def test_a_record_that_survives_alone_but_kills_its_part_twice_is_set_aside(engine: LocalEngine, heard: Heard) -> None:
    assert heard.map(engine, work.die_alone_never, [7]) == []
    assert heard.results == {0: 7}
    assert heard.set_aside == {(0, 1): "exit status 3"}


def test_kill_9_of_a_worker_from_outside_costs_nothing(heard: Heard, tmp_path: Path) -> None:
    """The worker is killed during a record, which lasts forever at the first attempt and finishes at the second."""
    begun = tmp_path / "begun"
    with LocalEngine(1) as engine:
        heard.map(engine, work.pid_of_worker, [None])
        worker = heard.results.pop(0)

        def kill() -> None:
            while not begun.exists():
                time.sleep(0.01)
            os.kill(worker, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        assert heard.map(engine, work.process, [["a", f"hang_once {begun}", "b"]]) == []
        killer.join()
    assert heard.results == {0: ["A", f"hang_once {begun}".upper(), "B"]}
    assert heard.set_aside == {}


def test_an_idle_worker_that_is_killed_is_replaced(heard: Heard) -> None:
    with LocalEngine(1) as engine:
        heard.map(engine, work.pid_of_worker, [None])
        os.kill(heard.results.pop(0), signal.SIGKILL)
        assert heard.map(engine, work.pid_of_worker, [None]) == []
    assert set(heard.results) == {0}


def test_a_death_outside_records_is_retried_once_and_then_fails_the_part(
    engine: LocalEngine, heard: Heard, tmp_path: Path
) -> None:
    failures = heard.map(engine, work.die_between_records, [str(tmp_path / "marker"), ""])
    assert failures == [TaskFailure(1, "the worker ended outside any record: exit status 4")]
    assert heard.results == {0: "survived"}
    assert heard.set_aside == {}


def test_a_worker_that_stalls_outside_records_is_ended_and_its_part_fails_after_one_retry(
    heard: Heard, tmp_path: Path, set_clock: Callable[[Callable[[], float]], None]
) -> None:
    """Each attempt that has begun to stall lets the clock advance by 8 s, of which the engine counts two thirds."""
    now, begun = [0.0], tmp_path / "begun"

    def clock() -> float:
        now[0] = min(now[0] + 0.25, 8.0 * begun.stat().st_size) if begun.exists() else 0.0
        return now[0]

    set_clock(clock)
    with LocalEngine(1, WorkerLimits(idle_seconds=3, record_seconds=1000)) as engine:
        failures = heard.map(engine, work.stall_between_records, [str(tmp_path / "begun")])
    assert failures == [TaskFailure(0, "the worker ended outside any record: no progress for 3 s")]
    assert (tmp_path / "begun").read_text() == "..", "begun, and retried once"


def test_a_batch_is_worked_on_row_by_row_only_after_a_death(heard: Heard) -> None:
    """The second of two batches of four rows has two rows that crash; the first is never processed row by row."""
    with LocalEngine(1, SMALL) as engine:
        assert heard.map(engine, work.process_batches, [["a", "b", "c", "d", "segfault", "e", "exit", "f"]]) == []
    assert heard.results == {0: ["abcd", "(signal 11)", "e", "(exit status 3)", "f"]}
    assert heard.set_aside == {(0, 4): "signal 11", (0, 6): "exit status 3"}


@pytest.mark.slow
def test_retries_of_a_part_are_bounded(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webtext.base.workers.local_engine.MAX_RETRIES_PER_PART", 5)
    with LocalEngine(1) as engine:
        failures = heard.map(engine, work.die_at_every_record, [100])
    # Each record takes two retries, one alone and one without it: the sixth, after the third record, is not allowed.
    assert failures == [TaskFailure(0, "given up after 5 retries: 3 records set aside")]
    assert len(heard.set_aside) == 3


def test_time_is_counted_for_one_record_not_for_the_part(
    heard: Heard, tmp_path: Path, set_clock: Callable[[Callable[[], float]], None]
) -> None:
    """The clock allows each of five records at most a second and a half, then waits for the next record."""
    now = [0.0]

    def clock() -> float:
        with open(tmp_path / "readings", "ab") as readings:
            readings.write(b".")
        now[0] = min(now[0] + 0.25, 1.5 * len(list(tmp_path.glob("record-*"))))
        return now[0]

    set_clock(clock)
    with LocalEngine(1, WorkerLimits(record_seconds=2)) as engine:
        assert heard.map(engine, work.work_under_the_engine_s_eyes, [str(tmp_path)]) == []
    assert heard.results == {0: 5}
    assert (tmp_path / "begun").read_bytes() == b".", "its worker was killed, and it was begun again"


def test_an_exception_fails_its_part_alone_with_one_line(
    engine: LocalEngine, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", "webtext.base.workers.local_engine"):
        failures = heard.map(engine, work.raise_error, ["fine", "value", "unpicklable", "exit"])
    assert [failure.index for failure in failures] == [1, 2, 3]
    assert failures[0].error == "ValueError: two lines"
    assert "pickle" in failures[1].error
    assert failures[2].error == "SystemExit: 5"
    assert heard.results == {0: "fine"}
    assert 'raise ValueError("two' in caplog.text


def test_an_input_error_stops_the_map_and_keeps_its_lines(engine: LocalEngine, heard: Heard) -> None:
    with pytest.raises(InputError) as caught:
        heard.map(engine, work.raise_error, ["input"])
    assert caught.value.lines == ("part 'a' is not what it was", "make it again")
    assert heard.map(engine, work.raise_error, ["fine"]) == [], "the engine is usable afterwards"


def test_a_full_disk_stops_the_map_with_the_remedy(engine: LocalEngine, heard: Heard) -> None:
    with pytest.raises(
        MachineError, match="no space left while writing '/full/disk'\non the file system at '/'.*\nfree some"
    ):
        heard.map(engine, work.raise_error, ["space"])


@pytest.mark.parametrize("written", ["/dev/shm/out", "/proc/out"])
def test_a_full_disk_without_a_file_name_is_that_of_the_output(written: str, engine: LocalEngine, heard: Heard) -> None:
    message = f"no space left while writing '{written}'\non the file system at '{os.path.dirname(written)}'"
    with pytest.raises(MachineError, match=message):
        heard.map(engine, work.raise_error, ["space, unnamed"], writes=[Folder(written), Folder("elsewhere")])


def children_of(parent: int) -> list[int]:
    """Return the workers among a process's running children."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            is_worker = b"webtext.base.workers.worker" in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if is_worker and int(fields[1]) == parent and fields[0] not in "ZX":
            found.append(int(folder.name))
    return found


def test_an_error_in_on_done_ends_the_running_workers(tmp_path: Path) -> None:
    def refuse(index: int, result: Any) -> None:
        raise RuntimeError("cannot publish")

    before = set(children_of(os.getpid()))
    with LocalEngine(2) as engine, pytest.raises(RuntimeError, match="cannot publish"):
        engine.map(work.process, [["wait 0.5"], ["wait 500"]], on_done=refuse)
    assert set(children_of(os.getpid())) <= before


def test_two_workers_work_at_the_same_time(engine: LocalEngine, heard: Heard, tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    heard.map(engine, work.meet, [(one, two), (two, one)])
    assert heard.results == {0: True, 1: True}


def test_each_result_comes_with_its_index_whatever_the_order(engine: LocalEngine, heard: Heard) -> None:
    heard.map(engine, work.process, [["wait 0.3"], *([str(i)] for i in range(1, 30))])
    assert heard.results[0] == ["WAIT 0.3"]
    assert [heard.results[i] for i in range(1, 30)] == [[str(i)] for i in range(1, 30)]


def test_no_tasks_start_no_workers(heard: Heard) -> None:
    with LocalEngine(1) as engine:
        assert heard.map(engine, work.process, []) == []
        assert engine._idle == []


class CountedTask:
    """A task that counts how often any CountedTask was pickled; a worker receives a list of one record."""

    n_pickled = 0

    def __reduce__(self) -> tuple[Any, ...]:
        CountedTask.n_pickled += 1
        return list, (["a"],)


def test_a_task_is_pickled_when_it_is_sent(heard: Heard) -> None:
    """So memory never contains all tasks twice: when the first has ended, at most two were pickled for one worker."""
    pickled_by_then: list[int] = []
    with LocalEngine(1) as engine:
        tasks = [CountedTask() for _ in range(10)]
        engine.map(work.process, tasks, on_done=lambda *_: pickled_by_then.append(CountedTask.n_pickled))
    assert pickled_by_then[0] <= 2
    assert pickled_by_then[-1] == 10


def test_large_tasks_and_results_pass(heard: Heard) -> None:
    with LocalEngine(1) as engine:
        heard.map(engine, work.process, [["y" * (20 << 20)], ["z"]])
    assert heard.results == {0: ["Y" * (20 << 20)], 1: ["Z"]}


def test_workers_are_kept_between_maps_and_recycled_after_their_share(heard: Heard) -> None:
    with LocalEngine(1, WorkerLimits(tasks_per_worker=3)) as engine:
        pids = []
        for _ in range(2):
            heard.map(engine, work.pid_of_worker, [None, None])
            pids += [heard.results.pop(index) for index in range(2)]
    assert pids[0] == pids[1] == pids[2] != pids[3]


def test_a_worker_that_keeps_much_memory_is_recycled(heard: Heard) -> None:
    with LocalEngine(1, SMALL) as engine:
        heard.map(engine, work.hold_memory, [200 << 20, 1 << 20, 1 << 20])
    pids = [heard.results[index] for index in range(3)]
    assert pids[0] != pids[1] == pids[2]


def test_memory_that_arrow_freed_is_not_counted(heard: Heard) -> None:
    """Its pool would keep tens of MiB, more or less by chance, which killed workers near their limit."""
    with LocalEngine(1, SMALL) as engine:
        heard.map(engine, work.free_arrow_memory, [150, 150])
    assert heard.results[0] == heard.results[1]


def test_workers_are_single_threaded_deterministic_and_leave_stdout_alone(
    heard: Heard, capfd: pytest.CaptureFixture[str]
) -> None:
    with LocalEngine(1) as first, LocalEngine(1) as second:
        heard.map(first, work.surroundings, [None])
        one = heard.results.pop(0)
        heard.map(second, work.surroundings, [None])
        two = heard.results.pop(0)
    assert one == two
    assert (one["arrow_threads"], one["stdin"]) == (1, "/dev/null")
    out, err = capfd.readouterr()
    assert out == ""
    assert "written by a C library" in err
    assert "printed by a library" in err


def test_quiet_workers_print_nothing(heard: Heard, capfd: pytest.CaptureFixture[str]) -> None:
    with LocalEngine(1, quiet=True) as engine:
        heard.map(engine, work.surroundings, [None])
    assert capfd.readouterr() == ("", "")


def test_workers_that_cannot_start_are_an_error(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webtext.base.workers.process.START", "raise SystemExit(9)")
    with LocalEngine(1) as engine, pytest.raises(MachineError, match=r"cannot start \(exit status 9\)"):
        heard.map(engine, work.process, [["a"]])


def run_limited(limit: str, task: list[str], *before: str) -> subprocess.CompletedProcess[str]:
    text = SCRIPT.replace("engine =", f"import resource\nresource.setrlimit(resource.{limit})\nengine =")
    command = [*before, sys.executable, "-c", text.format(function="work.process", tasks=[task])]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_workers_keep_to_the_user_s_own_limit_if_it_is_lower() -> None:
    give_up = [] if os.geteuid() else ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"]
    ran = run_limited("RLIMIT_DATA, (1 << 30, 1 << 30)", ["a"], *give_up)
    assert ran.stdout == "0 ['A']\n[]\n", ran.stderr


def test_workers_with_too_little_address_space_end_the_map_with_the_cause() -> None:
    ran = run_limited("RLIMIT_AS, (1 << 30, -1)", ["a", "eat"])
    assert ran.stdout == "0 ['A']\n[]\n", ran.stderr
    ran = run_limited("RLIMIT_AS, (1 << 30, -1)", ["eat"])
    assert "MachineError: worker processes cannot start (address space above 1,024 MiB)\nraise the limit" in ran.stderr


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="workers is 0"):
        LocalEngine(0)
    with pytest.raises(ConfigError, match="record_seconds is 0"):
        WorkerLimits(record_seconds=0)


def test_journal_watch_notes_nothing_without_an_engine() -> None:
    attempt = Attempt(set_aside={1: "signal 11"})
    assert list(attempt.watch(enumerate("abc"))) == [(0, "a"), (2, "c")]
    assert list(Attempt(only=2).watch(enumerate("abc"))) == [(2, "c")]


# A script without `if __name__ == "__main__"`, which workers must not run again.
SCRIPT = f"""
import sys
sys.path.append({HERE!r})
import worker_functions as work
from webtext.base.workers.local_engine import LocalEngine
engine = LocalEngine(2)
print(engine.map({{function}}, {{tasks}}, on_done=lambda index, result: print(index, result)))
"""


def script(function: str, tasks: object) -> str:
    return SCRIPT.format(function=function, tasks=tasks)


@pytest.mark.parametrize("how", ["file", "-c", "stdin"])
def test_a_script_needs_no_main_guard(how: str, tmp_path: Path) -> None:
    text = script("work.process", [["a"]])
    (tmp_path / "script.py").write_text(text)
    arguments = {"file": [str(tmp_path / "script.py")], "-c": ["-c", text], "stdin": ["-"]}[how]
    ran = subprocess.run([sys.executable, *arguments], input=text, capture_output=True, text=True, timeout=PATIENCE)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("0 ['A']\n[]\n", "", 0)


def test_a_function_of_the_main_script_is_refused_with_the_remedy() -> None:
    text = (
        "from webtext.base.workers.local_engine import LocalEngine\n"
        "def f(attempt, task): pass\n"
        "LocalEngine(1).map(f, [1], on_done=print)"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=PATIENCE)
    assert "move it to a module of its own" in ran.stderr


def start_sleepers(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    parent = subprocess.Popen(
        [sys.executable, "-c", script("work.announce_and_sleep", [str(folder)] * 2)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + PATIENCE
    while len(workers := [int(path.name) for path in folder.iterdir()]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert sorted(children_of(parent.pid)) == sorted(workers)
    return parent, workers


def assert_gone(workers: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(runs(worker) for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.02)


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_kill_9_of_the_parent_leaves_no_worker(tmp_path: Path) -> None:
    parent, workers = start_sleepers(tmp_path)
    parent.kill()
    parent.communicate()
    assert_gone(workers)


def test_ctrl_c_ends_the_workers_and_only_the_parent_speaks(tmp_path: Path) -> None:
    parent, workers = start_sleepers(tmp_path)
    os.killpg(parent.pid, signal.SIGINT)  # to the entire group, as a terminal does
    _, err = parent.communicate(timeout=PATIENCE)
    assert_gone(workers)
    assert parent.returncode == -signal.SIGINT
    assert err.count("Traceback") == err.count("KeyboardInterrupt") == 1


# --- Run.map -------------------------------------------------------------------------------------


def test_a_run_returns_the_results_in_the_order_of_its_tasks(engine: LocalEngine) -> None:
    run = Run(engine, Console("quiet"))
    assert run.map(work.process, [["a"], ["b", "c"], []], "shouting") == [["A"], ["B", "C"], []]


def test_a_run_raises_an_error_that_names_the_first_task_that_failed(engine: LocalEngine) -> None:
    run = Run(engine, Console("quiet"))
    with pytest.raises(RunFailed, match=r"shouting: 1 of 2 files failed; 'b.txt': TypeError"):
        run.map(work.process, [["a"], None], "shouting", unit="file", names=["a.txt", "b.txt"])
    with pytest.raises(RunFailed, match=r"shouting: 1 of 1 part failed; part 0: TypeError"):
        run.map(work.process, [None], "shouting")
