"""Shards as sequences that are read when they are sliced: like arrays, with bounded memory and requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ShardCorrupt
from webtext.shards import TokenShards
from webtext.shards.reading import shard_tokens
from webtext.shards.reading.shard_tokens import ShardTokens, keeping_blocks

from .range_server import serving
from .test_checksums import CHECKED, flip, make_set


@given(st.slices(20), st.booleans())
def test_a_slice_equals_a_slice_of_an_array(place: slice, kept: bool) -> None:
    ring = np.arange(100, dtype=np.uint16)

    def plain(start: int, length: int) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
        return ring[start : start + length]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_tokens, "BLOCK_BYTES", 14)
        tokens = ShardTokens(keeping_blocks(plain, 100, 2) if kept else plain, 60, 20)
        assert tokens[place].tolist() == list(range(60, 80))[place]
        assert (len(tokens), tokens[0], tokens[-1]) == (20, 60, 79)
        with pytest.raises(IndexError):
            tokens[20]


def test_a_remote_shard_is_read_by_blocks_each_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shards of 20,000 tokens; blocks of 2,048 tokens, widened to the overlapping checksummed blocks of 256."""
    monkeypatch.setattr(shard_tokens, "BLOCK_BYTES", 4096)
    near = TokenShards(make_set(tmp_path / "set", 2))
    with serving(tmp_path / "set") as server:
        far = TokenShards(server.url)
        server.asked.clear()
        for _ in range(2):
            for ours, theirs in zip(near.streams(), far.streams()[:2], strict=True):
                assert len(ours) == len(theirs) == 20_000
        streams = far.streams()
        for i, stream in enumerate(streams):
            walked = [stream[at : at + 300] for at in range(0, 20_000, 300)]
            assert np.array_equal(np.concatenate(walked), near.tokens(i))
            assert stream[19_999] == near.tokens(i)[-1]
        tables = {0} | {header.checksums_offset for header in far.headers}
        asked = [(name, start, stop) for name, start, stop in server.asked if start not in tables]
        assert len(asked) == len(set(asked)) == 20 + 1  # 40,000 / 2,048 blocks; one spans two shards
        assert max(stop - start for _, start, stop in asked) <= 4096 + 2 * CHECKED


def test_only_the_blocks_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_tokens, "BLOCK_BYTES", 20)
    monkeypatch.setattr(shard_tokens, "KEPT_BLOCKS", 2)
    fetched: list[int] = []

    def read(start: int, length: int) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
        fetched.append(start)
        return np.arange(start, start + length, dtype=np.uint16)

    tokens = ShardTokens(keeping_blocks(read, 1000, 2), 0, 1000)
    for at in (5, 15, 6, 25, 5, 16):
        assert tokens[at] == at
    assert fetched == [0, 10, 20, 10]


def test_an_altered_block_is_found_when_it_is_sliced(tmp_path: Path) -> None:
    folder = make_set(tmp_path / "set", 1)
    flip(TokenShards(folder).file(0).location, 700)
    (stream,) = TokenShards(folder).streams()
    assert len(stream[:500]) == 500
    with pytest.raises(ShardCorrupt, match="checksum of block 2 "):
        stream[600:800]


@pytest.mark.slow
def test_training_and_evaluation_over_a_url_fetch_no_whole_shard_and_measure_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from webtext.base.run import Run
    from webtext.train import TrainSettings, train_model
    from webtext.train.evaluate.measured import load_measured
    from webtext.train.evaluate.perplexity import evaluate_model
    from webtext.train.settings import EvalSettings

    monkeypatch.setattr(shard_tokens, "BLOCK_BYTES", 4096)
    folder = make_set(tmp_path / "set", 2, splits=("train", "validation"))
    settings = TrainSettings.of(
        n_layer=1,
        n_head=1,
        n_embd=8,
        context=16,
        batch_size=2,
        steps=2,
        warmup_steps=1,
        eval_interval=1,
        eval_windows=5,
    )
    with serving(tmp_path / "set") as server:
        losses, answers = [], []
        for name, tokens in (("near", folder), ("far", server.url)):
            losses.append(train_model(tokens, str(tmp_path / name), settings, Run.quiet(1)).validation_loss)
            model = str(tmp_path / name)
            answers.append(evaluate_model(load_measured(model), tokens, EvalSettings(windows=40), Run.quiet(1)))
        of_validation = [stop - start for name, start, stop in server.asked if name.startswith("validation")]
        assert max(of_validation) <= 4096 + 2 * CHECKED
    assert losses[0] == losses[1]
    near, far = ({k: v for k, v in answer.items() if k not in ("model", "data")} for answer in answers)
    assert near == far
    assert "bigram_perplexity" in far
