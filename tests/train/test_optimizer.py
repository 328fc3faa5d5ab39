"""Which parameters decay, and that the optimizer's state survives a checkpoint."""

from __future__ import annotations

import torch

from webtext.train.model import GPT2
from webtext.train.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config

TINY = GPT2Config(n_layer=1, n_head=1, n_embd=8, context=8, vocab_size=20)


def updated(model: GPT2, optimizer: torch.optim.Optimizer, seed: int) -> None:
    tokens = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(seed))
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()


def test_weights_decay_and_biases_and_gains_do_not() -> None:
    """One layer: 6 matrices and 2 embeddings; 6 biases and 3 norms of 2."""
    model = GPT2(TINY)
    decayed, spared = make_optimizer(model, TrainSettings(weight_decay=0.3)).param_groups
    assert (decayed["weight_decay"], len(decayed["params"])) == (0.3, 8)
    assert (spared["weight_decay"], len(spared["params"])) == (0.0, 12)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all("bias" in names[id(p)] or "norm" in names[id(p)] for p in spared["params"])


def test_a_restored_optimizer_makes_the_same_update() -> None:
    torch.manual_seed(5)
    model = GPT2(TINY)
    optimizer = make_optimizer(model, TrainSettings())
    updated(model, optimizer, 1)
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    twin = GPT2(TINY)
    twin.load_state_dict(model.state_dict())
    other = make_optimizer(twin, TrainSettings())
    load_optimizer_tensors(twin, other, saved)
    updated(model, optimizer, 2)
    updated(twin, other, 2)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), twin.parameters(), strict=True))
