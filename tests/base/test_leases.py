"""Leases on disk and in object stores: one writer at a time, named to the second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from webtext.base.errors import InputError, NetworkError
from webtext.base.storage import Folder
from webtext.base.stores import leases
from webtext.base.stores.leases import Found, lease, leased

URL = "s3://bucket/set"


class Store:
    """An object store in memory, with conditional writes and a clock of its own."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[str, float, bytes]] = {}
        self.now, self.puts, self.honours, self.loses_answers, self.reached = 0.0, 0, True, False, True

    def put_if(self, location: str, data: bytes, tag: str) -> str:
        if not self.reached:
            raise NetworkError("the store doesn't respond")
        there = self.objects.get(location)
        if self.honours and (there[0] if there else "") != tag:
            return ""
        self.puts += 1
        self.objects[location] = (f"tag {self.puts}", self.now, data)
        return "" if self.loses_answers else f"tag {self.puts}"

    def look(self, location: str) -> Found | None:
        tag, put, data = self.objects.get(location, ("", 0.0, b""))
        return Found(tag, self.now - put, data) if tag else None

    def names(self, location: str) -> list[str]:
        return [name.removeprefix(f"{location}/") for name in self.objects if name.startswith(f"{location}/")]

    def delete(self, location: str) -> None:
        self.objects.pop(location, None)


def elsewhere(store: Store, name: str) -> str:
    """Turn a lease of this process into one of another machine."""
    tag, put, data = store.objects[f"{URL}/_leases/{name}"]
    about = json.loads(data) | {"holder": "process 7 on far", "process": ["another boot", "pid:[1]", 7, 7], "id": "x"}
    store.objects[f"{URL}/_leases/{name}"] = (tag, put, json.dumps(about).encode())
    return tag


def left_behind(store: Store, name: str = "") -> None:
    with lease(store, URL, name):
        objects = dict(store.objects)
    store.objects = objects


def test_a_lease_in_a_store_names_its_holder_and_leaves_nothing_behind() -> None:
    store = Store()
    with lease(store, URL, ""):
        with pytest.raises(InputError) as caught, lease(store, URL, ""):
            pass
        assert caught.value.lines[0] == f"another run is writing '{URL}'"
        assert caught.value.lines[1].startswith(f"process {os.getpid()} on {os.uname().nodename} since ")
        assert leased(store, URL) == []
    assert store.objects == {}


def test_shares_exclude_their_like_and_the_folder_excludes_all() -> None:
    store = Store()
    with lease(store, URL, "1-of-2"), lease(store, URL, "2-of-2"):
        assert leased(store, URL) == ["1-of-2", "2-of-2"]
        with (
            pytest.raises(InputError, match=r"is writing 's3://bucket/set' \(2-of-2\)\nprocess"),
            lease(store, URL, "2-of-2"),
        ):
            pass
        with pytest.raises(InputError, match=r"is writing 's3://bucket/set' \(1-of-2\)"), lease(store, URL, ""):
            pass
        assert leased(store, URL) == ["1-of-2", "2-of-2"]
    with (
        lease(store, URL, ""),
        pytest.raises(InputError, match="is writing 's3://bucket/set'\n"),
        lease(store, URL, "1-of-2"),
    ):
        pass
    assert store.objects == {}


def test_a_lease_that_another_machine_stopped_renewing_is_taken_over_after_five_minutes() -> None:
    store = Store()
    left_behind(store)
    elsewhere(store, "folder")
    store.now = leases.EXPIRY_SECONDS - 1
    with pytest.raises(InputError, match="process 7 on far"), lease(store, URL, ""):
        pass
    store.now += 1
    assert leased(store, URL) == []
    with lease(store, URL, ""):
        pass
    assert store.objects == {}


def test_a_lease_of_a_process_that_ended_on_this_machine_is_taken_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with monkeypatch.context() as patch:
            patch.setattr(leases.os, "getpid", lambda: process.pid)
            left_behind(store)
        with pytest.raises(InputError, match=f"process {process.pid} on"), lease(store, URL, ""):
            pass
    with lease(store, URL, ""):
        pass


def test_a_lease_is_renewed_while_it_is_held_and_survives_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.001)
    store = Store()
    with lease(store, URL, ""):
        store.reached = False
        time.sleep(0.01)
        store.reached, first = True, store.puts
        while store.puts < first + 3:
            time.sleep(0.001)
    assert store.objects == {}


def test_a_lost_lease_is_an_error_at_the_end_and_is_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.001)
    store = Store()
    with pytest.raises(InputError, match="the lease of 's3://bucket/set' was lost"), lease(store, URL, ""):  # noqa: PT012
        store.objects[f"{URL}/_leases/folder"] = ("another", 0.0, b"{}")
        time.sleep(0.1)
    assert store.objects[f"{URL}/_leases/folder"][0] == "another"


def test_a_put_whose_answer_was_lost_is_recognised() -> None:
    store = Store()
    store.loses_answers = True
    with lease(store, URL, ""):
        pass
    assert store.objects == {}


def test_a_store_that_ignores_conditions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_CONDITIONAL", set())
    store = Store()
    store.honours = False
    with pytest.raises(InputError, match="ignores conditional writes"), lease(store, URL, ""):
        pass
    assert store.objects == {}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"holder": 1, "process": 3}', b'{"holder": "x", "process": [[], {}]}']
)
def test_a_damaged_lease_excludes_until_it_expires(data: bytes) -> None:
    store = Store()
    store.objects[f"{URL}/_leases/folder"] = ("t", 0.0, data)
    with pytest.raises(InputError, match="is writing"), lease(store, URL, ""):
        pass
    store.now = leases.EXPIRY_SECONDS
    with lease(store, URL, ""):
        pass


def test_shares_on_disk_exclude_their_like_and_the_folder_excludes_all(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with folder.held("1-of-2"), folder.held("2-of-2"):
        assert folder.held_shares() == ["1-of-2", "2-of-2"]
        with pytest.raises(InputError, match=r"' \(2-of-2\)\nprocess \d+ on"), folder.held("2-of-2"):
            pass
        with pytest.raises(InputError, match=r"'\nprocess \d+ on"), folder.held():
            pass
    assert list(tmp_path.iterdir()) == []
    with folder.held(), pytest.raises(InputError, match=r"another run is writing '[^ ]+'\n"), folder.held("1-of-2"):
        pass


def test_the_share_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    hold = (
        "import sys\nfrom webtext.base.storage import Folder\nwith Folder(sys.argv[1]).held('1-of-2'): print(); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert Folder(tmp_path).held_shares() == ["1-of-2"]
        holder.kill()
    assert os.listdir(tmp_path / "_leases") == ["1-of-2"]
    assert Folder(tmp_path).held_shares() == []
    with Folder(tmp_path).held("1-of-2"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_in_the_body_of_a_share_is_its_own_error(tmp_path: Path) -> None:
    """It isn't taken for the lock's file, which another share may remove."""
    with pytest.raises(FileNotFoundError, match="no-such"), Folder(tmp_path).held("1-of-2"):
        (tmp_path / "no-such").read_bytes()
    assert Folder(tmp_path).held_shares() == []
