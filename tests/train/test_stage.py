"""A stage returns the next stage's input, or the loss."""

from __future__ import annotations

import torch

from webtext.train import GPT2, GPT2Config
from webtext.train.parallel.stage import Stage

CONFIG = GPT2Config(n_layer=2, n_head=2, n_embd=8, context=8, vocab_size=32)


def test_two_stages_return_the_complete_models_loss_and_no_view() -> None:
    tokens_bt = torch.randint(32, (2, 9), generator=torch.Generator().manual_seed(1))
    inputs_bt, targets_bt = tokens_bt[:, :-1], tokens_bt[:, 1:]
    model = GPT2(CONFIG)
    whole = Stage(model, range(2))(inputs_bt, targets_bt)
    first, last = Stage(model, range(1)), Stage(model, range(1, 2))
    counted_bt = torch.ones_like(targets_bt, dtype=torch.bool)
    loss = last(first(inputs_bt, targets_bt), targets_bt, None, counted_bt)
    torch.testing.assert_close(loss, whole)
    assert whole.shape == (1,)
    assert whole._base is None
    assert loss._base is None
