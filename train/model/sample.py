"""Text generation, token by token: several texts at once, each drawn from the likeliest tokens by its own generator."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from webtext.train.model.gpt2 import GPT2
from webtext.train.settings import SampleSettings


@torch.no_grad()
def sample_batch(
    model: GPT2,
    prompts: Sequence[Sequence[int]],
    settings: SampleSettings,
    *,
    stop_ids: Collection[int] = (),
    vocab_size: int | None = None,
    ended: set[int] | None = None,
) -> Iterator[list[int | None]]:
    """Yield, step by step, a token for each prompt: None for a text that has ended or whose prompt is still being read.

    Text i is drawn by the random numbers of `seed + i`, from float32: so it is the text that this seed produces alone, on
    any device that computes equal logits. Prompts must not be empty: all are read up to the length of the shortest, and
    then the longer ones supply their own tokens. Beyond the context the model sees the last `context` tokens. A text ends
    before any of `stop_ids`, or when the caller adds it to `ended`, which gets all. Ids from `vocab_size` on are never drawn.
    """
    lengths, n_drawn, device = [len(prompt) for prompt in prompts], settings.max_tokens, model.device
    tokens_bt = torch.zeros((len(prompts), max(lengths) + n_drawn), dtype=torch.int64)
    for row_t, prompt in zip(tokens_bt, prompts, strict=True):
        row_t[: len(prompt)] = torch.tensor(prompt)
    generators = [torch.Generator().manual_seed(settings.seed + i) for i in range(len(prompts))]
    # drawn on the CPU, so that they are the same on every device
    random = [torch.rand(n_drawn, dtype=torch.float64, generator=each) for each in generators]
    random_bt = torch.stack(random).to(device)
    tokens_bt, lengths_b = tokens_bt.to(device), torch.tensor(lengths, device=device)
    ended = set() if ended is None else ended
    length, cache = min(lengths), model.empty_cache(len(prompts))
    while len(ended) < len(prompts):
        if length <= model.config.context:
            logits_bv = model.next_logits(tokens_bt[:, cache[0].length : length], cache)
        else:  # positions move, so the window is read again
            logits_bv = model.next_logits(tokens_bt[:, length - model.config.context : length])
        at_b1 = (length - lengths_b).clamp(0, n_drawn - 1)[:, None]
        drawn_b = _draw(logits_bv[:, :vocab_size].float(), settings, random_bt.gather(1, at_b1)[:, 0])
        tokens_bt[:, length] = torch.where(lengths_b <= length, drawn_b, tokens_bt[:, length])
        step: list[int | None] = tokens_bt[:, length].tolist()  # the one time in a step that the device is waited for
        for i, token in enumerate(step):
            if length < lengths[i] or i in ended or token in stop_ids:
                step[i] = None
            if length >= lengths[i] and (step[i] is None or length + 1 == lengths[i] + n_drawn):
                ended.add(i)
        length += 1
        yield step


def growth(
    model: GPT2, tokenizer: Any, starts: Sequence[Sequence[int]], settings: SampleSettings, stops: Sequence[str] = ()
) -> Iterator[list[str]]:
    """Yield, step by step, the text generated after each of the token sequences `starts`, in complete characters.

    A text ends before an end-of-text, or before the first of `stops` that is complete.
    """
    texts = [(tokenizer.decode_stream(), _Text(stops)) for _ in starts]
    ended: set[int] = set()
    limits: dict[str, Any] = {"stop_ids": {tokenizer.eot_id}, "vocab_size": tokenizer.vocab_size, "ended": ended}
    for step in sample_batch(model, starts, settings, **limits):
        pairs = zip(texts, step, strict=True)
        pieces = ["" if token is None else text.add(decoder.push(token)) for (decoder, text), token in pairs]
        ended.update(i for i, (_, text) in enumerate(texts) if text.ended)
        yield pieces
    yield [text.add(decoder.finish(), is_last=True) for decoder, text in texts]


def stream_texts(
    model: GPT2, tokenizer: Any, prompts: Sequence[str], settings: SampleSettings, stops: Sequence[str] = ()
) -> Iterator[Sequence[str]]:
    """Yield the prompts, and then step by step the `growth` of each; an empty one begins a document."""
    yield prompts
    starts = [[tokenizer.eot_id, *tokenizer.encode(prompt)] for prompt in prompts]
    yield from growth(model, tokenizer, starts, settings, stops)


def sample_texts(
    model: GPT2, tokenizer: Any, prompts: Sequence[str], settings: SampleSettings, stops: Sequence[str] = ()
) -> list[str]:
    """Return each prompt with its continuation, all generated at once."""
    return list(map("".join, zip(*stream_texts(model, tokenizer, prompts, settings, stops), strict=True)))


class _Text:
    """A text that grows piece by piece, up to a stop; characters that may begin a stop are held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.ended, self._stops, self._held = False, stops, ""

    def add(self, piece: str, *, is_last: bool = False) -> str:
        """Add a piece and return the new text that can't be part of a stop."""
        if self.ended:
            return ""
        self._held += piece
        # The stop that is complete first, or the longest of several: this doesn't depend on the pieces of the text.
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        begun = (n for stop in self._stops for n in range(len(stop)) if self._held.endswith(stop[:n]))
        n = min(found)[1] if found else len(self._held) - (0 if is_last else max(begun, default=0))
        sure, self._held, self.ended = self._held[:n], self._held[n:], bool(found)
        return sure


def _draw(logits_bv: Tensor, settings: SampleSettings, random_b: Tensor) -> Tensor:
    """Return a token for each row, [b]: the first whose cumulative probability is above `random_b`, float64 in [0, 1)."""
    if settings.temperature == 0:
        return logits_bv.argmax(1)
    if settings.top_k is not None and settings.top_k < logits_bv.shape[1]:
        least_b1 = logits_bv.topk(settings.top_k).values[:, -1:]
        logits_bv = logits_bv.masked_fill(logits_bv < least_b1, -torch.inf)
    probability_bv = torch.softmax(logits_bv / settings.temperature, 1)
    if settings.top_p is not None:
        probability_bv = _nucleus(probability_bv, settings.top_p)
    # Divided by the sum, the last value is 1 exactly, so a number below 1 never finds a token of probability 0.
    up_to_bv = probability_bv.cumsum(1, dtype=torch.float64)
    return torch.searchsorted(up_to_bv / up_to_bv[:, -1:], random_b[:, None], right=True)[:, 0]


def _nucleus(probability_bv: Tensor, top_p: float) -> Tensor:
    """Keep each row's fewest likeliest tokens that have `top_p` together; zero the rest (Holtzman et al. 2020, 3.1)."""
    sorted_bv, order_bv = probability_bv.sort(descending=True, stable=True)
    before_bv = sorted_bv.cumsum(1) - sorted_bv
    return torch.zeros_like(probability_bv).scatter(1, order_bv, sorted_bv.masked_fill(before_bv >= top_p, 0.0))
