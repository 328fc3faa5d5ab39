"""Which parameters decay, what Muon does, a state that survives a checkpoint; clipping, and updates that are skipped."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from webtext.train.model.gpt2 import GPT2
from webtext.train.optimizer.optimizer import make_optimizer, optimizer_tensors, set_learning_rate
from webtext.train.optimizer.update import Reading, gradient_norm, is_fault, update
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
    decayed, spared = make_optimizer(dict(model.named_parameters()), TrainSettings.of(weight_decay=0.3)).param_groups
    assert (decayed["weight_decay"], len(decayed["params"])) == (0.3, 8)
    assert (spared["weight_decay"], len(spared["params"])) == (0.0, 12)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all("bias" in names[id(p)] or "norm" in names[id(p)] for p in spared["params"])


def test_muon_takes_the_hidden_matrices_and_adamw_all_else() -> None:
    model = GPT2(TINY)
    optimizer = make_optimizer(dict(model.named_parameters()), TrainSettings.of(optimizer="muon"))
    updated(model, optimizer, 1)
    kinds = {name: set(optimizer.state[p]) for name, p in model.named_parameters()}
    muon = {name for name, kind in kinds.items() if kind == {"momentum_buffer"}}
    layers = ("attention.query", "attention.key", "attention.value", "attention.projection")
    assert muon == {f"blocks.0.{layer}.weight" for layer in (*layers, "feed_forward.expand", "feed_forward.contract")}
    assert all(kinds[name] == {"step", "exp_avg", "exp_avg_sq"} for name in kinds.keys() - muon)


def test_muons_update_has_singular_values_near_one_and_the_size_of_adamws() -> None:
    """0.2 sqrt(max(rows, columns)) times an orthogonal matrix has entries of root mean square 0.2 for any shape.

    Newton-Schulz with Jordan's coefficients leaves singular values in about [0.7, 1.2]; those that start below a
    thousandth of the largest stay smaller, so the median and the largest are checked.
    """
    settings = TrainSettings.of(optimizer="muon", weight_decay=0.0, learning_rate=1.0)
    for rows, columns in ((64, 64), (256, 64), (64, 256)):
        layer = torch.nn.Linear(columns, rows, bias=False)
        before = layer.weight.detach().clone()
        layer.weight.grad = torch.randn(rows, columns, generator=torch.Generator().manual_seed(3))
        make_optimizer(dict(layer.named_parameters()), settings).step()
        update = before - layer.weight.detach()
        values = torch.linalg.svdvals(update) / (0.2 * math.sqrt(max(rows, columns)))
        assert 0.6 < values.median() < 1.25, (rows, columns)
        assert values.max() < 1.3, (rows, columns)
        assert update.square().mean().sqrt() == pytest.approx(0.2, rel=0.2), (rows, columns)


def test_muons_update_is_newton_schulz_of_the_gradient_with_nesterov_momentum() -> None:
    """Compared with the formula's recursion in float64: the step differs only by rounding to bfloat16."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(48, 32, bias=False)
    settings = TrainSettings.of(optimizer="muon", muon_learning_rate=0.01, weight_decay=0.1)
    optimizer = make_optimizer(dict(layer.named_parameters()), settings)
    set_learning_rate(optimizer, settings, settings.learning_rate)
    weight, momentum = layer.weight.detach().double(), torch.zeros(32, 48, dtype=torch.float64)
    for _ in range(3):
        gradient = torch.randn(32, 48)
        layer.weight.grad = gradient.clone()
        optimizer.step()
        momentum = 0.95 * momentum + 0.05 * gradient.double()
        x = 0.95 * momentum + 0.05 * gradient.double()
        x = x / x.norm()
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        weight = weight * (1 - 0.01 * 0.1) - 0.01 * 0.2 * math.sqrt(48) * x
        assert (layer.weight.double() - weight).norm() < 0.02 * 0.01 * 0.2 * math.sqrt(48) * x.norm() * 3


def test_muons_rate_keeps_its_ratio_to_adamws() -> None:
    settings = TrainSettings.of(optimizer="muon", learning_rate=0.002, muon_learning_rate=0.01)
    optimizer = make_optimizer(dict(GPT2(TINY).named_parameters()), settings)
    set_learning_rate(optimizer, settings, 0.001)
    assert [group["lr"] for group in optimizer.param_groups] == [0.001, 0.001, pytest.approx(0.005)]
    plain = TrainSettings.of(optimizer="muon", learning_rate=0.002)
    optimizer = make_optimizer(dict(GPT2(TINY).named_parameters()), plain)
    set_learning_rate(optimizer, plain, 0.001)
    assert [group["lr"] for group in optimizer.param_groups] == [0.001] * 3


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_restored_optimizer_makes_the_same_update(name: str) -> None:
    """Its tensors are filled by name, so groups in another order find theirs."""
    torch.manual_seed(5)
    model = GPT2(TINY)
    settings = TrainSettings.of(optimizer=name)
    optimizer = make_optimizer(dict(model.named_parameters()), settings)
    updated(model, optimizer, 1)
    twin = GPT2(TINY)
    twin.load_state_dict(model.state_dict())
    other = make_optimizer(dict(twin.named_parameters()), settings)
    other.param_groups.reverse()
    for key, tensor in optimizer_tensors(dict(twin.named_parameters()), other).items():
        tensor.copy_(optimizer_tensors(dict(model.named_parameters()), optimizer)[key])
    updated(model, optimizer, 2)
    updated(twin, other, 2)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), twin.parameters(), strict=True))


def test_state_is_there_before_the_first_update_and_changes_nothing() -> None:
    """A checkpoint may be saved when the guard has skipped all steps so far."""
    torch.manual_seed(5)
    model, twin = GPT2(TINY), GPT2(TINY)
    twin.load_state_dict(model.state_dict())
    optimizers = [make_optimizer(dict(m.named_parameters()), TrainSettings()) for m in (model, twin)]
    tensors = optimizer_tensors(dict(model.named_parameters()), optimizers[0])
    assert len(tensors) == 3 * len(list(model.parameters()))
    assert not any(tensor.any() for tensor in tensors.values())
    assert {name.rpartition(".")[2] for name in tensors} == {"step", "exp_avg", "exp_avg_sq"}
    for each, optimizer in zip((model, twin), optimizers, strict=True):
        updated(each, optimizer, 1)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), twin.parameters(), strict=True))


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
