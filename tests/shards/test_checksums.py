"""Each block is compared with its checksum once, when it is first read; opening takes the same time for any size."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webtext.base.errors import InputError, ShardCorrupt
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.shards import Sampler, TokenShards, checksums
from webtext.shards.format import shard_name
from webtext.shards.sampling import stream
from webtext.shards.shardfile import ShardFile, ShardWriter

from .range_server import serving
from .test_format import edit, write

CHECKED = 512  # bytes of a checksummed block: 256 tokens
FACTS: dict[str, Any] = {"vocab_size": 50_257, "eot_id": 50_256, "tokenizer_hash": "ab" * 32}
OPTIONS: dict[str, Any] = {"context": 16, "batch_size": 4, "seed": 1, "block_bytes": 2048, "group_blocks": 2}
Compared = Counter[tuple[str, int]]


def make_set(folder: Path, n_shards: int, documents: int = 200, splits: Sequence[str] = ("train",)) -> str:
    """Write shards with documents of 100 tokens, two bytes each."""
    tokens = SetWriter(str(folder), "tokens", Recipe(stage="test", code_version=1, settings=FACTS))
    parts, random = [], np.random.default_rng(0)
    for number in range(n_shards):
        with tokens.part(number, key=str(number)) as part:
            for split in splits:
                name = shard_name(split, number)
                with ShardWriter(part.attach(name), **FACTS, block_bytes=CHECKED) as shard:
                    for _ in range(documents):
                        shard.append(random.integers(0, 50_000, 99, np.uint16))
                part.describe(name, shard.in_manifest())
            parts.append(part.publish())
    tokens.seal(parts)
    return str(folder)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Compared:
    """Count how often each block of each file is compared from now on."""
    counts: Compared = Counter()
    compare = checksums.compare_block

    def counting(location: str, header: Any, block: int, *rest: Any) -> None:
        counts[Path(location).name, block] += 1
        compare(location, header, block, *rest)

    monkeypatch.setattr(checksums, "compare_block", counting)
    return counts


@pytest.fixture
def no_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make groups larger than the memory that they may fill."""
    monkeypatch.setattr(stream, "memory_bytes", lambda: 0)


def flip(location: str, token: int) -> None:
    at = 256 + 2 * token
    edit(Path(location), at, bytes([Path(location).read_bytes()[at] ^ 4]))


def end_reading(sampler: Sampler) -> None:
    """Stop reading ahead after the current block."""
    resident = sampler.streams[0]._resident
    resident.close()
    for thread in resident._threads:
        thread.join()


def test_a_block_is_compared_when_it_is_first_read_and_no_more(tmp_path: Path, compared: Compared) -> None:
    """Blocks of 64 bytes: tokens 0 to 31, 32 to 63, …"""
    file = ShardFile(write(tmp_path / "a.tok", [[1] * 100]))
    assert not compared
    for _ in range(2):
        assert file.read(30, 34).tolist() == [1] * 4
        assert compared == {("a.tok", 0): 1, ("a.tok", 1): 1}
    assert file.are_due(np.array([0, 63, 64]), np.array([64, 65, 65])).tolist() == [False, True, True]
    file.read(0, 96)
    assert file.checks.n_unchecked == 1  # the block with the last tokens and the document index
    file.checks.check(file.header.index_offset, file.header.checksums_offset)
    assert (file.checks.n_unchecked, set(compared.values())) == (0, {1})
    assert file.are_due(np.array([0]), np.array([101])).tolist() == [False]


def test_the_altered_block_is_named_with_what_to_do_and_read_once_it_is_mended(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tok", [[1] * 100])
    edit(path, 400, b"\x07")
    file = ShardFile(path)
    assert file.read(0, 64).tolist() == [256] + [1] * 63
    with pytest.raises(ShardCorrupt, match=r"a\.tok': checksum of block 2 \(bytes 384 to 447\)") as caught:
        file.read(60, 70)
    assert "restore the file from an intact copy" in caught.value.lines[2]
    edit(path, 400, b"\x01")
    assert ShardFile(path).read(60, 70).tolist() == [1] * 10


@pytest.mark.parametrize("crosses_documents", [True, False])
def test_each_block_is_compared_once_in_many_epochs(
    tmp_path: Path, compared: Compared, crosses_documents: bool
) -> None:
    shards = TokenShards(make_set(tmp_path / "set", 3))
    sampler = Sampler(shards, **OPTIONS, crosses_documents=crosses_documents)
    for _ in range(2 * sampler.n_windows // 4 + 9):
        next(sampler)
    end_reading(sampler)
    assert set(compared.values()) == {1}
    of_tokens = {(name, block) for name in shards.names for block in range(40_000 // CHECKED)}
    assert of_tokens <= compared.keys()


@pytest.mark.usefixtures("no_read_ahead")
def test_without_read_ahead_the_same_windows_come_and_each_block_is_compared_once(
    tmp_path: Path, compared: Compared
) -> None:
    shards = TokenShards(make_set(tmp_path / "set", 3))
    plain = np.concatenate([shards.tokens(i) for i in range(3)])
    sampler = Sampler(shards, **OPTIONS | {"group_blocks": None})
    first = [sampler.streams[0].place(sample)[0] for sample in range(4)]
    assert np.array_equal(next(sampler), [np.take(plain, range(at, at + 17), mode="wrap") for at in first])
    assert (
        len(compared) <= 8 + 6
    )  # four windows, each in at most two blocks; three windows in two shards were located before
    for _ in range(2 * sampler.n_windows // 4):
        next(sampler)
    assert set(compared.values()) == {1}


@pytest.mark.usefixtures("no_read_ahead")
def test_a_flipped_bit_is_found_before_its_window_is_given_and_the_state_is_that_of_the_batch_before(
    tmp_path: Path,
) -> None:
    folder = make_set(tmp_path / "set", 2)
    reference = Sampler(TokenShards(folder), **OPTIONS)
    place = reference.streams[0].place(4 * 100)[0]  # of the first window of batch 100
    shard, at = reference.shards.place(place)
    location = str(reference.shards.file(shard).location)
    flip(location, at + 1)
    sampler = Sampler(TokenShards(folder), **OPTIONS)
    given: list[Any] = []
    with pytest.raises(ShardCorrupt, match=rf"{Path(location).name}': checksum of block {2 * (at + 1) // CHECKED} "):
        given.extend(itertools.islice(sampler, 101))
    state = sampler.state_dict()
    assert state["samples_consumed"] == 4 * len(given)
    flip(location, at + 1)
    again = Sampler(TokenShards(folder), **OPTIONS)
    again.load_state_dict(state)
    rest = [next(again) for _ in range(101 - len(given))]
    assert all(np.array_equal(batch, next(reference)) for batch in [*given, *rest])


def test_single_reads_and_document_indexes_are_compared_too(tmp_path: Path) -> None:
    folder = make_set(tmp_path / "set", 1)
    shards = TokenShards(folder)
    index_offset = shards.headers[0].index_offset
    edit(Path(shards.file(0).location), index_offset + 8, b"\x07")
    with pytest.raises(ShardCorrupt, match="checksum of block"):
        TokenShards(folder).index(0)
    flip(shards.file(0).location, 300)
    with pytest.raises(ShardCorrupt, match="checksum of block 1 "):
        TokenShards(folder).read(290, 20)


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


def test_opening_takes_one_request_whatever_the_number_of_shards(tmp_path: Path) -> None:
    for n in (1, 6):
        make_set(tmp_path / str(n), n, documents=5)
        with serving(tmp_path / str(n)) as server:
            assert TokenShards(server.url).n_tokens == n * 500
            assert server.requests == ["GET manifest.json"]


def test_what_is_read_of_a_shard_is_requested_once_and_only_where_its_tokens_are(tmp_path: Path) -> None:
    make_set(tmp_path, 6, documents=5)
    with serving(tmp_path) as server:
        shards = TokenShards(server.url)
        for _ in range(2):
            shards.read(1000, 400)  # of the third shard
        header, at = shards.headers[2], ("train-00002.tok", 0, 256)
        table = ("train-00002.tok", header.checksums_offset, header.file_bytes)
        assert Counter(server.asked) == {at: 1, table: 1, ("train-00002.tok", 256, 256 + 2 * CHECKED): 1}


def test_a_shard_of_another_set_at_a_url_is_refused_when_it_is_read(tmp_path: Path) -> None:
    """Both sets have equally many random tokens, so sizes, counts and tokenizer are equal."""
    make_set(tmp_path, 2, documents=5)
    shutil.copy(tmp_path / "train-00001.tok", tmp_path / "train-00000.tok")
    with serving(tmp_path) as server:
        shards = TokenShards(server.url)
        shards.read(500, 10)
        for read in (lambda: shards.read(0, 10), lambda: shards.index(0), lambda: shards.file(0)):
            with pytest.raises(ShardCorrupt, match=r"train-00000\.tok': checksums_hash is"):
                read()
        os.truncate(tmp_path / "train-00000.tok", 300)
        with pytest.raises(ShardCorrupt, match=r"train-00000\.tok': file size is 300 bytes"):
            shards.read(0, 10)
        (tmp_path / "train-00000.tok").unlink()
        with pytest.raises(InputError, match=r"no file '.*train-00000\.tok'"):
            shards.read(0, 10)


@pytest.mark.parametrize("sample", [0, 4 * 123])
def test_a_restart_reads_the_blocks_of_two_groups_whatever_the_size_of_the_set(
    tmp_path: Path, compared: Compared, monkeypatch: pytest.MonkeyPatch, sample: int
) -> None:
    """Two groups of two blocks of 2,048 bytes, with a token at each end, overlap at most 4 · 6 checksummed blocks."""

    def no_hashing(*_: object) -> None:
        raise AssertionError("a whole file was hashed")

    sets = [make_set(tmp_path / "small", 1, documents=400), make_set(tmp_path / "large", 6, documents=400)]
    monkeypatch.setattr(PartSet, "_verify_file", no_hashing)
    most = []
    for folder in sets:
        compared.clear()
        sampler = Sampler(TokenShards(folder), **OPTIONS)
        sampler.load_state_dict(sampler.state_dict() | {"samples_consumed": sample})
        next(sampler)
        end_reading(sampler)
        most.append(compared.total())
    assert max(most) <= 24, most


def test_a_restart_on_a_remote_set_fetches_as_many_bytes_whatever_its_size(tmp_path: Path) -> None:
    """Headers and checksums are not counted: 256 bytes per file that is read, and 4 bytes per block of it."""
    fetched: list[int] = []
    for name, n_shards in (("small", 1), ("large", 6)):
        with serving(Path(make_set(tmp_path / name, n_shards, documents=400))) as server:
            shards = TokenShards(server.url)
            server.asked.clear()
            sampler = Sampler(shards, **OPTIONS)
            sampler.load_state_dict(sampler.state_dict() | {"samples_consumed": 500})
            next(sampler)
            end_reading(sampler)
            tables = {0} | {header.checksums_offset for header in shards.headers}
            fetched.append(sum(stop - start for _, start, stop in list(server.asked) if start not in tables))
    assert all(0 < n <= 24 * CHECKED for n in fetched)
