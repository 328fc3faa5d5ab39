"""An object store for the tests of this folder, and its operations, spoiled by seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from object_store import BUCKET, ObjectStore, Spoil, object_store

from webtext.base import storage


@pytest.fixture(scope="session")
def running() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(running: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.setattr(storage, "PAUSES_SECONDS", (0.01, 0.02, 0.04))
    running.clear()
    return running


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """A folder of its own for each test."""
    return f"s3://{BUCKET}/{request.node.name}"


def spoiled(seed: int, share: float, kinds: tuple[str, ...] = ("500", "503", "lost", "cut", "reset", "slow")) -> Spoil:
    """Spoil about this share of all answers."""
    chance = random.Random(seed)
    return lambda operation, key: chance.choice(kinds) if chance.random() < share else ""
