"""Each token file is hashed once per process, when it is first used; opening takes the same time for any size."""

from __future__ import annotations

import itertools
import os
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webtext.base.errors import InputError
from webtext.base.parts import partset
from webtext.shards import Sampler, TokenShards

from .conftest import flip, make_set

OPTIONS: dict[str, Any] = {"context": 16, "batch_size": 4, "seed": 1, "block_bytes": 2048, "group_blocks": 2}


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are hashed from now on."""
    names: list[str] = []
    file_sha256 = partset.file_sha256

    def hashing(file: Any) -> str:
        names.append(Path(file.name).name)
        return file_sha256(file)

    monkeypatch.setattr(partset, "file_sha256", hashing)
    return names


@pytest.mark.parametrize("crosses_documents", [True, False])
def test_each_file_is_hashed_once_in_many_epochs(tmp_path: Path, hashed: list[str], crosses_documents: bool) -> None:
    shards = TokenShards(make_set(tmp_path / "set", 3))
    assert hashed == []
    sampler = Sampler(shards, **OPTIONS, crosses_documents=crosses_documents)
    for _ in range(2 * sampler.n_windows // 4 + 9):
        next(sampler)
    again = Sampler(TokenShards(tmp_path / "set"), **OPTIONS)
    next(again)
    assert sorted(hashed) == shards.names


@pytest.mark.parametrize("group_blocks", [1, 2, None])
def test_samples_are_the_tokens_at_their_places(tmp_path: Path, group_blocks: int | None) -> None:
    """Also those that span two shards, or the end and the start of the ring."""
    shards = TokenShards(make_set(tmp_path / "set", 3))
    plain = np.concatenate(shards.streams())
    sampler = Sampler(shards, **OPTIONS | {"group_blocks": group_blocks})
    places = [sampler.streams[0].place(sample)[0] for sample in range(sampler.n_windows // 4 * 4)]
    for batch, at in zip(sampler, np.reshape(places, (-1, 4)), strict=False):
        assert np.array_equal(batch, [np.take(plain, range(each, each + 17), mode="wrap") for each in at])


def test_a_flipped_bit_is_found_before_its_window_is_given_and_the_state_is_that_of_the_batch_before(
    tmp_path: Path,
) -> None:
    """With one block in a group, the first batches need the altered file only if they have its windows."""
    options = OPTIONS | {"group_blocks": 1}
    folder = make_set(tmp_path / "set", 2)
    reference = Sampler(TokenShards(folder), **options)
    place = reference.streams[0].place(4 * 100)[0]  # of the first window of batch 100
    shard, at = reference.shards.place(place)
    location = reference.shards.file(shard).location
    flip(location, at + 1)
    sampler = Sampler(TokenShards(folder), **options)
    given: list[Any] = []
    with pytest.raises(InputError, match=rf"{Path(location).name}' was altered: SHA-256"):
        given.extend(itertools.islice(sampler, 101))
    state = sampler.state_dict()
    assert state["samples_consumed"] == 4 * len(given)
    flip(location, at + 1)
    again = Sampler(TokenShards(folder), **options)
    again.load_state_dict(state)
    rest = [next(again) for _ in range(101 - len(given))]
    assert all(np.array_equal(batch, next(reference)) for batch in [*given, *rest])


def test_opening_touches_as_many_files_whatever_the_number_of_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is opened, and the folder is listed; no shard is opened, and no shard's size is read."""
    sets = [make_set(tmp_path / str(n), n, documents=5) for n in (1, 6)]
    touched: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event in ("open", "os.listdir", "os.scandir", "mmap.__new__"):
            touched.append(f"{event} {Path(str(arguments[0])).name}")

    def stat(path: Any, *rest: Any, **options: Any) -> os.stat_result:
        touched.append(f"stat {Path(str(path)).name}")
        return stat_before(path, *rest, **options)

    watching, stat_before = False, os.stat
    sys.addaudithook(watch)
    for folder in sets:
        touched.clear()
        watching = True
        monkeypatch.setattr(os, "stat", stat)
        TokenShards(folder)
        monkeypatch.undo()
        watching = False
        assert touched == ["stat manifest.json", "open manifest.json", f"os.listdir {Path(folder).name}"]


def test_a_set_may_have_more_files_than_a_process_may_open_at_first(tmp_path: Path) -> None:
    folder, (soft, hard) = make_set(tmp_path / "set", 40, documents=5), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 30, hard))
    try:
        assert len(TokenShards(folder).streams()) == 40
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("sample", [0, 4 * 123])
def test_a_restart_hashes_the_files_of_one_group_whatever_the_size_of_the_set(
    tmp_path: Path, hashed: list[str], sample: int
) -> None:
    """A group of two blocks overlaps at most four files."""
    for n_shards in (3, 12):
        folder = make_set(tmp_path / str(n_shards), n_shards)
        sampler = Sampler(TokenShards(folder), **OPTIONS)
        hashed.clear()
        sampler.load_state_dict(sampler.state_dict() | {"samples_consumed": sample})
        next(sampler)
        assert 1 <= len(hashed) <= 4
