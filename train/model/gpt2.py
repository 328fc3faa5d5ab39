"""GPT-2 as in the paper: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.

Layer normalisation comes before each sub-block and once more after the last block; the input and output embeddings are
one matrix; residual projections start smaller by 1/sqrt(N), N being the number of residual layers. Query, key and value
are separate linear layers: a fused one shards wrongly over devices (`huggingface.py` fuses and splits them).

Shape suffixes: b sequence of the batch, t position, c channel (n_embd), h head, d channel of one head,
n position of any sequence (b and t as one), v vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from webtext.base.errors import InputError
from webtext.train.model.attention import attention, document_blocks, uses_flex
from webtext.train.model.cross_entropy import linear_cross_entropy, token_losses
from webtext.train.model.huggingface import GPT2Folder, write_huggingface
from webtext.train.model.initialization import Values, drawn, initialize
from webtext.train.shape import GPT2Config

if TYPE_CHECKING:
    from webtext.train.model.attention import Mask


class Attention(nn.Module):
    """Causal self-attention over all heads."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.head_size = config.n_embd // config.n_head
        self.query = nn.Linear(config.n_embd, config.n_embd)
        self.key = nn.Linear(config.n_embd, config.n_embd)
        self.value = nn.Linear(config.n_embd, config.n_embd)
        self.projection = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x_btc: Tensor, cache: LayerCache | None = None, mask_b1tt: Mask | None = None) -> Tensor:
        q_bhtd, k_bhtd, v_bhtd = (
            layer(x_btc).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        if cache is not None:
            k_bhtd, v_bhtd = cache.append(k_bhtd, v_bhtd)
            assert x_btc.shape[1] in (1, cache.length), "only one token at a time follows cached ones"
        y_bhtd = attention(q_bhtd, k_bhtd, v_bhtd, mask_b1tt)
        return cast(Tensor, self.projection(y_bhtd.transpose(1, 2).flatten(2)))


class FeedForward(nn.Module):
    """Two linear layers, four times as wide in between, with GELU in the tanh form that GPT-2 was trained with."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.expand = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.contract = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x_btc: Tensor) -> Tensor:
        return cast(Tensor, self.contract(functional.gelu(self.expand(x_btc), approximate="tanh")))


class Block(nn.Module):
    """One layer: attention and feed-forward, each added to the residual stream."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.n_embd)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.n_embd)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x_btc: Tensor, cache: LayerCache | None = None, mask_b1tt: Mask | None = None, recomputes: bool = False
    ) -> Tensor:
        if not recomputes:
            return self._computed(x_btc, cache, mask_b1tt)
        # keeps only the block's input (Chen et al. 2016); a block draws no random numbers
        how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        return cast(Tensor, checkpoint(self._computed, x_btc, None, mask_b1tt, **how))

    def _computed(self, x_btc: Tensor, cache: LayerCache | None, mask_b1tt: Mask | None) -> Tensor:
        x_btc = x_btc + self.attention(self.attention_norm(x_btc), cache, mask_b1tt=mask_b1tt)
        return cast(Tensor, x_btc + self.feed_forward(self.feed_forward_norm(x_btc)))


class TokenEmbedding(nn.Embedding):
    """Token vectors. An id in the padding is an error, like any other id out of range."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config.padded_vocab_size, config.n_embd)
        self.vocab_size = config.vocab_size

    def forward(self, tokens_bt: Tensor) -> Tensor:
        # not a slice of the weight, whose backward pass would copy a gradient of all rows for each microbatch
        return functional.embedding(tokens_bt.where(tokens_bt < self.vocab_size, -1), self.weight)


class GPT2(nn.Module):
    """The language model: `model(tokens_bt)` returns next-token logits.

    Its parameters get `values`, by default those drawn from `seed` (`initialization.py`); inside `torch.device("meta")`
    they have none yet.
    """

    def __init__(self, config: GPT2Config, seed: int = 0, values: Values | None = None) -> None:
        super().__init__()
        self.config = config
        with torch.device("meta"):  # torch's layers would draw values, but not GPT-2's
            self.token_embedding = TokenEmbedding(config)
            self.position_embedding = nn.Embedding(config.context, config.n_embd)
            self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
            self.final_norm = nn.LayerNorm(config.n_embd)
        self.activation_checkpointing = False
        """Whether each block keeps only its input and is computed again in the backward pass."""
        self.is_compiled = False
        """Whether a training step runs through torch.compile (`compilation.py`)."""
        device = torch.get_default_device()
        if device.type != "meta":
            self.to_empty(device=device)
            initialize(self, values or drawn(config, seed))

    @property
    def device(self) -> torch.device:
        """The device of its parameters, on which it expects tokens."""
        return self.final_norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its parameters, in which it computes."""
        return self.final_norm.weight.dtype

    def hidden(
        self, tokens_bt: Tensor, caches: Sequence[LayerCache] | None = None, documents_bt: Tensor | None = None
    ) -> Tensor:
        """Return the last layer's output after the final norm, [b, t, c]; with caches, for tokens after those.

        With `documents_bt` (without caches) tokens attend only to earlier tokens with the same number.
        """
        x_btc = self.embed(tokens_bt, caches[0].length if caches else 0)
        mask_b1tt = self.attention_mask(documents_bt, x_btc.dtype)
        return cast(Tensor, self.final_norm(self.through_blocks(x_btc, caches, mask_b1tt)))

    def attention_mask(self, documents_bt: Tensor | None, dtype: torch.dtype) -> Mask | None:
        """Return the mask of `hidden` for all blocks: a matrix, or blocks in a compiled training step on a GPU."""
        if documents_bt is None:
            return None
        if self.is_compiled and torch.is_grad_enabled() and uses_flex(self.config, documents_bt.device):
            return torch.compile(document_blocks, dynamic=False)(documents_bt)
        return document_mask(documents_bt, dtype)

    def embed(self, tokens_bt: Tensor, start: int = 0) -> Tensor:
        """Return the input of the first block: token vectors plus position vectors from `start` on, [b, t, c]."""
        length = start + tokens_bt.shape[-1]
        if length > self.config.context:
            raise InputError(f"{length} tokens do not fit a context of {self.config.context}", "pass fewer tokens")
        positions_t = torch.arange(start, length, device=tokens_bt.device)
        return cast(Tensor, self.token_embedding(tokens_bt) + self.position_embedding(positions_t))

    def through_blocks(
        self, x_btc: Tensor, caches: Sequence[LayerCache] | None = None, mask_b1tt: Mask | None = None
    ) -> Tensor:
        """Return the output of the last block, [b, t, c]."""
        recomputes = self.activation_checkpointing and torch.is_grad_enabled()
        for i, block in enumerate(self.blocks.children()):
            cache = caches[i] if caches else None
            x_btc = block(x_btc, cache, mask_b1tt, recomputes)
        return x_btc

    def forward(self, tokens_bt: Tensor) -> Tensor:
        """Return the logits of the token after each position, [b, t, vocab_size]."""
        return self.logits(self.hidden(tokens_bt))

    def logits(self, hidden_btc: Tensor) -> Tensor:
        """Return logits of the token after each position of `hidden_btc` (or some of its rows), [..., vocab_size]."""
        return functional.linear(hidden_btc, self.token_embedding.weight)[..., : self.config.vocab_size]

    def empty_cache(self, n_texts: int) -> list[LayerCache]:
        """Return a cache for each layer: 2 x n_layer x n_texts x context x n_embd numbers in total."""
        return [LayerCache(self.config, n_texts, self.final_norm.weight) for _ in range(self.config.n_layer)]

    @torch.no_grad()
    def next_logits(self, tokens_bt: Tensor, cache: Sequence[LayerCache] | None = None) -> Tensor:
        """Return the logits of the token after each row, [b, vocab_size].

        With a cache, the tokens are added to it: any number of them first, and one at a time afterwards.
        """
        return self.logits(self.hidden(tokens_bt, cache)[:, -1])

    def loss(
        self,
        tokens_bt: Tensor,
        targets_bt: Tensor,
        documents_bt: Tensor | None = None,
        counted_bt: Tensor | None = None,
    ) -> Tensor:
        """Return the mean cross-entropy in nats; `documents_bt` is as in `hidden`.

        Where `counted_bt` is false, a target adds 0 to the sum, but is in the divisor, which so is the same for all
        microbatches; `Engine.forward_backward` corrects that for the sum over a step.
        """
        return self.mean_loss(self.hidden(tokens_bt, documents_bt=documents_bt), targets_bt, counted_bt)

    def mean_loss(self, hidden_btc: Tensor, targets_bt: Tensor, counted_bt: Tensor | None = None) -> Tensor:
        """Return the loss of hidden states, as in `loss`."""
        output = hidden_btc, self.token_embedding.weight, targets_bt, self.config.vocab_size
        return linear_cross_entropy(*output, counted_bt, compiled=self.is_compiled)

    @torch.no_grad()
    def log_likelihood(
        self, tokens_bt: Tensor, documents_bt: Tensor | None = None, *, last: int | None = None
    ) -> Tensor:
        """Return the natural log-probability of each token after the first, given those before it: [b, t - 1].

        `documents_bt` is as in `hidden`, for all tokens but the last. With `last`, only that many tokens are scored,
        [b, last]: a token's logits cost about a third of what the 124M's blocks cost.
        """
        start = 0 if last is None else tokens_bt.shape[1] - 1 - last
        hidden_btc = self.hidden(tokens_bt[:, :-1], documents_bt=documents_bt)[:, start:]
        return -token_losses(hidden_btc, self.token_embedding.weight, tokens_bt[:, start + 1 :], self.config.vocab_size)

    @classmethod
    def from_huggingface(cls, folder: str | os.PathLike[str]) -> GPT2:
        """Return the model of a Hugging Face GPT-2 folder (config.json and model.safetensors)."""
        weights = GPT2Folder(folder)
        return cls(weights.config, values=weights.values)

    to_huggingface = write_huggingface


def document_mask(documents_bt: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask: 0 where a query (last but one dimension) may see a key of its document up to itself, else -inf.

    It has the dtype of the scores: of a boolean mask, each layer's SDPA would make and keep a copy.
    """
    same_btt = documents_bt[:, :, None] == documents_bt[:, None, :]
    mask_btt = torch.zeros(same_btt.shape, dtype=dtype, device=documents_bt.device)
    return mask_btt.masked_fill_(~same_btt.tril(), -torch.inf)[:, None]


class LayerCache:
    """One layer's keys and values, [b, h, n, d], with room for a full context; the first `length` are filled."""

    def __init__(self, config: GPT2Config, n_texts: int, like: Tensor) -> None:
        """Allocate the cache with the dtype and device of `like`."""
        shape = (n_texts, config.n_head, config.context, config.n_embd // config.n_head)
        self._keys_bhnd = like.new_empty(shape)
        self._values_bhnd = like.new_empty(shape)
        self.length = 0

    def append(self, k_bhtd: Tensor, v_bhtd: Tensor) -> tuple[Tensor, Tensor]:
        """Add t positions and return the keys and values of all positions so far."""
        start, self.length = self.length, self.length + k_bhtd.shape[2]
        self._keys_bhnd[:, :, start : self.length] = k_bhtd
        self._values_bhnd[:, :, start : self.length] = v_bhtd
        return self._keys_bhnd[:, :, : self.length], self._values_bhnd[:, :, : self.length]
