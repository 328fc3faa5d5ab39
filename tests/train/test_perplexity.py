"""`train eval` of token sets: values per token and per byte, and what is rejected."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import small, train

from webtext.base.errors import InputError
from webtext.base.run import Run
from webtext.tokenizer.encode.stream import DecodeStream
from webtext.train import GPT2, GPT2Config
from webtext.train.data.windows import Windows
from webtext.train.evaluate.perplexity import (
    EvalSettings,
    SampleSettings,
    evaluate_model,
    evaluate_run,
    perplexity_text,
    total_loss,
)
from webtext.train.resilience.distributed import World

HERE = World(0, 1, torch.device("cpu"))
SETTINGS = small(
    n_layer=2, n_head=2, n_embd=32, context=32, batch_size=8, microbatch_size=8, steps=100, warmup_steps=5,
    learning_rate=1e-2, eval_windows=32,
)  # fmt: skip


class WordTokenizer:
    """Sixty words and an end-of-text, like the token sets of these tests; each word is two letters and a blank."""

    vocab_size, eot_id, hash = 61, 60, "a" * 64
    special_tokens = {"<|endoftext|>": 60}

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def encode_numpy(self, text: str) -> Any:
        return np.array(self.encode(text), np.uint16)

    def decode(self, ids: list[int], errors: str = "replace") -> str:
        return "".join(f"{i:02d} " for i in ids)

    def decode_bytes(self, ids: list[int]) -> bytes:
        return self.decode(ids).encode()

    def decode_stream(self) -> DecodeStream:
        return DecodeStream(self.decode_bytes)

    def save(self, path: Path) -> None:
        path.write_text("{}")


class Uniform:
    """A model that knows nothing: each of 61 tokens is as likely."""

    def log_likelihood(self, tokens_bt: torch.Tensor, /, *, last: int) -> torch.Tensor:
        assert 0 < last < tokens_bt.shape[1]
        return torch.full((tokens_bt.shape[0], last), -math.log(61))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tokens: str) -> str:
    folder = str(tmp_path_factory.mktemp("trained") / "model")
    train(tokens, folder, SETTINGS)
    return folder


def test_a_model_that_knows_nothing_has_the_vocabulary_as_perplexity() -> None:
    windows = Windows([np.arange(51), np.arange(8)], context=8, stride=3)
    loss, n_tokens = total_loss(Uniform(), windows, 4, HERE)
    assert n_tokens == 57
    assert math.exp(loss / n_tokens) == pytest.approx(61, rel=1e-6)


@pytest.mark.parametrize("stride", [None, 5])
def test_the_loss_is_that_of_the_logits_window_by_window(stride: int | None) -> None:
    torch.manual_seed(6)
    model = GPT2(GPT2Config(n_layer=1, n_head=1, n_embd=8, context=16, vocab_size=61)).eval()
    stream = np.random.default_rng(0).integers(0, 60, 45)
    windows = Windows([np.insert(stream, 0, 60)], context=16, stride=stride)
    expected = 0.0
    for i in range(len(windows)):
        tokens, n = windows.window(i)
        probabilities_tv = model(torch.from_numpy(tokens[None, :-1]))[0].log_softmax(-1).detach()
        expected -= sum(float(probabilities_tv[t, tokens[t + 1]]) for t in range(len(tokens) - 1 - n, len(tokens) - 1))
    loss, n_tokens = total_loss(model, windows, 3, HERE)
    assert n_tokens == 45
    assert loss == pytest.approx(expected, rel=1e-6)


def test_training_falls_below_the_unigram_and_seeing_more_changes_little_where_a_word_depends_on_the_last_alone(
    tokens: str, model: str
) -> None:
    answer = evaluate_model(model, tokens, EvalSettings(), Run.quiet(), tokenizer=WordTokenizer())
    assert answer["perplexity"] < answer["unigram_perplexity"] < answer["perplexity_before"]
    assert answer["bigram_perplexity"] < answer["unigram_perplexity"]
    first = json.loads((Path(model) / "metrics.jsonl").read_text().splitlines()[0])
    assert answer["perplexity_before"] == pytest.approx(first["perplexity"], rel=1e-6)
    assert answer["tokens"] == 2 * (6 * 81 - 1)  # the end-of-text that opens a shard is only context
    assert answer["bytes"] == 2 * 6 * 80 * 3
    bits = math.log2(answer["perplexity"]) * answer["tokens"] / answer["bytes"]
    assert answer["bits_per_byte"] == pytest.approx(bits)
    closer = evaluate_model(model, tokens, EvalSettings(stride=8, untrained=False, baselines=False), Run.quiet())
    assert closer["perplexity"] == pytest.approx(answer["perplexity"], rel=0.01)
    assert closer["perplexity"] != answer["perplexity"]
    assert not {"bits_per_byte", "perplexity_before", "bigram_perplexity"} & closer.keys()
    text = perplexity_text(answer)
    assert text.startswith("held-out perplexity per token, over 970 tokens: stride 32, context 32\n  model before")
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["model", "unigram", "interpolated", "model", "bits"]


def test_tokens_of_another_tokenizer_or_vocabulary_are_refused(
    model: str, make_token_set: Callable[..., str], tmp_path: Path
) -> None:
    other = make_token_set("other", tokenizer_hash="b" * 64)
    with pytest.raises(InputError, match="was trained with another tokenizer"):
        evaluate_model(model, other, EvalSettings(), Run.quiet())
    GPT2(GPT2Config(n_layer=1, n_head=1, n_embd=8, context=16, vocab_size=50)).to_huggingface(tmp_path / "small")
    with pytest.raises(InputError, match="has a vocabulary of 50, .* one of 61"):
        evaluate_model(str(tmp_path / "small"), other, EvalSettings(), Run.quiet())


def test_a_run_is_evaluated_once(tokens: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "webtext.tokenizer.Tokenizer", type("T", (), {"load": lambda _: WordTokenizer()}), raising=False
    )
    export = tmp_path / "export"
    answer = evaluate_run(model, tokens, "tokenizer.json", str(export), Run.quiet(), EvalSettings(), SampleSettings())
    written = json.loads((Path(model) / "evaluation.json").read_text())
    assert written == answer
    assert answer["sample"]
    assert sorted(path.name for path in export.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    monkeypatch.setattr("webtext.train.evaluate.perplexity.evaluate_model", None)
    assert (
        evaluate_run(model, tokens, "tokenizer.json", str(export), Run.quiet(), EvalSettings(), SampleSettings())
        == answer
    )


@pytest.mark.parametrize("path", ["export", "nothing"])
def test_a_folder_without_a_model_is_named(path: str, tmp_path: Path, tokens: str) -> None:
    with pytest.raises(InputError, match="contains no model"):
        evaluate_model(str(tmp_path / path), tokens, EvalSettings(), Run.quiet())
