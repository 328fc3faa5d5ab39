"""What measuring and sampling need of a language model. GPT-2 has it, and so has Hugging Face's causal model.

Shape suffixes as in `gpt2.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol, Self

import torch
from torch import Tensor

Places = tuple[Tensor, Tensor]
"""Rows and positions of some tokens in `tokens_bt`, int64 [n] each, on any device."""


class LanguageModel(Protocol):
    """A causal model in evaluation mode, which computes in float32."""

    @property
    def context(self) -> int:
        """Largest number of tokens that it can attend to."""

    @property
    def vocab_size(self) -> int:
        """Number of logits. It may be padded: larger than the tokenizer's vocabulary."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Its number of parameters, of layers, and the width of its residual stream."""

    @property
    def device(self) -> torch.device:
        """The device of its parameters, on which it expects tokens."""

    @property
    def end_ids(self) -> Collection[int]:
        """Ids that end a generated text, besides the tokenizer's `eot_id`."""

    def log_likelihood(self, tokens_bt: Tensor, /, *, last: int) -> Tensor:
        """Return the natural log-probability of each of the last tokens, given all tokens before it: [b, last]."""

    def empty_cache(self, n_texts: int) -> Any:
        """Return a cache for that many texts, for `next_logits` of this model only."""

    def next_logits(self, tokens_bt: Tensor, cache: Any = None, places: Places | None = None) -> Tensor:
        """Return the logits of the token after each row, [b, vocab_size], or after the tokens at `places`, [n, vocab_size].

        With a cache, tokens follow those that were read into it before, and are added to it. The first ones may be
        one row [1, t], which all texts of the cache share.
        """

    def to(self, device: torch.device) -> Self:
        """Move the model, and return it."""
