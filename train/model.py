"""GPT-2 as in the paper: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.

Layer normalisation comes before each sub-block and once more after the last block; the input and output embeddings are
one matrix; residual projections start smaller by 1/sqrt(N), N being the number of residual layers. Query, key and value
are separate linear layers: a fused one shards wrongly over devices (`huggingface.py` fuses and splits them).
The model knows nothing of devices, processes or data.

Shape suffixes: b sequence of the batch, t position, c channel (n_embd), h head, d channel of one head,
n position of any sequence (b and t as one), v vocabulary.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from webtext.base.errors import ConfigError, InputError, did_you_mean
from webtext.train.cross_entropy import linear_cross_entropy, token_losses

EMBEDDING_STD = 0.02  # weights N(0, 0.02): GPT-2's published code (openai/gpt-2 src/model.py), as in GPT-1
POSITION_STD = 0.01  # the same code starts the positions at half of it
VOCAB_MULTIPLE = 128  # rows of the embedding matrix: whole tiles for matrix units

# Table 2 of the paper, by its own names, and by the names that went round later (true parameter counts).
_SHAPES = {
    "117M": (12, 12, 768),
    "345M": (24, 16, 1024),
    "762M": (36, 20, 1280),
    "1542M": (48, 25, 1600),
}
_ALIASES = {"124M": "117M", "355M": "345M", "774M": "762M", "1558M": "1542M"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GPT2Config:
    """The shape of a model. `dropout` was 0.1 in GPT-1; with less than one pass over the data it only costs, so 0."""

    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    context: int = 1024
    vocab_size: int = 50257
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("n_layer", "n_head", "n_embd", "context", "vocab_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        if self.n_embd % self.n_head:
            raise ConfigError(
                f"n_embd {self.n_embd} is no multiple of n_head {self.n_head}", "each head takes an equal share"
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout is {self.dropout}", "it must lie in [0, 1)")

    @classmethod
    def named(cls, name: str, **changes: Any) -> GPT2Config:
        """One of the paper's four sizes, 117M (also 124M), 345M (355M), 762M (774M) or 1542M (1558M), with `changes`.

        >>> GPT2Config.named("124M").n_parameters
        124439808
        """
        shape = _SHAPES.get(_ALIASES.get(name, name))
        if shape is None:
            raise ConfigError(f"unknown model size '{name}'", did_you_mean(name, [*_SHAPES, *_ALIASES]))
        n_layer, n_head, n_embd = shape
        return cls(**{"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, **changes})

    @property
    def n_parameters(self) -> int:
        """Number of parameters, the shared embedding counted once and without its padding."""
        block = 12 * self.n_embd**2 + 13 * self.n_embd
        return (self.vocab_size + self.context) * self.n_embd + self.n_layer * block + 2 * self.n_embd

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding matrix; the rows above `vocab_size` are zero and stay so."""
        return math.ceil(self.vocab_size / VOCAB_MULTIPLE) * VOCAB_MULTIPLE


class Attention(nn.Module):
    """Causal self-attention over all heads."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.head_size = config.n_embd // config.n_head
        self.dropout = config.dropout
        self.query = nn.Linear(config.n_embd, config.n_embd)
        self.key = nn.Linear(config.n_embd, config.n_embd)
        self.value = nn.Linear(config.n_embd, config.n_embd)
        self.projection = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x_btc: Tensor) -> Tensor:
        q_bhtd, k_bhtd, v_bhtd = (
            layer(x_btc).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        y_bhtd = functional.scaled_dot_product_attention(
            q_bhtd, k_bhtd, v_bhtd, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        return cast(Tensor, self.projection(y_bhtd.transpose(1, 2).flatten(2)))


class FeedForward(nn.Module):
    """Two linear layers, four times as wide between them, with GELU in the tanh form that GPT-2 was trained with."""

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
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_btc: Tensor) -> Tensor:
        x_btc = x_btc + self.dropout(self.attention(self.attention_norm(x_btc)))
        return cast(Tensor, x_btc + self.dropout(self.feed_forward(self.feed_forward_norm(x_btc))))


class GPT2(nn.Module):
    """The language model: `model(tokens_bt)` gives next-token logits."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.padded_vocab_size, config.n_embd)
        self.position_embedding = nn.Embedding(config.context, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.final_norm = nn.LayerNorm(config.n_embd)
        self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Draw all parameters anew from torch's global generator."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                is_residual = name.endswith((".projection", ".contract"))
                scale = 1 / math.sqrt(2 * self.config.n_layer) if is_residual else 1.0
                nn.init.normal_(module.weight, std=EMBEDDING_STD * scale)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.token_embedding.weight, std=EMBEDDING_STD)
        self.token_embedding.weight[self.config.vocab_size :] = 0
        nn.init.normal_(self.position_embedding.weight, std=POSITION_STD)

    def hidden(self, tokens_bt: Tensor) -> Tensor:
        """The last layer's output after the final norm, [b, t, c]."""
        length = tokens_bt.shape[-1]
        if length > self.config.context:
            raise InputError(f"{length} tokens do not fit a context of {self.config.context}", "pass fewer tokens")
        # The slice makes an id in the padding an error, as any other id out of range.
        vectors_btc = functional.embedding(tokens_bt, self.token_embedding.weight[: self.config.vocab_size])
        x_btc = self.dropout(vectors_btc + self.position_embedding.weight[:length])
        for block in self.blocks:
            x_btc = block(x_btc)
        return cast(Tensor, self.final_norm(x_btc))

    def forward(self, tokens_bt: Tensor) -> Tensor:
        """Logits of the token after each position, [b, t, vocab_size]."""
        logits_btv = functional.linear(self.hidden(tokens_bt), self.token_embedding.weight)
        return logits_btv[..., : self.config.vocab_size]

    def loss(self, tokens_bt: Tensor, targets_bt: Tensor) -> Tensor:
        """Mean cross-entropy in nats; the logits exist only a chunk at a time, the gradient comes with them."""
        hidden_nc = self.hidden(tokens_bt).flatten(0, 1)
        return linear_cross_entropy(
            hidden_nc, self.token_embedding.weight, targets_bt.flatten(), self.config.vocab_size
        )

    @torch.no_grad()
    def log_likelihood(self, tokens_bt: Tensor) -> Tensor:
        """Natural log-probability of each token after the first, given those before it: [b, t - 1]."""
        hidden_nc = self.hidden(tokens_bt[:, :-1]).flatten(0, 1)
        targets_n = tokens_bt[:, 1:].flatten()
        losses_n = token_losses(hidden_nc, self.token_embedding.weight, targets_n, self.config.vocab_size)
        return -losses_n.view(tokens_bt.shape[0], -1)

    @classmethod
    def from_huggingface(cls, folder: str | os.PathLike[str]) -> GPT2:
        """The model of a Hugging Face GPT-2 folder (config.json and model.safetensors)."""
        from webtext.train.huggingface import read_huggingface

        return read_huggingface(folder)

    def to_huggingface(self, folder: str | os.PathLike[str], tokenizer: Any = None) -> None:
        """Write a folder that transformers' GPT2LMHeadModel loads, with equal logits; with tokenizer.json if given."""
        from webtext.train.huggingface import write_huggingface

        write_huggingface(self, folder, tokenizer)
