"""Text from a model: one token after the other, drawn from the likeliest `top_k`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from webtext.train.model import GPT2
from webtext.train.settings import SampleSettings


@torch.no_grad()
def sample_tokens(
    model: GPT2, prompt: Sequence[int], settings: SampleSettings, *, stop_id: int | None = None
) -> Iterator[int]:
    """Tokens after `prompt`, which must not be empty; ends before `stop_id`.

    Each is drawn on the CPU from float32, so that one seed gives one text on any device that computes equal logits.
    """
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(settings.seed)
    tokens = list(prompt)
    for _ in range(settings.max_tokens):
        window_bt = torch.tensor([tokens[-model.config.context :]], device=device)
        logits_v = model(window_bt)[0, -1].float().cpu()
        token = int(_draw(logits_v, settings, generator))
        if token == stop_id:
            return
        tokens.append(token)
        yield token


def sample_text(model: GPT2, tokenizer: Any, prompt: str, settings: SampleSettings) -> str:
    """The prompt and its continuation; an empty prompt begins a document."""
    start = [tokenizer.eot_id, *tokenizer.encode(prompt)]
    tokens = sample_tokens(model.eval(), start, settings, stop_id=tokenizer.eot_id)
    return prompt + str(tokenizer.decode(list(tokens)))


def _draw(logits_v: torch.Tensor, settings: SampleSettings, generator: torch.Generator) -> torch.Tensor:
    if settings.temperature == 0:
        return logits_v.argmax()
    if settings.top_k is not None and settings.top_k < len(logits_v):
        logits_v[logits_v < logits_v.topk(settings.top_k).values[-1]] = -torch.inf
    return torch.multinomial(torch.softmax(logits_v / settings.temperature, 0), 1, generator=generator)[0]
