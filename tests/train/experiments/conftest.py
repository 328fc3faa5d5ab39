"""Settings of runs that take a second, and builds of generated texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import small, texts_of

from webtext.base.errors import RunFailed
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.shards import TokenShards
from webtext.shards.shardfile import ShardWriter
from webtext.tokenizer import Tokenizer
from webtext.train.experiments import trials
from webtext.train.experiments.trials import Trial
from webtext.train.metrics import steps_made
from webtext.train.settings import TrainSettings


@pytest.fixture
def settings() -> TrainSettings:
    """Twelve steps of two layers of 32."""
    return small(
        n_layer=2, n_head=2, n_embd=32, context=32, microbatch_size=4, steps=12, warmup_steps=2, learning_rate=1e-2,
        dtype="float32", device="cpu", eval_interval=None, eval_windows=4, checkpoint_interval=4,
    )  # fmt: skip


MakeBuild = Callable[..., str]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """300 tokens, learned from sentences."""
    return Tokenizer.train(texts_of(0, 50), 300)


@pytest.fixture(scope="session")
def make_build(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> MakeBuild:
    """make_build(name, train={id: text}, held_out={id: text}, tokenizer=…) makes tokens/ and tokenizer/ of a build."""

    def make(name: str, train: dict[str, str], held_out: dict[str, str], tokenizer: Tokenizer = tokenizer) -> str:
        folder = tmp_path_factory.mktemp("build") / name
        (folder / "tokenizer").mkdir(parents=True)
        tokenizer.save(folder / "tokenizer/tokenizer.json")
        facts = {"vocab_size": tokenizer.vocab_size, "eot_id": tokenizer.eot_id, "tokenizer_hash": tokenizer.hash}
        tokens = SetWriter(
            str(folder / "tokens"), "tokens", Recipe(stage="shards.pack", code_version=1, settings=facts)
        )
        with tokens.part(0, key=name) as part:
            for split, documents in (("train", train), ("validation", held_out)):
                shard_name = f"{split}-00000.tok"
                if not documents:
                    continue
                with ShardWriter(part.attach(shard_name), **facts) as shard:
                    for i, (identifier, text) in enumerate(documents.items()):
                        ids = tokenizer.encode_numpy(text)
                        row = {"shard": shard_name, "start": shard.append(ids), "length": len(ids) + 1, "row": i}
                        part.write([{**row, "id": identifier, "source_part": "part-00000.parquet"}])
                part.describe(shard_name, shard.in_manifest())
            part.counts.keep(len(train) + len(held_out))
            tokens.seal([part.publish()])
        return str(folder)

    return make


HELD_OUT = {f"held {i}": text for i, text in enumerate(texts_of(1, 8))}


@pytest.fixture(scope="session")
def sentences(make_build: MakeBuild) -> str:
    """A build of 80 training documents of sentences and 8 held-out ones."""
    return make_build("sentences", {f"{i}": text for i, text in enumerate(texts_of(2, 80))}, HELD_OUT)


@pytest.fixture(scope="session")
def letters(make_build: MakeBuild) -> str:
    """A build that trains on letters and holds out six documents of `sentences` and one of its own."""
    held_out = dict(list(HELD_OUT.items())[:6]) | {"mine": "a text of its own"}
    return make_build("letters", {f"x{i}": text for i, text in enumerate(texts_of(3, 80, noise=True))}, held_out)


@pytest.fixture
def remake(make_build: MakeBuild) -> Callable[[str, str, Tokenizer], str]:
    """remake(build, name, tokenizer) packs the same documents with another tokenizer."""

    def documents(build: str, split: str) -> dict[str, str]:
        before = Tokenizer.load(f"{build}/tokenizer/tokenizer.json")
        found = TokenShards(f"{build}/tokens", split).documents()
        return {each.id: before.decode_bytes(each.tokens[1:]).decode() for each in found}

    def make(build: str, name: str, tokenizer: Tokenizer) -> str:
        return make_build(name, documents(build, "train"), documents(build, "validation"), tokenizer=tokenizer)

    return make


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Trial, int | None]]:
    """Run trials in this process, which is quicker; the list has those that made steps, with the last, None if it failed."""
    found: list[tuple[Trial, int | None]] = []

    class Here:
        def __init__(self, trial: Trial, slot: Any) -> None:
            self.trial, self.slot, self.process = trial, slot, self

        def poll(self) -> int:
            return 0

        def check(self) -> None:
            before = steps_made(Path(self.trial.folder))
            try:
                self.trial.train()
            except RunFailed:
                found.append((self.trial, None))
                raise
            if (step := self.trial.settings.last_step) > before:
                found.append((self.trial, step))

    monkeypatch.setattr(trials, "Child", Here)
    monkeypatch.setattr(trials, "available_cores", lambda: 1)
    monkeypatch.setattr(trials, "POLL_SECONDS", 0.0)
    return found
