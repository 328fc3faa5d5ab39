"""Generating tokens: determinism, greedy choice, top-k and top-p, many texts at once, and stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.sample import _draw, _nucleus, _Text, sample_batch, sample_texts, stream_texts
from webtext.train.settings import SampleSettings
from webtext.train.shape import GPT2Config

SETTINGS = SampleSettings(max_tokens=30)


@pytest.fixture(scope="module")
def model() -> GPT2:
    torch.manual_seed(7)
    model = GPT2(GPT2Config(n_layer=1, n_head=2, n_embd=16, context=8, vocab_size=40))
    with torch.no_grad():
        model.token_embedding.weight[:40] *= 20
    return model.eval()


def sample_tokens(model: GPT2, prompt: list[int], settings: SampleSettings, **how: Any) -> Iterator[int]:
    """The tokens of a text of its own."""
    return (token for (token,) in sample_batch(model, [prompt], settings, **how) if token is not None)


def test_one_seed_gives_one_text_also_beyond_the_context(model: GPT2) -> None:
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


def test_the_stop_token_ends_the_text_and_is_not_part_of_it(model: GPT2) -> None:
    tokens = list(sample_tokens(model, [1, 2], SETTINGS))
    stop = tokens[10]
    assert list(sample_tokens(model, [1, 2], SETTINGS, stop_ids={stop})) == tokens[: tokens.index(stop)]


def read_anew(model: GPT2, prompt: list[int], settings: SampleSettings) -> list[int]:
    """Return what `sample_tokens` draws, computing the full window for each token, without a cache."""
    generator = torch.Generator().manual_seed(settings.seed)
    tokens = list(prompt)
    for random in torch.rand(settings.max_tokens, dtype=torch.float64, generator=generator):
        with torch.no_grad():
            logits_1v = model(torch.tensor([tokens[-model.config.context :]]))[:, -1]
        tokens.append(int(_draw(logits_1v, settings, random[None])))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("prompt", [[7], [1, 2, 3, 4, 5], list(range(30))])
@pytest.mark.parametrize("shape", [(1, 1, 16), (3, 4, 32)])
def test_the_cache_changes_no_token(shape: tuple[int, int, int], prompt: list[int], temperature: float) -> None:
    """Tested before the context of 20 is full, at its last position and beyond it, and with a longer prompt."""
    n_layer, n_head, n_embd = shape
    torch.manual_seed(n_layer)
    model = GPT2(GPT2Config(n_layer=n_layer, n_head=n_head, n_embd=n_embd, context=20, vocab_size=50)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    settings = SampleSettings(max_tokens=28, temperature=temperature, seed=3)
    assert list(sample_tokens(model, prompt, settings)) == read_anew(model, prompt, settings)


def test_caches_give_the_logits_of_the_full_text(model: GPT2) -> None:
    tokens_bt = torch.randint(40, (3, 8))
    whole_btv = model(tokens_bt)
    caches = model.empty_cache(3)
    with torch.no_grad():
        assert torch.allclose(model.next_logits(tokens_bt[:, :5], caches), whole_btv[:, 4], atol=1e-5)
        for t in range(5, 8):
            assert torch.allclose(model.next_logits(tokens_bt[:, t : t + 1], caches), whole_btv[:, t], atol=1e-5)
        with pytest.raises(InputError, match="9 tokens do not fit a context of 8"):
            model.next_logits(tokens_bt[:, :1], caches)


def test_each_text_of_a_batch_is_the_text_that_its_seed_gives_alone(model: GPT2) -> None:
    """Prompts of different lengths, one longer than the context of 8; text i has the seed 5 + i."""
    prompts = [[1, 2, 3], [4], list(range(12)), [4]]
    settings = replace(SETTINGS, seed=5)
    alone = [list(sample_tokens(model, p, replace(settings, seed=5 + i))) for i, p in enumerate(prompts)]
    steps = list(sample_batch(model, prompts, settings))
    assert [[token for token in row if token is not None] for row in zip(*steps, strict=True)] == alone
    assert alone[1] != alone[3], "another seed"
    stop = alone[0][10]
    steps = list(sample_batch(model, prompts, settings, stop_ids={stop}))
    together = [[token for token in row if token is not None] for row in zip(*steps, strict=True)]
    assert together == [tokens[: tokens.index(stop)] if stop in tokens else tokens for tokens in alone]


@given(weights=st.lists(st.floats(0.001, 1), min_size=1, max_size=20, unique=True), top_p=st.floats(0.001, 1))
def test_a_nucleus_is_the_fewest_likeliest_tokens_that_have_top_p(weights: list[float], top_p: float) -> None:
    probability_v = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    kept_v = _nucleus(probability_v[None], top_p)[0]
    kept = kept_v > 0
    assert torch.equal(kept_v[kept], probability_v[kept])
    assert float(kept_v.sum()) >= top_p - 1e-9
    assert float(kept_v.sum() - kept_v[kept].min()) < top_p + 1e-9, "one less would not do"
    if not kept.all():
        assert kept_v[kept].min() >= probability_v[~kept].max()


def test_only_the_nucleus_is_drawn_after_temperature_and_top_k(model: GPT2) -> None:
    settings = replace(SETTINGS, temperature=2.0, top_k=10, top_p=0.5)
    logits_v = model(torch.tensor([[5]]))[0, -1].detach()
    best = logits_v.topk(10)
    probability = torch.softmax(best.values / 2.0, 0)
    n = int((probability.cumsum(0) < 0.5).sum()) + 1
    drawn = {next(sample_tokens(model, [5], replace(settings, seed=seed))) for seed in range(60)}
    assert drawn == set(best.indices[:n].tolist())


def test_a_number_between_0_and_1_draws_the_token_whose_share_it_falls_into() -> None:
    """Shares of 0, .25, 0, .75 and 0: also the largest number below 1 draws no token that has none."""
    logits_bv = torch.tensor([0, 0.25, 0, 0.75, 0]).log()
    random_b = torch.tensor([0.0, 0.2499999, 0.2500001, 0.9, 1 - 2**-53], dtype=torch.float64)
    drawn_b = _draw(logits_bv.expand(5, 5), replace(SETTINGS, top_k=None), random_b)
    assert drawn_b.tolist() == [1, 1, 3, 3, 3]


class Letters:
    """A tokenizer of letters, whose decoder delays every second one."""

    eot_id, vocab_size = 39, 40

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(ord("a") + i) for i in ids)

    def __init__(self) -> None:
        self.held: list[int] = []

    def decode_stream(self) -> Letters:
        return Letters()

    def push(self, token: int) -> str:
        self.held.append(token)
        return self.finish() if len(self.held) == 2 else ""

    def finish(self) -> str:
        text, self.held = self.decode(self.held), []
        return text


def test_a_text_is_the_prompt_and_its_continuation_also_when_streamed(model: GPT2) -> None:
    continuation = Letters().decode(list(sample_tokens(model, [39, 1, 2], SETTINGS, stop_ids={39})))
    assert sample_texts(model, Letters(), ["bc"], SETTINGS)[0] == "bc" + continuation
    pieces = [piece for (piece,) in stream_texts(model, Letters(), ["bc"], SETTINGS) if piece]
    assert pieces == ["bc", *(continuation[i : i + 2] for i in range(0, len(continuation), 2))]
    both = sample_texts(model, Letters(), ["bc", ""], SETTINGS)
    assert both == ["bc" + continuation, *sample_texts(model, Letters(), [""], replace(SETTINGS, seed=1))]


def until(text: str, stops: list[str]) -> str:
    """Return the text before the stop whose end comes first, by trying every end."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return text


@given(
    pieces=st.lists(st.text("ab\u0301", max_size=4), max_size=8),
    stops=st.lists(st.text("ab\u0301", min_size=1, max_size=4), max_size=3),
)
def test_a_text_ends_before_the_first_stop_whatever_pieces_it_comes_in(pieces: list[str], stops: list[str]) -> None:
    text, shown = _Text(stops), ""
    for piece in pieces:
        shown += text.add(piece)
        if text.ended:
            break
    assert shown + text.add("a", is_last=True) == until("".join([*pieces, "a"]), stops)


def test_stops_end_each_text_of_a_batch_and_the_stream_of_one(model: GPT2) -> None:
    """A text that has reached its stop is not continued, also if another has ended by itself."""
    prompts = ["bc", "", "f"]
    whole = sample_texts(model, Letters(), prompts, SETTINGS)
    stops = [whole[0][10:12], whole[2][-8:-5]]
    assert min(map(len, stops)) > 1
    expected = [prompt + until(text.removeprefix(prompt), stops) for prompt, text in zip(prompts, whole, strict=True)]
    assert expected != whole
    assert sample_texts(model, Letters(), prompts, SETTINGS, stops) == expected
    assert "".join(piece for (piece,) in stream_texts(model, Letters(), ["bc"], SETTINGS, stops)) == expected[0]
    steps = 0
    ended: set[int] = set()
    for step in sample_batch(model, [[1], [2]], SETTINGS, ended=ended):
        steps += 1
        assert (step[0] is None) == (steps > 3)
        ended.update({3: [0], 7: [1]}.get(steps, []))
    assert steps == 7 < SETTINGS.max_tokens
