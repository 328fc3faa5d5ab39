"""Operations per token, by worked numbers."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from webtext.train import GPT2
from webtext.train.model.flops import flops_per_token, recomputed_flops_per_token
from webtext.train.shape import GPT2Config


def test_the_flops_of_a_token_are_those_of_palm() -> None:
    """N = 50,257 x 768 + 12 (12 x 768^2 + 13 x 768) + 2 x 768 = 123,653,376; 6 N + 12 x 12 x 768 x 1,024."""
    assert flops_per_token(GPT2Config.named("117M")) == 6 * 123_653_376 + 113_246_208
    assert recomputed_flops_per_token(GPT2Config.named("117M"), "full") == 16 * 12 * 768**2 + 4 * 12 * 768 * 1024
    assert recomputed_flops_per_token(GPT2Config.named("117M"), "selective") == 0
    assert recomputed_flops_per_token(GPT2Config.named("117M", dropout=0.1), "selective") == 4 * 12 * 768 * 1024


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_recomputed_flops_are_those_that_torch_counts(dropout: float) -> None:
    """Torch counts the products. Its counter knows flash attention only on GPUs, so that is added without dropout."""
    config = GPT2Config(n_layer=3, n_head=2, n_embd=32, context=16, vocab_size=61, dropout=dropout)
    counted = {}
    for how in ("none", "selective", "full"):
        model = GPT2(config)
        model.activation_checkpointing = how
        with FlopCounterMode(display=False) as counter:
            model.loss(torch.randint(61, (2, 16)), torch.randint(61, (2, 16))).backward()
        counted[how] = counter.get_total_flops() / 32
    attention = 0 if dropout else 4 * 3 * 32 * 16
    assert counted["full"] - counted["none"] + attention == recomputed_flops_per_token(config, "full")
    assert counted["selective"] - counted["none"] == recomputed_flops_per_token(config, "selective")
