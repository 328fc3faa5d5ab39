"""Which parameters decay, what Muon does, a state that survives a checkpoint; clipping, and updates that are skipped."""

from __future__ import annotations

import math

import pytest
import torch
from counted_device import CountedDevice
from torch import Tensor, nn

from webtext.train.model.gpt2 import GPT2
from webtext.train.optimizer.optimizer import (
    Reading,
    gradient_norm,
    is_fault,
    make_optimizer,
    optimizer_tensors,
    set_learning_rate,
    update,
)
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
    set_learning_rate(optimizer, settings.learning_rate)
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


@pytest.mark.parametrize("n_layer", [1, 3])
def test_muon_makes_the_updates_of_torchs_muon_matrix_by_matrix(n_layer: int) -> None:
    """The same products in bfloat16; the weights differ by float32's rounding, because the decay is added elsewhere.

    After the fifth update the third's gradient still counts .95^2 in the momentum, whose bits are torch's.
    """
    torch.manual_seed(0)
    settings = TrainSettings.of(optimizer="muon", muon_learning_rate=0.02, learning_rate=0.001, weight_decay=0.1)
    ours, theirs = (GPT2(GPT2Config(n_layer=n_layer, n_head=2, n_embd=32, context=8, vocab_size=20)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    optimizer = make_optimizer(dict(ours.named_parameters()), settings)
    names = [name for name, p in ours.named_parameters() if p.dim() == 2 and "embedding" not in name]
    matrices = [theirs.get_parameter(name) for name in names]
    expected = torch.optim.Muon(matrices, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    set_learning_rate(optimizer, 0.0005)
    for step in range(5):
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            one.grad = torch.randn(one.shape, generator=torch.Generator().manual_seed(step))
            other.grad = one.grad.clone()
        optimizer.step()
        expected.step()
        for name, matrix in zip(names, matrices, strict=True):
            own = ours.get_parameter(name)
            assert torch.equal(optimizer.state[own]["momentum_buffer"], expected.state[matrix]["momentum_buffer"])
            assert torch.allclose(own, matrix, rtol=0, atol=1e-7), (step, name)
            assert own.grad is not None
            assert torch.equal(own.grad, matrix.grad)  # type: ignore[arg-type]


def test_muons_rate_keeps_its_ratio_to_adamws() -> None:
    """One layer of width 8: updates of its six matrices are 0.2 sqrt(8) or, with a side of 32, 0.2 sqrt(32) large.

    The decay is multiplied by the rate that AdamW's has, so without the size.
    """
    for own, ratio in ((0.01, 5.0), (None, 1.0)):
        settings = TrainSettings.of(optimizer="muon", learning_rate=0.002, muon_learning_rate=own, weight_decay=0.3)
        optimizer = make_optimizer(dict(GPT2(TINY).named_parameters()), settings)
        set_learning_rate(optimizer, 0.001)
        groups = [(len(group["params"]), group["lr"]) for group in optimizer.param_groups]
        of_muon = [(n, pytest.approx(0.001 * ratio * 0.2 * side**0.5)) for n, side in ((4, 8), (2, 32))]
        assert groups == [(2, 0.001), (12, 0.001), *of_muon]
        assert [group["lr"] * group["weight_decay"] for group in optimizer.param_groups[2:]] == pytest.approx(
            [0.001 * ratio * 0.3] * 2
        )


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


def optimizer_of(model: nn.Module, name: str) -> torch.optim.Optimizer:
    return make_optimizer(dict(model.named_parameters()), TrainSettings.of(optimizer=name, learning_rate=0.1))


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("max_norm", [None, 0.5, 1e9])
def test_an_update_is_that_of_torchs_clipping_and_a_plain_step(name: str, max_norm: float | None) -> None:
    """The momentum shows by how much Muon's gradients were clipped; its update doesn't depend on their size."""
    ours, theirs = model_with_gradients(1), model_with_gradients(1)
    one, other = optimizer_of(ours, name), optimizer_of(theirs, name)
    norm = gradient_norm(ours)
    update(one, norm, max_norm, torch.tensor(0.0))
    expected = nn.utils.clip_grad_norm_(theirs.parameters(), max_norm or math.inf)
    other.step()
    assert norm.item() == pytest.approx(expected.item(), rel=1e-6)
    for ours_is, theirs_is in zip(state(ours, one), state(theirs, other), strict=True):
        assert torch.allclose(ours_is, theirs_is, atol=1e-6)


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("fault", [math.nan, math.inf, 1e30])
def test_a_fault_leaves_parameters_moments_and_step_count_bit_equal(name: str, fault: float) -> None:
    """Two weights and two biases, each with step and two moments; with Muon the weights have one moment."""
    model = model_with_gradients(1)
    optimizer = optimizer_of(model, name)
    update(optimizer, gradient_norm(model), 1.0, torch.tensor(0.0))
    before = state(model, optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, fault)
    update(optimizer, gradient_norm(model), 1.0, torch.tensor(1.0))
    after = state(model, optimizer)
    assert len(after) == 4 + {"adamw": 4 * 3, "muon": 2 * 3 + 2}[name]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    update(optimizer, gradient_norm(model), 1.0, torch.tensor(0.0))
    assert all(not torch.equal(one, other) for one, other in zip(before, state(model, optimizer), strict=True))


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    moments = optimizer_tensors(dict(model.named_parameters()), optimizer).values()
    return [tensor.detach().clone() for tensor in (*model.parameters(), *moments)]


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_an_update_of_any_depth_is_at_most_60_operations_without_a_wait(name: str) -> None:
    """On meta tensors, of which no value can be read."""
    found = []
    for n_layer in (1, 4):
        with torch.device("meta"):
            model = GPT2(GPT2Config(n_layer=n_layer, n_head=1, n_embd=8, context=8, vocab_size=20))
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            norm, fault = torch.tensor(1.0), torch.tensor(0.0)
        with CountedDevice() as device:
            optimizer = optimizer_of(model, name)
            device.take()
            update(optimizer, norm, 0.5, fault)
            counts = device.take()
        assert counts.waits == []
        found.append(counts.n_launched)
    assert found[0] == found[1] <= 60


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
