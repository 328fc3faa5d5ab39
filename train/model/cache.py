"""Key-value cache of the tokens that a model has read, so that the next token costs one position instead of all."""

from __future__ import annotations

import torch
from torch import Tensor

from webtext.train.shape import GPT2Config


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


def empty_caches(config: GPT2Config, n_texts: int, like: Tensor) -> list[LayerCache]:
    """Return a cache for each layer: 2 x n_layer x n_texts x context x n_embd numbers in total."""
    with torch.no_grad():
        return [LayerCache(config, n_texts, like) for _ in range(config.n_layer)]
