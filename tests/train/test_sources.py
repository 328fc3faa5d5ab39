"""Token sets mixed in one run, and a sampler as a torch dataset: what each supplies, in which order, and what is rejected."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import rows, small, talking, train

from webtext.app.main import run as webtext
from webtext.base.config import changed
from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.shards import Sampler, TokenShards
from webtext.shards.shardfile import ShardWriter
from webtext.tokenizer import Tokenizer
from webtext.train import train_model
from webtext.train.data.batches import TokenBatches
from webtext.train.data.sources import make_sampler, open_sources, source_uses

SETTINGS = small(batch_size=8, microbatch_size=4, steps=6, eval_interval=3, eval_windows=4, weights=(3.0, 1.0))


@pytest.fixture
def two(make_token_set: Callable[..., str]) -> list[str]:
    """Return a set of 9,720 training tokens and one of 3,240."""
    return [make_token_set("web"), make_token_set("books", train=20, validation=3)]


def test_a_mixture_trains_and_reports_the_held_out_loss_of_each_set_and_their_weighted_mean(
    two: list[str], tmp_path: Path
) -> None:
    result = train(two, tmp_path / "model", SETTINGS)
    measured = [row for row in rows(tmp_path / "model") if "validation_loss" in row]
    assert [row["step"] for row in measured] == [0, 3, 6]
    for row in measured:
        web, books = (row["validation_losses"][name] for name in two)
        assert web != books
        assert row["validation_loss"] == pytest.approx(0.75 * web + 0.25 * books)
    assert result.validation_loss == measured[-1]["validation_loss"]
    state = json.loads((Path(result.checkpoint) / "state.json").read_text())["sampler"]
    assert state["samples_consumed"] == 6 * 8  # what was taken, not read ahead
    assert state["order"]["weights"] == [3 << 18, 1 << 18]


def test_a_set_without_a_validation_split_counts_only_in_training(
    make_token_set: Callable[..., str], tmp_path: Path
) -> None:
    names = [make_token_set("web"), make_token_set("books", train=20, validation=0)]
    train(names, tmp_path / "model", replace(SETTINGS, steps=2))
    assert all("validation_losses" not in row for row in rows(tmp_path / "model"))


def test_each_set_supplies_its_share_and_the_passes_over_it_follow(two: list[str]) -> None:
    sources = open_sources(two)
    uses = source_uses(sources, SETTINGS)
    assert [(use.name, use.tokens, use.share) for use in uses] == [(two[0], 9720, 0.75), (two[1], 3240, 0.25)]
    assert [use.passes for use in uses] == pytest.approx([36 * 16 / 9720, 12 * 16 / 3240])
    sampler = make_sampler(sources, SETTINGS, batch_size=8)
    assert sampler.mixture.counts(np.array([48])).tolist() == [[36], [12]]
    by_size = source_uses(sources, changed(SETTINGS, weights=()))
    assert [use.share for use in by_size] == pytest.approx([0.75, 0.25], abs=0.01)


def test_short_windows_inside_documents_count_as_windows(two: list[str]) -> None:
    """Documents of 81 tokens are cut into windows of 32 targets: three of each, the last one short."""
    settings = changed(SETTINGS, context=32, documents="padded", weights=(), steps=45)
    (use,) = source_uses(open_sources(two[:1]), settings)
    assert use.passes == pytest.approx(1)


def test_other_weights_or_sets_than_the_checkpoints_are_rejected(two: list[str], tmp_path: Path) -> None:
    out = str(tmp_path / "model")
    train(two, out, SETTINGS)
    for change, message in (
        ({"weights": (1.0, 1.0)}, r"weights is \[1.0, 1.0\] here and \[3.0, 1.0\] in the checkpoint"),
        ({"documents": "padded"}, "documents is 'padded' here and 'joined' in the checkpoint"),
    ):
        with pytest.raises(InputError, match=message):
            train(two, out, changed(SETTINGS, **change))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="was trained on other tokens"):
        train(two[::-1], out, SETTINGS)


def test_an_impossible_mixture_is_rejected_before_anything_is_written(
    two: list[str], make_token_set: Callable[..., str], tmp_path: Path
) -> None:
    foreign = make_token_set("foreign", tokenizer_hash="b" * 64)
    for names, settings, kind, message in (
        ([two[0], foreign], SETTINGS, InputError, "foreign' was packed with another tokenizer than '.*web'"),
        (two[:1], SETTINGS, ConfigError, "token sets: 1, weights: 2"),
        ([two[0], two[0]], SETTINGS, ConfigError, "two are the same token set: "),
        ([], SETTINGS, ConfigError, "no token set is named"),
    ):
        with pytest.raises(kind, match=message):
            train(names, tmp_path / "model", settings)
    with pytest.raises(ConfigError, match=r"weights is \(1.0, 0.0\)"):
        changed(SETTINGS, weights=(1.0, 0.0))
    assert not (tmp_path / "model").exists()


def test_a_dry_run_prints_what_is_taken_from_each(
    two: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DryRun):
        train_model(two, str(tmp_path / "model"), SETTINGS, talking(dry_run=True))
    told = capsys.readouterr().err
    use = "0.06 passes over 9,720 tokens, held out: 972"
    assert f"768 tokens, 75.0% from '{two[0]}', {use}; 25.0% from '{two[1]}'" in told


def test_weights_come_from_the_command_line_or_from_the_config_file(
    two: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "train.toml"
    config.write_text("[train.data]\nweights = [1, 3]\n")
    for how, shares in (["--weights", "0.7,0.3"], [0.7, 0.3]), (["--config", str(config)], [0.25, 0.75]):
        assert webtext(["train", "plan", *two, *how, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert [source["share"] for source in answer["sources"]] == pytest.approx(shares, abs=1e-6)
    assert webtext(["train", "plan", *two, "--weights", "0.7;0.3"]) == 2
    assert "'0.7;0.3' is not a list of comma-separated numbers" in capsys.readouterr().err
    config.write_text("[train.data]\nweights = 1\n")
    assert webtext(["train", "plan", *two, "--config", str(config)]) == 2
    assert "[train.data] weights = 1: expected a list of numbers" in capsys.readouterr().err


def test_a_given_tokenizer_is_compared_even_without_sample_texts(tokens: str, tmp_path: Path) -> None:
    other = Tokenizer.train(["some text"], vocab_size=257, special_tokens=["<|endoftext|>"])
    other.save(tmp_path / "tokenizer.json")
    settings = changed(SETTINGS, weights=())
    with pytest.raises(InputError, match="was packed with tokenizer aaaaaaaaaaaa"):
        train(tokens, tmp_path / "m", settings, tokenizer=str(tmp_path / "tokenizer.json"))
    assert not (tmp_path / "m").exists()


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
    assert taken(TokenBatches(sampler(shards)), 60) == expected(shards, 60)


def test_the_state_counts_what_was_taken_and_not_what_was_read_ahead(shards: TokenShards) -> None:
    batches = TokenBatches(sampler(shards))
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
    batches = TokenBatches(sampler(shards))
    assert taken(batches, 4) + taken(batches, 4) == expected(shards, 8)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("webtext-batches")]


def test_an_error_in_the_thread_is_raised_here(shards: TokenShards, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = TokenBatches(sampler(shards))
    monkeypatch.setattr(batches.sampler, "fill", lambda out: (_ for _ in ()).throw(InputError("gone", "look for it")))
    with pytest.raises(InputError, match="gone"):
        next(iter(batches))
