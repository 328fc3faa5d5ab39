"""A sampler as a torch dataset: the same batches read ahead, in loader processes, and after a restart."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest

from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.shards import Sampler, TokenShards
from webtext.shards.shardfile import ShardWriter

torch = pytest.importorskip("torch")
from webtext.train.data.batches import TokenBatches  # noqa: E402

HASH = "cd" * 32
NAME = "train-00000.tok"


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> TokenShards:
    folder = tmp_path_factory.mktemp("tokens")
    settings = {"vocab_size": 1000, "eot_id": 999, "tokenizer_hash": HASH}
    made = SetWriter(str(folder), "tokens", Recipe(stage="test", code_version=1, settings=settings))
    with made.part(0, key="0") as part:
        with ShardWriter(part.attach(NAME), vocab_size=1000, eot_id=999, tokenizer_hash=HASH) as shard:
            shard.append(np.arange(500, dtype=np.uint16))
        part.describe(NAME, shard.in_manifest())
        made.seal([part.publish()])
    return TokenShards(folder)


def sampler(shards: TokenShards, **options: Any) -> Sampler:
    return Sampler(shards, **({"context": 7, "batch_size": 3, "seed": 2} | options))


def taken(batches: Any, n: int) -> list[Any]:
    return [batch.tolist() for batch in itertools.islice(iter(batches), n)]


def expected(shards: TokenShards, n: int) -> list[Any]:
    return [batch.tolist() for batch in itertools.islice(sampler(shards), n)]


def test_batches_read_ahead_are_the_samplers_in_order(shards: TokenShards) -> None:
    batch = next(iter(TokenBatches(sampler(shards))))
    assert (batch.dtype, tuple(batch.shape)) == (torch.int64, (3, 8))
    assert taken(TokenBatches(sampler(shards), prefetch=5), 60) == expected(shards, 60)


def test_the_state_counts_what_was_taken_and_not_what_was_read_ahead(shards: TokenShards) -> None:
    batches = TokenBatches(sampler(shards), prefetch=4)
    first = iter(batches)
    for _ in range(5):
        next(first)
    state = batches.state_dict()
    assert state["samples_consumed"] == 15
    again = TokenBatches(sampler(shards))
    again.load_state_dict(state)
    assert taken(again, 4) == expected(shards, 9)[5:]
    with pytest.raises(InputError, match="another order of samples: seed 2"):
        TokenBatches(sampler(shards, seed=3)).load_state_dict(state)


def test_an_interrupted_iteration_can_resume_and_leaves_no_thread(shards: TokenShards) -> None:
    batches = TokenBatches(sampler(shards), prefetch=3)
    found = taken(batches, 4) + taken(batches, 4)
    assert found == expected(shards, 8)
    assert not [thread for thread in threading.enumerate() if thread.name == "webtext-batches"]


def test_loader_processes_keep_the_order(shards: TokenShards) -> None:
    loader = torch.utils.data.DataLoader(TokenBatches(sampler(shards)), batch_size=None, num_workers=2)
    assert taken(loader, 7) == expected(shards, 7)


def test_an_error_in_the_thread_is_raised_here(shards: TokenShards, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = TokenBatches(sampler(shards))
    monkeypatch.setattr(batches.sampler, "fill", lambda out: (_ for _ in ()).throw(InputError("gone", "look for it")))
    with pytest.raises(InputError, match="gone"):
        next(iter(batches))


def test_prefetch_below_one_is_rejected(shards: TokenShards) -> None:
    with pytest.raises(ConfigError, match="prefetch 0"):
        TokenBatches(sampler(shards), prefetch=0)
