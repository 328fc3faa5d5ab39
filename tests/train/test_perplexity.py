"""`train eval` of token sets: windows, values per token and per byte, and what is rejected."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import small, train

from webtext.base.errors import InputError
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.encode.stream import DecodeStream
from webtext.train import GPT2, GPT2Config
from webtext.train.data.windows import Windows
from webtext.train.distributed import World
from webtext.train.evaluate.measured import load_measured
from webtext.train.evaluate.perplexity import (
    EvalSettings,
    SampleSettings,
    evaluate_model,
    evaluate_run,
    perplexity_text,
    total_loss,
)
from webtext.train.model.precision import compute_dtype
from webtext.train.model.sample import sample_texts

EOT = 99
TEXT = "The cat sat on the mat, and he said: it's here.\n\nThe dog sät on the 12 rugs.\n" * 12


def test_windows_by_hand() -> None:
    """Seven tokens after an end-of-text, context 4, stride 2: the window that ends at 6 is scored on 5 and 6 only."""
    windows = Windows([np.array([EOT, 1, 2, 3, 4, 5, 6, 7])], context=4, stride=2)
    shown = [(tokens.tolist(), n) for tokens, n in map(windows.window, range(len(windows)))]
    assert shown == [([EOT, 1, 2], 2), ([EOT, 1, 2, 3, 4], 2), ([2, 3, 4, 5, 6], 2), ([3, 4, 5, 6, 7], 1)]


def test_a_model_that_knows_nothing_has_the_vocabulary_as_perplexity() -> None:
    nats = -math.log(61)
    uniform: Any = SimpleNamespace(log_likelihood=lambda tokens, _, last: torch.full((len(tokens), last), nats))
    windows = Windows([np.arange(51), np.arange(8)], context=8, stride=3)
    loss, n_tokens = total_loss(uniform, windows, 4, HERE)
    assert (n_tokens, math.exp(loss / n_tokens)) == (57, pytest.approx(61, rel=1e-6))


@given(
    lengths=st.lists(st.integers(0, 40), max_size=4),
    context=st.integers(1, 12),
    stride=st.none() | st.integers(1, 15),
    world_size=st.integers(1, 3),
    batch_size=st.integers(1, 4),
)
def test_each_token_is_scored_once_over_all_processes(
    lengths: list[int], context: int, stride: int | None, world_size: int, batch_size: int
) -> None:
    ends = np.cumsum([0, *lengths])
    streams = [np.arange(start, start + n) for start, n in zip(ends[:-1], lengths, strict=True)]
    windows = Windows(streams, context=context, stride=stride)
    scored: list[int] = []
    for rank in range(world_size):
        for tokens_bt, n_scored in windows.batches(batch_size, rank, world_size):
            assert tokens_bt.shape[0] == len(n_scored) <= batch_size
            assert tokens_bt.shape[1] <= context + 1
            for row_t, n in zip(tokens_bt, n_scored, strict=True):
                scored += row_t[-n:].tolist()
                assert (np.diff(row_t) == 1).all()
    firsts = {int(stream[0]) for stream in streams if len(stream)}
    assert sorted(scored) == sorted(set(range(sum(lengths))) - firsts)


@pytest.mark.parametrize(
    ("limit", "expected"), [(1, [0]), (3, [0, 4, 9]), (10, list(range(10))), (50, list(range(10)))]
)
def test_a_limit_takes_windows_from_all_over(limit: int, expected: list[int]) -> None:
    windows = Windows([np.arange(21), np.arange(21)], context=4, stride=None, limit=limit)
    assert windows.numbers.tolist() == expected


HERE = World(0, 1, torch.device("cpu"))
SETTINGS = small(
    n_layer=2, n_head=2, n_embd=32, context=32, batch_size=8, microbatch_size=8, steps=100, warmup_steps=5,
    learning_rate=1e-2, eval_windows=32,
)  # fmt: skip


class WordTokenizer:
    """Sixty words and an end-of-text, like the token sets of these tests; each word is two letters and a blank."""

    vocab_size, eot_id, hash = 61, 60, "a" * 64
    special_tokens = {"<|endoftext|>": 60}
    token_sizes = np.full(61, 3)

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

    def save(self, path: str, model_max_length: int) -> None:
        Path(path, "tokenizer.json").write_text("{}")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tokens: str) -> str:
    folder = str(tmp_path_factory.mktemp("trained") / "model")
    train(tokens, folder, SETTINGS)
    return folder


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


def test_training_falls_below_chance_and_seeing_more_changes_little_where_a_word_depends_on_the_last_alone(
    tokens: str, model: str
) -> None:
    answer = evaluate_model(load_measured(model, WordTokenizer()), tokens, EvalSettings(), Run.quiet())
    assert answer["perplexity"] < 60  # sixty words, each of them as often
    last = json.loads((Path(model) / "metrics.jsonl").read_text().splitlines()[-1])
    assert answer["perplexity"] == pytest.approx(last["perplexity"], rel=1e-6)
    assert answer["tokens"] == 2 * (6 * 81 - 1)  # the end-of-text that opens a shard is only context
    assert answer["bytes"] == 2 * 6 * 80 * 3
    bits = math.log2(answer["perplexity"]) * answer["tokens"] / answer["bytes"]
    assert answer["bits_per_byte"] == pytest.approx(bits)
    closer = evaluate_model(load_measured(model), tokens, EvalSettings(stride=8), Run.quiet())
    assert closer["perplexity"] == pytest.approx(answer["perplexity"], rel=0.01)
    assert closer["perplexity"] != answer["perplexity"]
    assert "bits_per_byte" not in closer
    text = perplexity_text(answer)
    assert text.startswith("970 held-out tokens: stride 32, context 32, float32\n  perplexity per token")
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["perplexity", "bits"]


def test_a_model_is_measured_in_the_dtype_of_its_training_or_the_one_that_is_asked_for(
    tokens: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that multiplies bfloat16 faster; the measured model's own weights stay float32, for its export."""
    monkeypatch.setattr("webtext.train.evaluate.measured.compute_dtype", partial(as_if_fast, compute_dtype))
    measured = load_measured(model)
    assert measured.facts["dtype"] == "float32"
    cpu, how = torch.device("cpu"), EvalSettings()
    assert measured.on(cpu, "auto").dtype == torch.float32
    for facts in ({}, {"dtype": "bfloat16"}):
        assert replace(measured, facts=facts).on(cpu, "auto").dtype == torch.bfloat16
    exact = evaluate_model(measured, tokens, how, Run.quiet())
    rough = evaluate_model(measured, tokens, replace(how, dtype="bfloat16"), Run.quiet())
    assert (exact["dtype"], rough["dtype"]) == ("float32", "bfloat16")
    assert rough["perplexity"] == pytest.approx(exact["perplexity"], rel=0.01)
    assert rough["perplexity"] != exact["perplexity"]
    assert measured.model.dtype == torch.float32


def as_if_fast(rule: Callable[..., torch.dtype], setting: str, *where: Any) -> torch.dtype:
    return torch.bfloat16 if setting == "auto" else rule(setting, *where)


def test_tokens_of_another_vocabulary_are_refused(tokens: str, tmp_path: Path) -> None:
    GPT2(GPT2Config(n_layer=1, n_head=1, n_embd=8, context=16, vocab_size=50)).to_huggingface(tmp_path / "small")
    with pytest.raises(InputError, match="has a vocabulary of 50, .* one of 61"):
        evaluate_model(load_measured(str(tmp_path / "small")), tokens, EvalSettings(), Run.quiet())


def test_a_run_is_evaluated_once(tokens: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loading = type("T", (), {"load": lambda _: WordTokenizer()})
    monkeypatch.setattr("webtext.train.evaluate.measured.Tokenizer", loading)
    export = tmp_path / "export"
    given = (model, tokens, "tokenizer.json", str(export), Run.quiet(), EvalSettings(), SampleSettings())
    answer = evaluate_run(*given)
    written = json.loads((Path(model) / "evaluation.json").read_text())
    assert written == answer
    assert answer["sample"]
    names = ["README.md", "config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(path.name for path in export.iterdir()) == names
    monkeypatch.setattr("webtext.train.evaluate.perplexity.load_measured", None)  # the model isn't even loaded
    assert evaluate_run(*given) == answer


Pack = Callable[[Tokenizer, str], str]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT] * 3, vocab_size=300, special_tokens=["<|endoftext|>"])


@pytest.fixture
def packed(tmp_path: Path, token_set_of: Callable[..., str]) -> Pack:
    """packed(tokenizer, name) packs the text once for training and once held out."""

    def pack(tokenizer: Tokenizer, name: str) -> str:
        ids, facts = [tokenizer.encode_numpy(TEXT)], {"tokenizer_hash": tokenizer.hash}
        return token_set_of(tmp_path / name, ids, tokenizer.vocab_size, held_out=ids, **facts)

    return pack


def test_a_model_with_more_logits_than_ids_is_measured_and_never_samples_the_others(
    tokenizer: Tokenizer, tmp_path: Path, packed: Pack
) -> None:
    """Its likeliest tokens are in the padding, so far above the others that e to their loss is past any float."""
    model = GPT2(GPT2Config(n_layer=1, n_head=2, n_embd=16, context=64, vocab_size=384))
    with torch.no_grad():
        model.token_embedding.weight[tokenizer.vocab_size : 384] *= 1e6
    model.to_huggingface(tmp_path / "model", tokenizer)
    measured = load_measured(str(tmp_path / "model"))
    text = sample_texts(measured.model, tokenizer, ["The"], SampleSettings(max_tokens=20))[0]
    assert text.startswith("The")
    how = EvalSettings()
    assert evaluate_model(measured, packed(tokenizer, "own"), how, Run.quiet())["perplexity"] > tokenizer.vocab_size
    for path in (tmp_path / "model").glob("*token*"):
        path.unlink()
    with pytest.raises(InputError, match=f"has a vocabulary of 384, '.*' one of {tokenizer.vocab_size}"):
        load_measured(str(tmp_path / "model"), tokenizer)


def test_token_sets_need_the_tokenizer_of_the_model(tokenizer: Tokenizer, tmp_path: Path, packed: Pack) -> None:
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, context=64, vocab_size=tokenizer.vocab_size)
    GPT2(config).to_huggingface(tmp_path / "model", tokenizer)
    measured = load_measured(str(tmp_path / "model"))
    assert evaluate_model(measured, packed(tokenizer, "own"), EvalSettings(), Run.quiet())["bits_per_byte"] > 0
    other = Tokenizer.train([TEXT[::-1]], vocab_size=300, special_tokens=["<|endoftext|>"])
    with pytest.raises(InputError, match="was trained with another tokenizer than the one of '.*another'"):
        evaluate_model(measured, packed(other, "another"), EvalSettings(), Run.quiet())
    with pytest.raises(InputError, match="trained with another tokenizer"):
        load_measured(str(tmp_path / "model"), other)
