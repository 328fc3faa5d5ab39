"""A moving window of layers on a small device computes the numbers of the complete model, whatever the depth.

Memory and the order of copies are those of a simulated device, numbers those of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
from simulated_device import COMPUTING, Copy, Event, SimulatedDevice, Task
from torch import Tensor

from webtext.train import GPT2, GPT2Config, TrainSettings
from webtext.train.data.windows import WindowRules, documents_of
from webtext.train.footprint import memory_of
from webtext.train.mesh import MeshShape
from webtext.train.offload import host as module
from webtext.train.offload.engine import fit
from webtext.train.offload.host import Link
from webtext.train.offload.offloaded import ENDS, OffloadedModel

CPU = torch.device("cpu")
CONTEXT, WIDTH, EOT = 16, 32, 7
A_FEW_LOSSES = 1000  # bytes


def made_model(n_layer: int, dtype: torch.dtype = torch.float64) -> GPT2:
    torch.manual_seed(0)
    return GPT2(GPT2Config(n_layer=n_layer, n_head=2, n_embd=WIDTH, context=CONTEXT, vocab_size=250)).to(dtype)


def batches(step: int, n: int = 4) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(step)
    tokens_bt = torch.randint(250, (2 * n, CONTEXT + 1), generator=generator)
    tokens_bt[::2, 5] = EOT
    return tokens_bt.split(2)


def adamw(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, fused=True)


def train_whole(model: GPT2, steps: int) -> list[float]:
    optimizer, losses = adamw(list(model.parameters())), []
    for step in range(steps):
        parts = [model.loss(b[:, :-1], b[:, 1:]) / len(batches(step)) for b in batches(step)]
        for part in parts:
            part.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(sum(part.detach() for part in parts)))
    return losses


def offload(
    model: GPT2,
    device: torch.device = CPU,
    *,
    dtype: torch.dtype,
    group: int = 1,
    rules: WindowRules = WindowRules(),  # noqa: B008 - it is frozen
    streams: SimulatedDevice | None = None,
) -> OffloadedModel:
    offloaded = OffloadedModel(model, Link(device, streams), dtype, rules)
    offloaded.group = group
    return offloaded


def train_offloaded(
    model: GPT2,
    steps: int,
    *,
    group: int = 4,
    n: int = 4,
    dtype: torch.dtype | None = None,
) -> list[float]:
    dtype = dtype or next(model.parameters()).dtype
    offloaded = offload(model, dtype=dtype, group=group)
    ends = [p for name, p in model.named_parameters() if not name.startswith("blocks.")]
    optimizers = {ENDS: adamw(ends)} | {i: adamw(list(block.parameters())) for i, block in enumerate(model.blocks)}
    losses = []
    for step in range(steps):
        losses.append(float(offloaded.forward_backward(batches(step, n))))
        offloaded.update(lambda layer: (optimizers[layer].step(), offloaded.refresh(layer))[1])
    offloaded.wait()
    return losses


@pytest.mark.parametrize("group", [3, 4, pytest.param(1, marks=pytest.mark.slow)])
def test_losses_and_parameters_are_those_of_the_complete_model(group: int) -> None:
    whole, moved = made_model(5), made_model(5)
    expected = train_whole(whole, 4)
    losses = train_offloaded(moved, 4, group=group)
    assert losses == pytest.approx(expected, rel=1e-12)
    for (name, ours), theirs in zip(moved.named_parameters(), whole.parameters(), strict=True):
        if not name.endswith("key.bias"):  # its gradient is only rounding, which AdamW turns into steps
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def small_model() -> GPT2:
    return GPT2(GPT2Config(n_layer=3, n_head=2, n_embd=WIDTH, context=CONTEXT, vocab_size=250))


def test_microbatch_after_microbatch_the_float32_numbers_are_the_plain_runs_to_the_bit() -> None:
    whole, moved = small_model(), small_model()
    assert train_offloaded(moved, 3, group=1) == train_whole(whole, 3)
    for ours, theirs in zip(moved.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_gradient_of_a_group_is_that_of_its_loss_by_a_finite_difference() -> None:
    model = small_model().double()
    offloaded = offload(model, dtype=torch.float64, group=4)
    weight = model.blocks[1].get_submodule("feed_forward.expand").get_parameter("weight")
    before = float(offloaded.forward_backward(batches(0)))
    assert weight.grad is not None
    slope = float(weight.grad[5, 7])
    weight.data[5, 7] += 1e-5
    offloaded.refresh(1)
    assert (float(offloaded.forward_backward(batches(0))) - before) / 1e-5 == pytest.approx(slope, rel=1e-3)


def test_masks_and_padding_are_those_of_the_training_loss() -> None:
    for masks, pads in ((True, False), (False, True)):
        whole, moved = made_model(3), made_model(3)
        rules = WindowRules(masks=masks, pads=pads, eot_id=EOT)
        inputs = [(b[:, :-1], b[:, 1:]) for b in batches(0)]
        loss = sum(whole.loss(x, y, rules.documents(x), rules.counted(x)) for x, y in inputs) / len(inputs)
        loss.backward()
        offloaded = offload(moved, dtype=torch.float64, group=3, rules=rules)
        assert float(offloaded.forward_backward(batches(0))) == pytest.approx(float(loss.detach()), rel=1e-12)
        for ours, theirs in zip(moved.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


def test_likelihoods_are_the_complete_models_to_the_bit() -> None:
    model = small_model()
    tokens_bt = torch.cat(batches(0))
    documents_bt = documents_of(tokens_bt[:, :-1], EOT)
    expected = model.log_likelihood(tokens_bt), model.log_likelihood(tokens_bt, documents_bt, last=3)
    offloaded = offload(model, dtype=torch.float32)
    assert torch.equal(offloaded.log_likelihood(tokens_bt), expected[0])
    assert torch.equal(offloaded.log_likelihood(tokens_bt, documents_bt, last=3), expected[1])


def test_a_step_computes_on_copies_of_float32_parameters() -> None:
    """In bfloat16, like the plain trainer: parameters remain float32 and learn changes too small for a copy."""
    model = made_model(3, torch.float32)
    losses = train_offloaded(model, 3, dtype=torch.bfloat16)
    assert losses == pytest.approx(train_whole(made_model(3, torch.float32), 3), rel=2e-2)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


META = torch.device("meta")


@contextmanager
def simulated(
    n_layer: int, capacity: int = 1 << 50, *, dtype: torch.dtype = torch.float32, **how: Any
) -> Iterator[tuple[SimulatedDevice, OffloadedModel]]:
    model = made_model(n_layer, torch.float32)
    with SimulatedDevice(capacity) as device, patch.object(module, "ThreadPoolExecutor", device.host_thread):
        yield device, offload(model, META, dtype=dtype, streams=device, **how)


def on_device(n: int) -> list[Tensor]:
    return [torch.empty(2, CONTEXT + 1, dtype=torch.long, device=META) for _ in range(n)]


def change(offloaded: OffloadedModel, layer: int) -> None:
    """An update of a layer: it reads the gradients and writes the parameters."""
    rows = offloaded.ends if layer == ENDS else offloaded.layers
    rows.parameters[max(layer, 0)].add_(rows.gradients[max(layer, 0)])
    offloaded.refresh(layer)


def two_steps(offloaded: OffloadedModel, n: int) -> None:
    """With a measurement between them."""
    offloaded.forward_backward(on_device(n))
    offloaded.update(lambda layer: change(offloaded, layer))
    offloaded.log_likelihood(on_device(1)[0])
    offloaded.forward_backward(on_device(n))


@pytest.mark.parametrize("group", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_memory_is_used_before_what_wrote_or_read_it_is_over(group: int, dtype: torch.dtype) -> None:
    with simulated(3, dtype=dtype, group=group) as (device, offloaded):
        two_steps(offloaded, 3)
    assert device.races == []
    assert device.n_waits == 0  # only the thread waits for the device


def test_a_layer_may_be_updated_as_soon_as_its_gradients_are_on_the_host() -> None:
    with simulated(3, group=2) as (device, offloaded):
        offloaded.on_gradients = lambda layer: change(offloaded, layer)
        for _ in range(2):
            offloaded.forward_backward(on_device(3))
    assert device.races == []


@pytest.mark.parametrize("forgotten", [(Event, "wait"), (Event, "synchronize"), (Task, "result")])
def test_a_forgotten_wait_is_found(forgotten: tuple[type, str]) -> None:
    def result(task: Task) -> None:
        """The task's work, but the host continues before it."""
        before = dict(task.thread.device.clock("host"))
        ends(task)
        task.thread.device._clocks["host"] = before

    ends = Task.result
    instead: Callable[..., None] = result if forgotten[1] == "result" else lambda event: None
    with patch.object(*forgotten, instead), simulated(3, group=1) as (device, offloaded):
        two_steps(offloaded, 1)
    assert device.races


def copies(device: SimulatedDevice, way: str, rows: Tensor) -> list[tuple[int, Copy]]:
    """The copies from or to the rows of this tensor, in their order, with the row's number."""
    storage, size = rows.untyped_storage()._cdata, rows[0].nbytes
    return [(c.host[1] // size, c) for c in device.copies if c.way == way and c.host[0] == storage]


@contextmanager
def computed_layers(device: SimulatedDevice) -> Iterator[list[tuple[int, int]]]:
    """The numbers of operations, and of those of the computing stream, at which layers began."""
    began: list[tuple[int, int]] = []
    compute = OffloadedModel._layer

    def layer(self: OffloadedModel, *arguments: Any) -> Tensor:
        began.append((device.counts.n_launched, device.clock(COMPUTING)[COMPUTING]))
        return compute(self, *arguments)

    with patch.object(OffloadedModel, "_layer", layer):
        yield began


def test_a_layer_is_loaded_while_the_one_before_is_computed() -> None:
    """Loads wait for the row that they fill, not for what else is queued: there and, in the way back, back."""
    with simulated(5, dtype=torch.bfloat16) as (device, offloaded), computed_layers(device) as began:
        offloaded.forward_backward(on_device(1))
        loads = copies(device, "load", offloaded.layers.copies)
    assert [layer for layer, _ in loads] == [0, 1, 2, 3, 4, 2, 1, 0]  # 4 and 3 are still loaded at the turn
    order = [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]  # of computing
    places = [0, 1, 2, 3, 4, 7, 8, 9]  # where in that order the loads are used
    for place, (layer, load) in zip(places, loads, strict=True):
        assert order[place] == layer
        if place > 0:
            assert load.after.get(COMPUTING, 0) <= began[place - 1][1]  # before the one before begins


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_loads_a_layer_twice_and_moves_its_gradients_once(dtype: torch.dtype) -> None:
    """All in the dtype that is computed in."""
    n_layer, n = 4, 3
    with simulated(n_layer, dtype=dtype, group=n) as (device, offloaded):
        offloaded.forward_backward(on_device(n))
        sizes = {way: sum(c.n_bytes for c in device.copies if c.way == way) for way in ("load", "store")}
        layer, ends = (rows.copies[0].nbytes for rows in (offloaded.layers, offloaded.ends))
    inputs = n_layer * n * 2 * CONTEXT * WIDTH * dtype.itemsize
    assert sizes == {"load": ends + (2 * n_layer - 2) * layer + inputs, "store": ends + n_layer * layer + inputs}


def test_the_host_takes_gradients_while_earlier_layers_are_computed() -> None:
    """Nothing waits for a layer's gradients before the computing of the layer before it is queued."""
    taken: dict[int, int] = {}
    with simulated(5) as (device, offloaded), computed_layers(device) as began:
        offloaded.on_gradients = lambda layer: taken.update({layer: device.counts.n_launched})
        offloaded.forward_backward(on_device(1))
    assert list(taken) == [4, 3, 2, 1, 0, ENDS]
    assert all(taken[layer] > began[-layer][0] for layer in (4, 3, 2, 1))  # layer - 1, going back


def peak(n_layer: int, n: int = 2, **how: Any) -> int:
    with simulated(n_layer, **how) as (device, offloaded):
        offloaded.forward_backward(on_device(n))
    return device.peak_bytes


def test_the_device_needs_as_much_at_16_layers_as_at_3() -> None:
    assert peak(3) == peak(16)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_plan_has_the_memory_of_a_step_in_a_window_of_two_layers(dtype: str) -> None:
    """Plans leave out what exists only within an operation, so the step takes a little more."""
    how = {"batch_size": 4, "microbatch_size": 2, "offload": True, "dtype": dtype, "device": "cpu"}
    settings = TrainSettings.of(n_layer=4, n_head=2, n_embd=WIDTH, context=CONTEXT, **how)
    assert (
        0.85 < memory_of(settings.config(250), settings, MeshShape()).total / peak(4, dtype=getattr(torch, dtype)) < 1
    )


def test_a_device_of_that_size_is_enough_and_the_plain_run_fails_in_it() -> None:
    enough = peak(4)
    with simulated(4, enough) as (_, offloaded):
        offloaded.forward_backward(on_device(2))
    with pytest.raises(torch.OutOfMemoryError, match="do not fit"), simulated(4, enough - 1) as (_, offloaded):
        offloaded.forward_backward(on_device(2))
    plain, tokens_bt = made_model(4, torch.float32), on_device(1)[0]
    with pytest.raises(torch.OutOfMemoryError, match="do not fit"), SimulatedDevice(enough):
        plain.to_empty(device=META).loss(tokens_bt[:, :-1], tokens_bt[:, 1:]).backward()


@pytest.mark.slow
def test_the_group_is_fitted_to_the_device() -> None:
    """As many more microbatches as fit use the memory that one leaves free."""
    found = []
    needed, of_three = peak(6, 8), peak(6, 8, group=3)
    for capacity in (needed, of_three, 2 * of_three):
        with simulated(6, capacity + A_FEW_LOSSES) as (device, offloaded):
            tokens = on_device(8)
            fit(offloaded, tokens[0], 8, device.capacity, lambda device=device: device.peak_bytes)
            offloaded.forward_backward(tokens)  # which fits
        found.append(offloaded.group)
    assert found == [1, 3, 8]
    with pytest.raises(torch.OutOfMemoryError), simulated(6, peak(6) - A_FEW_LOSSES) as (device, offloaded):
        fit(offloaded, on_device(1)[0], 8, device.capacity, lambda: device.peak_bytes)
