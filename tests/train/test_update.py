"""The last part of a step compared with torch's own clipping; a fault leaves everything unchanged."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from webtext.train.optimizer.update import Reading, gradient_norm, is_fault, update


def model_with_gradients(seed: int) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return model


def optimizer_of(model: nn.Module, fused: bool) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("max_norm", [None, 0.5, 1e9])
def test_an_update_is_that_of_torchs_clipping_and_a_plain_step(fused: bool, max_norm: float | None) -> None:
    ours, theirs = model_with_gradients(1), model_with_gradients(1)
    norm = gradient_norm(ours)
    update(optimizer_of(ours, fused), norm, max_norm, torch.tensor(0.0))
    expected = nn.utils.clip_grad_norm_(theirs.parameters(), max_norm or math.inf)
    optimizer_of(theirs, False).step()
    assert norm.item() == pytest.approx(expected.item(), rel=1e-6)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("fused", [True, False])
def test_a_fault_leaves_parameters_moments_and_step_count_bit_equal(fused: bool) -> None:
    model = model_with_gradients(1)
    optimizer = optimizer_of(model, fused)
    update(optimizer, gradient_norm(model), 1.0, torch.tensor(0.0))
    before = [p.detach().clone() for p in model.parameters()] + state(optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, math.nan)
    update(optimizer, gradient_norm(model), 1.0, torch.tensor(1.0))
    after = [p.detach() for p in model.parameters()] + state(optimizer)
    assert len(after) == 4 + 3 * 4
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    kinds = ("step", "exp_avg", "exp_avg_sq")
    return [s[kind].clone() for s in optimizer.state.values() for kind in kinds]


@pytest.mark.parametrize(
    ("loss", "norm", "fault"),
    [(3.0, 1.0, 0.0), (4.0, 2.0, 0.0), (4.1, 1.0, 1.0), (3.0, 2.1, 1.0), (math.nan, 1.0, 1.0), (3.0, -math.inf, 1.0)],
)
def test_a_fault_is_not_finite_or_above_its_limit(loss: float, norm: float, fault: float) -> None:
    assert is_fault(torch.tensor(loss), torch.tensor(norm), (4.0, 2.0)).item() == fault


def test_without_limits_only_non_finite_values_are_faults() -> None:
    unlimited = (math.inf, math.inf)
    assert is_fault(torch.tensor(1e30), torch.tensor(1e30), unlimited).item() == 0
    assert is_fault(torch.tensor(math.inf), torch.tensor(1.0), unlimited).item() == 1


def test_a_reading_is_the_numbers_that_were_copied() -> None:
    assert Reading(torch.tensor([1.5, -2.0])).read() == [1.5, -2.0]
