"""Attempts of a run find their own processes, and none of an attempt before; a killed rank costs a restart and nothing else."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from webtext.base.errors import ConfigError, EnvironmentError_
from webtext.train import rendezvous
from webtext.train.rendezvous import attempt_store, interface_towards, own_part

sys.path.insert(0, str(Path(__file__).parent))
import killed_ranks


@pytest.fixture
def agents_store() -> Store:
    """A store that outlives attempts, as torchrun's agent has it."""
    return TCPStore("127.0.0.1", 0, is_master=True)


def attempt_of(size: int, store: Store) -> list[Store]:
    """The parts of the store that `size` processes of one attempt agree upon: threads here, each with a client of its own."""
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
        assert not any(part.check(["address"]) for part in parts)  # gloo would dial a dead process's
        parts[attempt].set("address", str(attempt))
        assert [part.get("address") for part in parts] == [str(attempt).encode()] * 3


def test_what_a_dead_process_asked_is_answered_to_nobody(agents_store: Store) -> None:
    agents_store.set("webtext/ask/1", "of a process that was killed as it joined")
    one, two = attempt_of(2, agents_store)
    one.set("said", "yes")
    assert two.get("said") == b"yes"


def test_who_does_not_come_is_named(agents_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "JOIN_SECONDS", 0.0)
    PrefixStore("", agents_store).set("webtext/ask/2", "asks, and is gone")
    with pytest.raises(EnvironmentError_, match=r"of 4 processes these did not come in 0 s: 1, 2, 3\n"):
        own_part(agents_store, 0, 4)


def test_a_world_without_an_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ConfigError, match="WORLD_SIZE is 2, and MASTER_ADDR or MASTER_PORT is not set\nuse torchrun"):
        attempt_store(0, 2)


def test_gloo_keeps_its_choice_where_no_other_host_is_meant() -> None:
    assert interface_towards("127.0.0.1") is None
    assert interface_towards("no.such.host.invalid") is None


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.dist)])
def test_a_run_whose_ranks_are_killed_leaves_what_an_undisturbed_one_does(
    kills: int, tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_ranks.main(tokens, tmp_path, kills)
    assert f"{kills} kills of {kills}: what the run left equals" in capsys.readouterr().out
