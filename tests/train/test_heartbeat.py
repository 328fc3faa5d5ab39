"""The process that hangs is named: from data, and with a rank that is really stopped."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import threading
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import flags, small, train
from torch.distributed import HashStore  # type: ignore[attr-defined]

from webtext.train.resilience import distributed, heartbeat
from webtext.train.resilience.distributed import World
from webtext.train.resilience.heartbeat import PATIENCE, ROUNDS, Beat, Heartbeat, verdict, watched
from webtext.train.run import trainer
from webtext.train.run.single_process import SingleProcessModel

WAITED = "the others waited for 600 s (hang_timeout)"
RESUME = "rerun the same command to resume from the last checkpoint; 'torchrun --max-restarts N' does so by itself"


def beat(rank: int, **changes: object) -> Beat:
    """Return a beat of a process that waits for the others in step 7."""
    usual = Beat(rank, 100 + rank, "b", 30, 6, 14, 0, "waits for the others", "distributed.py:40 (sum)")
    return replace(usual, **changes)  # type: ignore[arg-type]


def lines(before: list[Beat | None], after: list[Beat | None]) -> tuple[str, ...]:
    return verdict(before, after, WAITED).lines


def later(beats: list[Beat | None]) -> list[Beat | None]:
    return [None if one is None else replace(one, n=one.n + PATIENCE) for one in beats]


def test_a_process_that_is_behind_is_named_with_its_step_and_line() -> None:
    slow = beat(2, entered=13, done=3, what="computes gradients", where="batches.py:57 (__iter__)")
    beats: list[Beat | None] = [beat(0), beat(1), slow, beat(3)]
    assert lines(beats, later(beats)) == (
        "rank 2 (process 102 on 'b') hangs in step 7 while it computes gradients, at batches.py:57 (__iter__)",
        WAITED,
        RESUME,
    )


def test_the_process_with_the_fewest_microbatches_done_is_behind() -> None:
    """All wait within a backward pass, as replicas do: only the count of microbatches shows who is behind."""
    beats: list[Beat | None] = [beat(rank, what="computes gradients", done=8 - (rank == 1)) for rank in range(3)]
    assert lines(beats, later(beats))[0].startswith("rank 1 ")


def test_a_process_that_no_longer_writes_is_named_if_all_are_equally_far() -> None:
    """It was stopped in the middle of a collective, or its host is gone."""
    beats: list[Beat | None] = [beat(0), beat(1, where=""), beat(2)]
    after = later(beats)
    after[1] = beats[1]
    said = "rank 1 (process 101 on 'b') hangs in step 7: it shows no sign of life"
    assert lines(beats, after)[0] == said


def test_a_process_that_never_wrote_is_named_by_its_rank() -> None:
    beats: list[Beat | None] = [beat(0), None, None]
    assert lines(beats, later(beats))[0] == "rank 1 hangs in step 7, and 1 more: it shows no sign of life"


def test_if_all_are_equally_far_none_is_named() -> None:
    beats: list[Beat | None] = [beat(0), beat(1)]
    first, second, _ = lines(beats, later(beats))
    said = "all 2 processes hang in step 7 while each waits for the others, at distributed.py:40 (sum)"
    assert first == said
    assert second == f"{WAITED}: none is behind, so check the network and the devices"


def test_rounds_without_progress_are_counted_and_any_progress_resets_them() -> None:
    heart = Heartbeat(Beat(), 2, HashStore())
    assert [heart.beat() for _ in range(3)] == [0, 1, 2]
    heart.now.enter("computes gradients", 6)
    assert [heart.beat() for _ in range(3)] == [0, 1, 2]
    heart.now.advance()
    assert heart.beat() == 0
    (ours, none) = heart.read()
    assert none is None
    assert ours is not None
    assert (ours.n, ours.step, ours.what, ours.done, ours.where) == (7, 6, "computes gradients", 1, "")


def test_compilation_may_take_any_number_of_rounds() -> None:
    heart = Heartbeat(Beat(), 2, HashStore())
    heart.now.counts = False
    assert [heart.beat() for _ in range(2 * ROUNDS)] == [0] * 2 * ROUNDS
    heart.now.counts = True
    assert [heart.beat() for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(("compiles", "counts"), [("on", [False, True, True]), ("off", [True, True, True])])
def test_the_first_step_of_a_compiled_run_never_counts_as_a_hang(
    compiles: str, counts: list[bool], tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is waiting for another process that still compiles. Nothing is compiled here."""
    progress, seen = Beat(), []
    world = World(0, 1, torch.device("cpu"), progress)
    update = SingleProcessModel.update
    monkeypatch.setattr(distributed, "join_world", lambda *_: contextlib.nullcontext(world))
    monkeypatch.setattr(trainer, "compile_model", lambda model: None)
    monkeypatch.setattr(SingleProcessModel, "update", lambda *given: (seen.append(progress.counts), update(*given)))
    train(tokens, tmp_path / "model", small(steps=3, eval_windows=2, compile=compiles))
    assert seen == counts


def test_a_beat_names_the_line_at_which_the_main_thread_waits() -> None:
    heart = Heartbeat(Beat(), 1, HashStore())
    heart.beat()
    heart.beat()
    (ours,) = heart.read()
    assert ours is not None
    assert ours.where.startswith("heartbeat.py:")
    assert "(_where)" in ours.where


def test_only_one_process_reports_the_cause(capfd: pytest.CaptureFixture[str]) -> None:
    store, ended = HashStore(), queue.Queue[int]()
    with contextlib.ExitStack() as stack:
        for rank in range(3):
            stack.enter_context(watched(Heartbeat(Beat(rank), 3, store), timeout=ROUNDS * 1e-3, end=ended.put))
        assert [ended.get() for _ in range(3)] == [1, 1, 1]
    assert capfd.readouterr().err.count("error: ") == 1


@pytest.mark.parametrize("record", ["0", "1"])
def test_a_process_without_progress_ends_with_an_error_after_a_record_that_a_user_wants_from_nccl(
    record: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL writes it at its own limit, of twice the timeout."""
    waits: list[float] = []
    ended = queue.Queue[int]()

    class Rounds(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return super().wait(0)

    monkeypatch.setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", record)
    monkeypatch.setattr(heartbeat, "threading", types.SimpleNamespace(**{**vars(threading), "Event": Rounds}))
    with watched(Heartbeat(Beat(), 2, HashStore()), timeout=600, end=ended.put):
        assert ended.get() == 1
    assert waits == [600 / ROUNDS] * (ROUNDS + PATIENCE) + [1200] * (record == "1")
    assert capfd.readouterr().err.splitlines() == [
        "error: rank 1 hangs in step 1: it shows no sign of life",
        "  the others waited for 600 s (hang_timeout)",
        f"  {RESUME}",
    ]


STOPS = """
import os, signal, sys, threading, types
from pathlib import Path
from webtext.train.resilience import heartbeat
from webtext.train.run.trainer import Trainer

victim, file = int(sys.argv[1]), Path(sys.argv[2])
queue_step = Trainer._queue_step

def stop_or_queue_step(self):
    if self.step == 5 and self.world.rank == victim:
        file.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
    return queue_step(self)

def is_stopped():
    pid = file.read_text() if file.exists() else ""
    return pid and ") T " in Path("/proc", pid, "stat").read_text()

class Rounds(threading.Event):
    def wait(self, timeout=None):
        while not self.is_set() and not is_stopped():
            super().wait(0.01)
        return super().wait(0.05)

Trainer._queue_step = stop_or_queue_step
heartbeat.threading = types.SimpleNamespace(**{**vars(threading), "Event": Rounds})
from webtext.app.main import run
sys.exit(run(sys.argv[3:]))
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for a process in /proc")
@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_stopped_rank_is_named_with_its_step(
    victim: int, tokens: str, tmp_path: Path, torchrun: Callable[..., list[str]]
) -> None:
    """This includes process 0, because the store is torchrun's. Rounds begin once the rank has stopped."""
    script = tmp_path / "stops.py"
    script.write_text(STOPS)
    run = ["train", "run", tokens, "--out", str(tmp_path / "model"), *flags(steps=100_000), "--quiet"]
    command = torchrun(2, str(script), str(victim), str(tmp_path / "pid"), *run)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        talk = ""
        for line in process.stderr:
            talk += line
            if line == f"  {RESUME}\n" and " hangs " in talk:
                os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # torchrun does it after 30 s
    assert process.returncode == 1
    pid = (tmp_path / "pid").read_text()
    said = (
        f"error: rank {victim} (process {pid} on '{socket.gethostname()}') hangs in step 6: it shows no sign of life\n"
    )
    assert said in talk, talk
    assert talk.count(" hangs ") == 1
