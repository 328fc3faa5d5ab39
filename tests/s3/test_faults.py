"""A folder in a store that answers late, cut, wrongly or not at all: calls are repeated, within bounds."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from object_store import BUCKET, ObjectStore

from webtext.base.errors import InputError, NetworkError
from webtext.base.object_store import READ_BYTES
from webtext.base.storage import Folder

from .conftest import spoiled

DATA = random.Random(1).randbytes(3_000)


@pytest.mark.parametrize("how", ["500", "503", "lost", "cut", "reset", "slow"])
def test_a_spoiled_answer_to_any_call_is_asked_for_again(how: str, store: ObjectStore, place: str) -> None:
    folder, seen = Folder(place), set()

    def once_each(operation: str, key: str) -> str:
        first = (operation, key) not in seen
        seen.add((operation, key))
        return how if first else ""

    store.spoil = once_each
    folder.write_bytes("a", DATA)
    with folder.scratch("b") as path:
        path.write_bytes(DATA)
    assert folder.read_bytes("a") == folder.read_bytes("b") == DATA
    assert folder.read_range("b", 10, 2_000) == DATA[10:2_000]
    assert folder.size("b") == 3_000
    assert list(folder.files()) == ["a", "b"]
    seen.clear()
    with folder.open("b") as file:
        file.seek(1_000)
        assert file.read() == DATA[1_000:]
        file.seek(-5, 2)
        assert file.read() == DATA[-5:]
    folder.remove("a")
    assert not folder.exists("a")
    assert folder.names() == ["b"]


def test_a_long_file_is_read_in_few_ranges(store: ObjectStore, place: str, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(2 * READ_BYTES + 7)
    Folder(place).write_bytes("long", data)
    store.clear()
    store.spoil = spoiled(3, 0.3, ("cut", "500"))
    with Folder(place).open("long") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == hashlib.sha256(data).hexdigest()
    store.spoil = lambda *_: ""
    store.requests.clear()
    with Folder(place).open("long") as file:
        while file.read(100_000):
            pass
    assert store.counts == {"HEAD": 1, "GET": 3}


@pytest.mark.parametrize("how", ["500", "503", "cut", "reset"])
def test_a_store_that_stays_away_is_an_error_after_a_bounded_number_of_requests(
    how: str, store: ObjectStore, place: str
) -> None:
    folder = Folder(place)
    folder.write_bytes("a", DATA)
    store.requests.clear()
    store.spoil = lambda operation, key: how
    with pytest.raises(NetworkError, match=rf"'{place}' doesn't respond"):
        folder.read_bytes("a")
    # botocore's attempts, s3fs's, and those of aiohttp if an open connection was closed
    assert 2 <= len(store.requests) <= 4 * 2 * 2 * 2


@pytest.mark.parametrize("how", ["403", "400"])
def test_a_refusal_is_not_asked_again(how: str, store: ObjectStore, place: str) -> None:
    store.spoil = lambda operation, key: how
    with pytest.raises(NetworkError, match="check the address, the credentials and the network"):
        Folder(place).read_bytes("a")
    assert len(store.requests) == 1


def test_missing_files_and_buckets_are_short_errors_and_not_asked_for_again(store: ObjectStore, place: str) -> None:
    with pytest.raises(InputError, match="no file"):
        Folder(place).read_bytes("a")
    assert len(store.requests) == 1
    with pytest.raises(InputError, match="no bucket for 's3://missing/set'"):
        Folder("s3://missing/set").write_bytes("a", b"a")


def test_one_listing_replaces_a_question_for_each_file(store: ObjectStore) -> None:
    folder = Folder(f"s3://{BUCKET}/many")
    for number in range(20):
        folder.write_bytes(f"{number:02d}", bytes(number))
    assert store.counts == {"PUT": 20}
    store.requests.clear()
    assert list(folder.files().values()) == list(range(20))
    assert store.counts == {"LIST": 1}
