"""The loss over a split vocabulary: with one rank that of `cross_entropy.py`, with several in `test_parallelize.py`."""

from __future__ import annotations

import functools

import pytest
import torch
from counted_device import CountedDevice
from torch import Tensor, distributed

from webtext.train.model.cross_entropy import linear_cross_entropy, token_losses
from webtext.train.parallel import tensor_parallel
from webtext.train.parallel.tensor_parallel import vocab_parallel_loss, vocab_parallel_losses

N_TOKENS, PADDED, WIDTH = 50, 64, 8


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    """Return a hidden state, weights and targets."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(*n, WIDTH, generator=generator, dtype=torch.float64) for n in ((2, 20), (PADDED,)))
    return hidden.requires_grad_(), weight.requires_grad_(), torch.randint(N_TOKENS, (40,), generator=generator)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("counted", [None, torch.arange(40) % 3 > 0])
def test_one_rank_has_the_loss_and_gradients_of_the_complete_vocabulary(
    counted: Tensor | None, compiled: bool, alone: distributed.ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In three chunks. The compiled functions are traced as for a device and run as they are."""
    monkeypatch.setattr("webtext.train.model.cross_entropy.LOGITS_PER_CHUNK", 15 * PADDED)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    found = []
    for loss_of in (linear_cross_entropy, vocab_parallel_loss):
        hidden, weight, targets = drawn()
        if loss_of is linear_cross_entropy:
            loss = linear_cross_entropy(hidden.flatten(0, 1), weight, targets, N_TOKENS, counted)
        else:
            loss = vocab_parallel_loss(hidden, weight, targets, N_TOKENS, alone, counted, compiled=compiled)
        (3 * loss).backward()
        found.append((loss, hidden.grad, weight.grad))
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-14)


def test_one_rank_has_the_loss_of_each_target(alone: distributed.ProcessGroup) -> None:
    hidden, weight, targets = drawn()
    expected = token_losses(hidden.flatten(0, 1), weight, targets, N_TOKENS)
    torch.testing.assert_close(vocab_parallel_losses(hidden, weight, targets, N_TOKENS, alone), expected)


def test_compiled_logits_are_read_twice_and_overwritten_once_in_their_own_dtype() -> None:
    """Without logits in float32: what else is moved, is a few numbers per position."""
    n, v = 4096, 6400
    with CountedDevice() as device:
        of_rank, to_slopes = (
            torch.compile(f, dynamic=False) for f in (tensor_parallel._of_rank, tensor_parallel._vocab_slopes)
        )
        logits = torch.empty(n, v, dtype=torch.bfloat16, device="meta")
        here = torch.empty(n, dtype=torch.long, device="meta")
        total, _ = of_rank(logits, here)
        to_slopes(logits, here, total)
        counts = device.take()
    assert counts.n_launched == 0
    assert counts.regions.total() == 2
    assert counts.n_bytes <= 3.01 * logits.nbytes
