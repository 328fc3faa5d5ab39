"""Operations per token, by worked numbers."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from webtext.train import GPT2
from webtext.train.shape import GPT2Config


def test_the_flops_of_a_token_are_those_of_palm() -> None:
    """N = 50,257 x 768 + 12 (12 x 768^2 + 13 x 768) + 2 x 768 = 123,653,376; 6 N + 12 x 12 x 768 x 1,024."""
    assert GPT2Config.named("117M").flops_per_token == 6 * 123_653_376 + 113_246_208


def test_checkpointing_repeats_all_products_of_a_block_but_the_last() -> None:
    """The last product of a block is a third of its 12 C^2 weights. Torch counts flash attention only on GPUs."""
    config, counted = GPT2Config(n_layer=3, n_head=2, n_embd=32, context=16, vocab_size=61), {}
    for how in (False, True):
        model = GPT2(config)
        model.activation_checkpointing = how
        with FlopCounterMode(display=False) as counter:
            model.loss(torch.randint(61, (2, 16)), torch.randint(61, (2, 16))).backward()
        counted[how] = counter.get_total_flops() / 32
    assert counted[True] - counted[False] == 2 * 8 * 3 * 32**2
