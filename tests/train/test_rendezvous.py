"""Processes of one attempt find each other and ignore earlier attempts; a killed rank costs only a restart."""

from __future__ import annotations

import threading
from pathlib import Path

import killed_ranks
import pytest
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from webtext.base.errors import ConfigError, MachineError
from webtext.train.resilience import rendezvous
from webtext.train.resilience.rendezvous import attempt_store, interface_towards, own_part


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


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.dist)])
def test_a_run_whose_ranks_are_killed_equals_an_undisturbed_one(
    kills: int, tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_ranks.main(tokens, tmp_path, kills)
    assert f"{kills} kills of {kills}: the run equals an undisturbed one" in capsys.readouterr().out
