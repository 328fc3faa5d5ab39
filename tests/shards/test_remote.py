"""Token sets at a URL, on real HTTP and S3 servers on loopback: the same samples, and each block is read once."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webtext.base.errors import InputError, NetworkError, ShardCorrupt
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.shards import Sampler, TokenShards
from webtext.shards.reading import remote
from webtext.shards.shardfile import ShardWriter
from webtext.shards.trace import trace

from .conftest import document, pack_here, write_corpus
from .range_server import RangeServer, serving

HASH = "ab" * 32
CHECKED = 512  # bytes of a checksummed block
BLOCK = 8192  # bytes of a block of windows
OPTIONS: dict[str, Any] = {"context": 16, "batch_size": 4, "seed": 1, "block_bytes": BLOCK, "group_blocks": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of 23,000, 7,000 and 11,000 tokens of two bytes, in documents of 100."""
    folder = tmp_path_factory.mktemp("set")
    made = SetWriter(
        str(folder),
        "tokens",
        Recipe(stage="test", code_version=1, settings={"vocab_size": 50_257, "eot_id": 50_256, "tokenizer_hash": HASH}),
    )
    parts, random = [], np.random.default_rng(0)
    for number, n in enumerate([230, 70, 110]):
        with made.part(number, key=str(number)) as part:
            name = f"train-{number:05d}.tok"
            path = part.attach(name)
            with ShardWriter(path, vocab_size=50_257, eot_id=50_256, tokenizer_hash=HASH, block_bytes=CHECKED) as shard:
                rows = [
                    {
                        "shard": name,
                        "start": shard.append(random.integers(0, 50_000, 99, np.uint16)),
                        "length": 100,
                        "id": f"{number}-{i}",
                        "source_part": "part-00000.parquet",
                        "row": i,
                    }
                    for i in range(n)
                ]
            part.describe(name, shard.in_manifest())
            part.write(rows)
            parts.append(part.publish())
    made.seal(parts)
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[RangeServer]:
    with serving(folder) as server:
        yield server


def test_the_samples_are_those_of_the_local_set(folder: Path, server: RangeServer) -> None:
    """41,000 tokens make 2,562 windows of 16, so 641 batches of 4 reach into the second epoch."""
    near, far = Sampler(TokenShards(folder), **OPTIONS), Sampler(TokenShards(server.url), **OPTIONS)
    for ours, theirs in itertools.islice(zip(near, far, strict=True), 700):
        assert np.array_equal(ours, theirs)


def test_an_epoch_asks_for_each_block_once_and_in_one_piece(server: RangeServer) -> None:
    """Blocks of 256 windows of 16 tokens have 8,192 bytes and a token; 2,562 windows make 11 blocks. A block that spans
    two shards takes two requests, and each is widened to the checksummed blocks that it overlaps, less those at its edges
    that are kept."""
    sampler = Sampler(TokenShards(server.url), **OPTIONS)
    order = sampler.streams[0].order(0)
    assert order.n_blocks == 11
    server.asked.clear()
    for _ in range(sampler.n_windows // 4):
        next(sampler)
    sampler.streams[0]._resident.close()
    pieces = [
        piece
        for group in range(order.n_groups)
        for extent in sampler.streams[0]._extents(0, group)
        for piece in sampler.shards.pieces(*extent)
    ]
    headers = sampler.shards.headers
    tables = {0} | {header.checksums_offset for header in headers}
    asked = [(name, start, stop) for name, start, stop in server.asked if start not in tables]
    ahead = 2 * 3  # pieces of the first group of the next epoch
    assert len(pieces) <= len(asked) <= len(pieces) + ahead
    checked = Counter(
        (name, at) for name, start, stop in asked for at in range((start - 256) // CHECKED, -((256 - stop) // CHECKED))
    )
    assert {
        (f"train-{shard:05d}.tok", at)
        for shard, header in enumerate(headers)
        for at in range(-(-2 * header.n_tokens // CHECKED))
    } <= set(checked)
    assert checked.total() <= len(checked) + len(pieces) + ahead  # two threads may both ask for the edge of two blocks


def test_a_second_epoch_asks_for_nothing(folder: Path, server: RangeServer) -> None:
    near, far = Sampler(TokenShards(folder), **OPTIONS), Sampler(TokenShards(server.url), **OPTIONS)
    for ours, theirs in itertools.islice(zip(near, far, strict=True), near.n_windows // 4 + 50):
        assert np.array_equal(ours, theirs)
    server.asked.clear()
    for ours, theirs in itertools.islice(zip(near, far, strict=True), near.n_windows // 4):
        assert np.array_equal(ours, theirs)
    assert server.asked == []


def test_a_cache_that_is_full_keeps_what_it_has(
    folder: Path, server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the 82,000 bytes of tokens fit, so later epochs ask for the other half; one group more is read ahead."""
    monkeypatch.setattr(remote, "CACHE_BYTES", 41_000)
    near, far = Sampler(TokenShards(folder), **OPTIONS), Sampler(TokenShards(server.url), **OPTIONS)
    for ours, theirs in itertools.islice(zip(near, far, strict=True), 4 * (near.n_windows // 4)):
        assert np.array_equal(ours, theirs)
    far.streams[0]._resident.close()
    assert 82_000 + 3 * 38_000 < sum(stop - start for _, start, stop in server.asked) < 82_000 + 3 * 50_000 + 30_000


def test_a_block_that_the_disk_took_only_in_part_is_asked_for_again(
    folder: Path, server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk writes what fits and raises nothing."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[: len(data) // 2], at))
    near, far = TokenShards(folder), TokenShards(server.url)
    for _ in range(2):
        assert np.array_equal(far.read(1000, 5000), near.read(1000, 5000))


def test_windows_inside_documents_and_single_documents_read_no_whole_shard(folder: Path, server: RangeServer) -> None:
    options = OPTIONS | {"crosses_documents": False}
    near, far = Sampler(TokenShards(folder), **options), Sampler(TokenShards(server.url), **options)
    for ours, theirs in itertools.islice(zip(near, far, strict=True), 80):
        assert np.array_equal(ours, theirs)
    assert np.array_equal(far.shards.document(300).tokens, near.shards.document(300).tokens)
    assert trace(far.shards, 1, 6950).id == "1-69"
    assert max(stop - start for _, start, stop in server.asked) < BLOCK + 3 * CHECKED


def test_a_block_altered_in_transit_is_rejected(server: RangeServer) -> None:
    shards = TokenShards(server.url)
    server.alter = lambda name, start, data: bytes([data[0] ^ 1]) + data[1:] if len(data) > 4 * CHECKED else data
    with pytest.raises(ShardCorrupt, match=r"train-0000\d\.tok': checksum of block \d+ \(bytes"):
        next(Sampler(shards, **OPTIONS))


def test_a_failing_server_is_an_error(server: RangeServer) -> None:
    shards = TokenShards(server.url)
    server.refusals = 10_000
    with pytest.raises(NetworkError, match=r"doesn't respond"):
        next(Sampler(shards, **OPTIONS | {"seed": 2}))


def test_whole_shards_documents_and_verification_work_as_on_a_disk(folder: Path, server: RangeServer) -> None:
    near, far = TokenShards(folder), TokenShards(server.url)
    far.verify()
    assert np.array_equal(near.tokens(1), far.tokens(1))
    assert far.document(250).id == near.document(250).id == "1-20"
    assert np.array_equal(far.read(40_990, 20), near.read(40_990, 20))
    server.alter = lambda name, start, data: data[:300] + b"!!" + data[302:] if name.endswith("2.tok") else data
    with pytest.raises(ShardCorrupt, match=r"train-00002\.tok': checksum of block 0"):
        TokenShards(server.url).verify()


def test_a_server_without_ranges_is_refused(server: RangeServer) -> None:
    server.serves_ranges = False
    with pytest.raises(InputError, match="its server doesn't support range requests"):
        TokenShards(server.url).read(0, 20)


def _first_batch(sampler: Sampler, answer: Any) -> None:
    answer.put(next(sampler).tolist())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_opens_its_own_connections(server: RangeServer) -> None:
    sampler = Sampler(TokenShards(server.url), **OPTIONS)
    next(sampler)
    state = sampler.state_dict()
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    process = context.Process(target=_first_batch, args=(sampler, answer))
    process.start()
    found = answer.get(timeout=300)
    process.join(timeout=300)
    again = Sampler(TokenShards(server.url), **OPTIONS)
    again.load_state_dict(state)
    assert found == next(again).tolist()


@pytest.mark.slow
def test_a_set_at_a_url_trains_to_the_same_loss(folder: Path, server: RangeServer, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from webtext.base.run import Run
    from webtext.train import train_model
    from webtext.train.settings import TrainSettings

    settings = TrainSettings.of(n_layer=1, n_head=1, n_embd=8, context=16, batch_size=2, steps=3, warmup_steps=1)
    losses = [
        train_model(tokens, str(tmp_path / name), settings, Run.quiet(1)).loss
        for name, tokens in (("near", str(folder)), ("far", server.url))
    ]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_a_set_in_an_object_store_gives_the_same_samples_and_may_be_packed_there(
    folder: Path, tmp_path: Path, byte_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3fs, moto = pytest.importorskip("s3fs"), pytest.importorskip("moto.server")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    store.start()
    try:
        host, port = store.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        files = s3fs.S3FileSystem(skip_instance_cache=True)
        files.mkdir("bucket")
        files.put(str(folder), "bucket/tokens", recursive=True)
        near, far = Sampler(TokenShards(folder), **OPTIONS), Sampler(TokenShards("s3://bucket/tokens"), **OPTIONS)
        for ours, theirs in itertools.islice(zip(near, far, strict=True), 50):
            assert np.array_equal(ours, theirs)
        far.streams[0]._resident.close()
        corpus = write_corpus(tmp_path / "corpus", [[document("a", "one"), document("b", "two", "validation")]])
        pack_here(corpus, "s3://bucket/packed")
        packed = TokenShards("s3://bucket/packed")
        packed.verify()
        assert bytes(packed.tokens(0)[1:].astype(np.uint8)) == b"one"
    finally:
        store.stop()
