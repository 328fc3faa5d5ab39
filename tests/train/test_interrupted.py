"""A killed rank costs only a restart; a hung one, SIGTERM and Ctrl-C end the run, which then resumes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import killed_ranks
import pytest
from small_runs import SECONDS, flags, saved_bytes, timeless, wait_until

from webtext.app.main import run
from webtext.base.errors import Interrupted, WebtextError
from webtext.train.distributed import UNDER_TORCHRUN, Termination, lost_process_is_an_error


@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.dist)])
def test_a_run_whose_ranks_are_killed_equals_an_undisturbed_one(
    kills: int, tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_ranks.main(tokens, tmp_path, kills)
    assert f"{kills} kills of {kills}: the run equals an undisturbed one" in capsys.readouterr().out


HANGS = """
import os, sys, time
from datetime import timedelta
from webtext.train import distributed
from webtext.train.run import trainer

distributed.HANG_TIMEOUT = trainer.HANG_TIMEOUT = timedelta(seconds=5)
queue_step = trainer.Trainer._queue_step

def hang_or_queue_step(self):
    while self.step == 5 and self.world.rank == 1:
        time.sleep(0.05)
        if self._termination.asked:
            os._exit(1)
    return queue_step(self)

trainer.Trainer._queue_step = hang_or_queue_step
from webtext.app.main import run
sys.exit(run(sys.argv[1:]))
"""


def test_a_hung_rank_ends_the_run_by_the_process_groups_timeout(
    tokens: str, tmp_path: Path, torchrun: Callable[..., list[str]]
) -> None:
    """The rank that waits for it ends with an error, and torchrun ends the hung one."""
    script = tmp_path / "hangs.py"
    script.write_text(HANGS)
    run = ["train", "run", tokens, "--out", str(tmp_path / "model"), *flags(steps=100_000), "--quiet"]
    ended = subprocess.run(torchrun(2, str(script), *run), stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert "error: lost another process of the run: " in ended.stderr, ended.stderr
    # gloo names the second when several collectives were waiting: the first to time out closes the connection
    assert re.search("Timed out waiting 5000ms|Application timeout caused pair closure", ended.stderr), ended.stderr


@pytest.mark.parametrize("text", ["Application timeout caused pair closure", "[/x/gloo/y.cc:1] Timed out waiting 1ms"])
def test_what_gloo_raises_for_a_lost_process_is_an_error_that_says_so(text: str) -> None:
    with pytest.raises(WebtextError, match="lost another process of the run"), lost_process_is_an_error():
        raise RuntimeError(text)


FLAGS = flags(checkpoint_interval=None, eval_interval=50, dtype="float32")


def command(tokens: str, out: Path, steps: int) -> list[str]:
    return ["train", "run", tokens, "--out", str(out), "--steps", str(steps), *FLAGS]


def wait_for_steps(process: subprocess.Popen[str], out: Path, n: int) -> None:
    log = out / "metrics.jsonl"
    wait_until(lambda: log.exists() and len(log.read_bytes().splitlines()) >= n, process)


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_a_run_that_is_asked_to_end_saves_and_resumes_as_if_undisturbed(
    number: int, name: str, tokens: str, tmp_path: Path, run_that_waits: Callable[[int, list[str]], list[str]]
) -> None:
    out = tmp_path / "ended"
    process = subprocess.Popen(run_that_waits(20, command(tokens, out, 80)), stderr=subprocess.PIPE, text=True)
    wait_for_steps(process, out, 20)
    process.send_signal(number)
    _, talk = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, talk
    (saved,) = (out / "checkpoints").iterdir()
    step = int(saved.name.removeprefix("step-"))
    assert 20 <= step < 80
    assert talk.endswith(
        f"error: ended by {name} after step {step:,}, saved as '{saved}'\n  rerun the same command to resume\n"
    )
    for folder in (out, tmp_path / "whole"):
        assert run([*command(tokens, folder, 80), "--quiet"]) == 0
    assert timeless(out) == timeless(tmp_path / "whole")
    assert saved_bytes(out, 80) == saved_bytes(tmp_path / "whole", 80)


HANGS_IN_A_SAVE = """
import sys, time
from webtext.train.checkpoint.saver import CheckpointSaver
CheckpointSaver._save = lambda *_: time.sleep(1e6)
from webtext.app.main import run
sys.exit(run(sys.argv[1:]))
"""


def test_a_second_ctrl_c_ends_a_run_that_is_still_saving(tokens: str, tmp_path: Path) -> None:
    out = tmp_path / "model"
    hangs = [sys.executable, "-c", HANGS_IN_A_SAVE, *command(tokens, out, 1_000_000), "--quiet"]
    process = subprocess.Popen(hangs, stderr=subprocess.PIPE, text=True)
    wait_for_steps(process, out, 2)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    warning, blank, *said = (process.stderr.readline() for _ in range(3))
    assert warning.startswith("warning: "), "so many steps repeat the text"
    assert [blank, *said] == ["\n", "ending after the current step, with a checkpoint; Ctrl-C again ends at once\n"]
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=SECONDS)
    assert (process.returncode, talk) == (
        130,
        "error: interrupted again\n  rerun the same command to resume from the last checkpoint\n",
    )


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    "asked", ["one rank", *(pytest.param(asked, marks=pytest.mark.slow) for asked in ("all ranks", "torchrun"))]
)
def test_all_processes_end_after_the_same_step_with_one_checkpoint(
    asked: str, tokens: str, tmp_path: Path, torchrun: Callable[..., list[str]]
) -> None:
    """torchrun passes the signal on and waits --shutdown-timeout seconds for the ranks; its own exit code is always 1.

    When torchrun itself gets the signal, it and its ranks are unmodified.
    """
    out = tmp_path / "two"
    agent = torchrun(2, "--shutdown-timeout", "300", "-m", "webtext.app.main", *command(tokens, out, 100_000))
    if asked == "torchrun":
        agent[:2] = [sys.executable, "-m", "torch.distributed.run"]
    process = subprocess.Popen(agent, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_steps(process, out, 5)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()  # as they were started
        ranks = [int(pid) for pid in children]
        for pid in {"one rank": ranks[1:], "all ranks": ranks, "torchrun": [process.pid]}[asked]:
            os.kill(pid, signal.SIGTERM)
        _, talk = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert len(ranks) == 2
    assert process.returncode == 1
    (saved,) = (out / "checkpoints").iterdir()
    assert talk.count(f"saved as '{saved}'") == 2, talk
    assert talk.count("exitcode  : 130 ") == (0 if asked == "torchrun" else 2), talk


def test_the_previous_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Termination.noticed() as termination:
        assert not termination.asked
        os.kill(os.getpid(), signal.SIGTERM)
        assert termination.asked
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_stays_ignored_where_it_was() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Termination.noticed() as termination:
            signal.raise_signal(signal.SIGINT)
            assert not termination.asked
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_that_ends_under_torchrun_is_not_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        for variable, after in ((None, before), (UNDER_TORCHRUN, signal.SIG_IGN)):
            if variable is not None:
                monkeypatch.setenv(variable, "1")
            with pytest.raises(Interrupted), Termination.noticed():
                raise Interrupted("ended")
            assert signal.getsignal(signal.SIGTERM) is after
    finally:
        signal.signal(signal.SIGTERM, before)
