"""An object store for the tests of this folder, and its operations, spoiled by seed."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3fs
from object_store import BUCKET, ObjectStore, Spoil, object_store

TIMES = {"run.json", "metrics.jsonl", "state.json", "versions.json", "config.json"}


@pytest.fixture(scope="session")
def running() -> Iterator[ObjectStore]:
    with object_store() as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.retryhandler.delay_exponential", lambda *_, **__: 0.01)  # otherwise a second and more
        yield store


@pytest.fixture
def store(running: ObjectStore) -> ObjectStore:
    running.clear()
    return running


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """A folder of its own for each test."""
    return f"s3://{BUCKET}/" + re.sub("[^a-z0-9]", "-", request.node.name)


def spoiled(seed: int, share: float, kinds: tuple[str, ...] = ("500", "503", "lost", "cut", "reset", "slow")) -> Spoil:
    """Spoil about this share of all answers."""
    chance = random.Random(seed)
    return lambda operation, key: chance.choice(kinds) if chance.random() < share else ""


def files(url: str) -> dict[str, bytes]:
    """Every file of a build but those with times and places."""
    if "://" not in url:
        found = {str(path.relative_to(url)): path.read_bytes() for path in Path(url).rglob("*") if path.is_file()}
    else:
        system = s3fs.S3FileSystem(skip_instance_cache=True)
        prefix = url.removeprefix("s3://")
        found = {path.removeprefix(prefix + "/"): system.cat_file(path) for path in system.find(prefix)}
    return {name: data for name, data in found.items() if os.path.basename(name) not in TIMES}
