"""Drawing tokens: determinism, greed, the limit to the likeliest, and where it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from webtext.train.model import GPT2, GPT2Config
from webtext.train.sample import sample_text, sample_tokens
from webtext.train.settings import SampleSettings

SETTINGS = SampleSettings(max_tokens=30)


@pytest.fixture(scope="module")
def model() -> GPT2:
    torch.manual_seed(7)
    model = GPT2(GPT2Config(n_layer=1, n_head=2, n_embd=16, context=8, vocab_size=40))
    with torch.no_grad():
        model.token_embedding.weight[:40] *= 20
    return model.eval()


def test_one_seed_gives_one_text_past_the_context_too(model: GPT2) -> None:
    first = list(sample_tokens(model, [1, 2], SETTINGS))
    assert len(first) == 30 > model.config.context
    assert list(sample_tokens(model, [1, 2], SETTINGS)) == first
    assert list(sample_tokens(model, [1, 2], replace(SETTINGS, seed=1))) != first
    assert all(0 <= token < 40 for token in first)


def test_temperature_zero_and_top_one_take_the_likeliest(model: GPT2) -> None:
    greedy = list(sample_tokens(model, [3], replace(SETTINGS, temperature=0.0, max_tokens=5)))
    assert list(sample_tokens(model, [3], replace(SETTINGS, top_k=1, max_tokens=5))) == greedy
    tokens = [3]
    for _ in range(5):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    assert tokens[1:] == greedy


def test_only_the_likeliest_k_are_drawn(model: GPT2) -> None:
    allowed = set(model(torch.tensor([[5]]))[0, -1].topk(3).indices.tolist())
    drawn = {
        next(sample_tokens(model, [5], replace(SETTINGS, top_k=3, seed=seed, temperature=100.0))) for seed in range(40)
    }
    assert drawn == allowed


def test_the_stop_token_ends_the_text_and_is_no_part_of_it(model: GPT2) -> None:
    tokens = list(sample_tokens(model, [1, 2], SETTINGS))
    stop = tokens[10]
    assert list(sample_tokens(model, [1, 2], SETTINGS, stop_id=stop)) == tokens[: tokens.index(stop)]


def test_a_text_is_the_prompt_and_its_continuation(model: GPT2) -> None:
    class Letters:
        eot_id = 39

        def encode(self, text: str) -> list[int]:
            return [ord(letter) - ord("a") for letter in text]

        def decode(self, ids: list[int]) -> str:
            return "".join(chr(ord("a") + i) for i in ids)

    text = sample_text(model, Letters(), "bc", SETTINGS)
    assert text.startswith("bc")
    assert text[2:] == Letters().decode(list(sample_tokens(model, [39, 1, 2], SETTINGS, stop_id=39)))
