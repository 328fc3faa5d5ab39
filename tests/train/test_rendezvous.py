"""Processes of one attempt find each other, a killed rank costs only a restart, and SIGTERM ends a run that then resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import killed_ranks
import pytest
from small_runs import SECONDS, flags, saved_bytes, timeless
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from webtext.app.main import run
from webtext.base.errors import ConfigError, Interrupted, MachineError
from webtext.train.resilience import rendezvous
from webtext.train.resilience.rendezvous import attempt_store, interface_towards, own_part
from webtext.train.resilience.termination import UNDER_TORCHRUN, Termination


@pytest.fixture
def agents_store() -> Store:
    """A store that outlives attempts, like that of torchrun's agent."""
    return TCPStore("127.0.0.1", 0, is_master=True)


def attempt_of(size: int, store: Store) -> list[Store]:
    """Return the store's parts on which `size` processes agree. They are threads here, each with its own client."""
    parts: dict[int, Store] = {}
    clients = [store.clone() for _ in range(size)]

    def join(rank: int) -> None:
        parts[rank] = own_part(clients[rank], rank, size)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in reversed(range(size))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [parts[rank] for rank in range(size)]


def test_processes_of_an_attempt_share_a_part_that_no_other_attempt_sees(agents_store: Store) -> None:
    for attempt in range(3):
        parts = attempt_of(3, agents_store)
        assert not any(part.check(["address"]) for part in parts)  # gloo would connect to a dead process's
        parts[attempt].set("address", str(attempt))
        assert [part.get("address") for part in parts] == [str(attempt).encode()] * 3


def test_a_request_of_a_dead_process_is_answered_to_nobody(agents_store: Store) -> None:
    agents_store.set("webtext/ask/1", "of a process that was killed as it joined")
    one, two = attempt_of(2, agents_store)
    one.set("said", "yes")
    assert two.get("said") == b"yes"


def test_a_process_that_does_not_join_is_named(agents_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "JOIN_SECONDS", 0.0)
    PrefixStore("", agents_store).set("webtext/ask/2", "asks, and is gone")
    with pytest.raises(MachineError, match=r"of 4 processes these did not join in 0 s: 1, 2, 3\n"):
        own_part(agents_store, 0, 4)


def test_a_world_without_an_address_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ConfigError, match="WORLD_SIZE is 2, but MASTER_ADDR or MASTER_PORT is not set\nuse torchrun"):
        attempt_store(0, 2)


def test_gloo_keeps_its_choice_without_another_host() -> None:
    assert interface_towards("127.0.0.1") is None
    assert interface_towards("no.such.host.invalid") is None


@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.dist)])
def test_a_run_whose_ranks_are_killed_equals_an_undisturbed_one(
    kills: int, tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_ranks.main(tokens, tmp_path, kills)
    assert f"{kills} kills of {kills}: the run equals an undisturbed one" in capsys.readouterr().out


FLAGS = flags(checkpoint_interval=None, eval_interval=50, dtype="float32", dropout=0.1)


def command(tokens: str, out: Path, steps: int) -> list[str]:
    return ["train", "run", tokens, "--out", str(out), "--steps", str(steps), *FLAGS]


def wait_for_steps(process: subprocess.Popen[str], out: Path, n: int) -> None:
    end = time.monotonic() + SECONDS
    while not (out / "metrics.jsonl").exists() or len((out / "metrics.jsonl").read_bytes().splitlines()) < n:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_terminated_run_saves_and_resumes_as_if_undisturbed(
    tokens: str, tmp_path: Path, run_that_waits: Callable[[int, list[str]], list[str]]
) -> None:
    out = tmp_path / "ended"
    process = subprocess.Popen(run_that_waits(20, command(tokens, out, 80)), stderr=subprocess.PIPE, text=True)
    wait_for_steps(process, out, 20)
    process.send_signal(signal.SIGTERM)
    _, talk = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, talk
    (saved,) = (out / "checkpoints").iterdir()
    step = int(saved.name.removeprefix("step-"))
    assert 20 <= step < 80
    assert talk.endswith(
        f"error: ended by SIGTERM after step {step:,}, saved as '{saved}'\n  rerun the same command to resume\n"
    )
    for folder in (out, tmp_path / "whole"):
        assert run([*command(tokens, folder, 80), "--quiet"]) == 0
    assert timeless(out) == timeless(tmp_path / "whole")
    assert saved_bytes(out, 80) == saved_bytes(tmp_path / "whole", 80)


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
