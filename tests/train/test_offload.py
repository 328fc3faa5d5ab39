"""A moving window of layers on a small device computes the numbers of the complete model, whatever the depth."""

from __future__ import annotations

import contextlib
import copy
import gc
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from webtext.base.errors import ConfigError
from webtext.train import GPT2, GPT2Config
from webtext.train.model.loss import TrainingLoss, WindowRules, documents_of
from webtext.train.offload.device_memory import Arena
from webtext.train.offload.fit import fit, measure_costs
from webtext.train.offload.link import Link, ModelledLink, ThreadLink
from webtext.train.offload.offloaded import ENDS, OffloadedModel
from webtext.train.offload.window import Costs, choose_window, covering_bandwidth, predict_step

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


def train_offloaded(
    model: GPT2,
    link: Link,
    steps: int,
    arena: Arena | None = None,
    *,
    window: int = 2,
    group: int = 4,
    n: int = 4,
    dtype: torch.dtype | None = None,
    folder: Path | None = None,
) -> list[float]:
    dtype = dtype or next(model.parameters()).dtype
    offloaded = OffloadedModel(model, link, CPU, dtype=dtype, window=window, group=group, folder=folder)
    ends = [p for name, p in model.named_parameters() if not name.startswith("blocks.")]
    optimizers = {ENDS: adamw(ends)} | {i: adamw(list(block.parameters())) for i, block in enumerate(model.blocks)}
    losses = []
    for step in range(steps):
        tokens = batches(step, n)
        with arena or contextlib.nullcontext():  # it watches every operation, which takes longer than most of them
            loss = offloaded.forward_backward(tokens)
        losses.append(float(loss))
        offloaded.update(lambda layer: (optimizers[layer].step(), None)[1])
    offloaded.wait()
    return losses


@pytest.mark.parametrize(
    ("window", "group"), [(2, 3), (9, 4), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((2, 1), (3, 4)))]
)
def test_losses_and_parameters_are_those_of_the_complete_model(window: int, group: int) -> None:
    whole, moved = made_model(5), made_model(5)
    expected = train_whole(whole, 4)
    losses = train_offloaded(moved, ThreadLink(), 4, window=window, group=group)
    assert losses == pytest.approx(expected, rel=1e-12)
    for (name, ours), theirs in zip(moved.named_parameters(), whole.parameters(), strict=True):
        if not name.endswith("key.bias"):  # its gradient is only rounding, which AdamW turns into steps
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("group", [1, 2])
def test_replicas_that_share_each_row_of_gradients_have_the_complete_steps(group: int) -> None:
    """Two replicas, a thread each; a row is shared when it has all groups of microbatches, in a fixed order."""
    whole = made_model(3)
    expected = sum(whole.loss(b[:, :-1], b[:, 1:]) / 8 for b in batches(0, 8))
    expected.backward()
    models, at_the_row, given = [made_model(3), made_model(3)], Barrier(2, timeout=600), {}

    def step(rank: int) -> float:
        def share(row: Tensor) -> None:
            given[rank] = row.clone()
            at_the_row.wait()
            mean = (given[0] + given[1]) / 2
            at_the_row.wait()
            row.copy_(mean)

        replica = OffloadedModel(models[rank], ThreadLink(), CPU, dtype=torch.float64, group=group)
        replica.share = share
        return float(replica.forward_backward(batches(0, 8)[4 * rank : 4 * rank + 4]))

    with ThreadPoolExecutor(2) as threads:
        losses = list(threads.map(step, range(2)))
    assert sum(losses) / 2 == pytest.approx(float(expected.detach()), rel=1e-12)
    for ours, others, theirs in zip(models[0].parameters(), models[1].parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours.grad, others.grad)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


def dropping(p: float) -> GPT2:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=3, n_head=2, n_embd=WIDTH, context=CONTEXT, vocab_size=250, dropout=p)
    return GPT2(config)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_microbatch_after_microbatch_the_float32_numbers_are_the_plain_runs_to_the_bit(dropout: float) -> None:
    whole, moved = dropping(dropout), dropping(dropout)
    torch.manual_seed(1)
    expected = train_whole(whole, 3)
    torch.manual_seed(1)
    losses = train_offloaded(moved, ThreadLink(), 3, group=1)
    assert losses == expected
    for ours, theirs in zip(moved.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_dropout_drops_the_same_values_when_a_layer_is_recomputed() -> None:
    """The gradient of a group of microbatches is that of the returned loss, by a finite difference."""
    model = dropping(0.3).double()
    offloaded = OffloadedModel(model, ThreadLink(), CPU, dtype=torch.float64, group=4)
    weight = model.blocks[1].get_submodule("feed_forward.expand").get_parameter("weight")

    def loss() -> float:
        torch.manual_seed(3)
        return float(offloaded.forward_backward(batches(0)))

    before = loss()
    assert weight.grad is not None
    slope = float(weight.grad[5, 7])
    weight.data[5, 7] += 1e-5
    offloaded.refresh()
    assert (loss() - before) / 1e-5 == pytest.approx(slope, rel=1e-3)


def test_files_contain_what_memory_contains(tmp_path: Path) -> None:
    in_memory = train_offloaded(made_model(3), ThreadLink(), 3)
    assert train_offloaded(made_model(3), ThreadLink(), 3, folder=tmp_path) == in_memory


def test_masks_and_padding_are_those_of_the_training_loss() -> None:
    for masks, pads in ((True, False), (False, True)):
        whole, moved = made_model(3), made_model(3)
        objective = TrainingLoss(whole, WindowRules(masks=masks, pads=pads, eot_id=EOT))
        loss = sum(objective(b[:, :-1], b[:, 1:]) for b in batches(0)) / len(batches(0))
        loss.backward()
        rules = WindowRules(masks=masks, pads=pads, eot_id=EOT)
        offloaded = OffloadedModel(moved, at_once(), CPU, dtype=torch.float64, group=3, rules=rules)
        assert float(offloaded.forward_backward(batches(0))) == pytest.approx(float(loss.detach()), rel=1e-12)
        for ours, theirs in zip(moved.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


def test_likelihoods_are_the_complete_models_to_the_bit_and_without_dropout() -> None:
    model = dropping(0.3).eval()
    tokens_bt = torch.cat(batches(0))
    documents_bt = documents_of(tokens_bt[:, :-1], EOT)
    expected = model.log_likelihood(tokens_bt), model.log_likelihood(tokens_bt, documents_bt, last=3)
    offloaded = OffloadedModel(model, ThreadLink(), CPU, dtype=torch.float32, window=2)
    assert torch.equal(offloaded.log_likelihood(tokens_bt), expected[0])
    assert torch.equal(offloaded.log_likelihood(tokens_bt, documents_bt, last=3), expected[1])


def test_a_step_computes_on_copies_of_float32_parameters() -> None:
    """In bfloat16, like the plain trainer: parameters remain float32 and learn changes too small for a copy."""
    model = made_model(3, torch.float32)
    losses = train_offloaded(model, ThreadLink(), 3, dtype=torch.bfloat16)
    assert losses == pytest.approx(train_whole(made_model(3, torch.float32), 3), rel=2e-2)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def at_once() -> ModelledLink:
    """A link in the caller's thread, so that the device's contents don't depend on timing."""
    return ModelledLink(1e9, 0.0, {"forward": 0.0, "backward": 0.0})


def test_the_device_needs_as_much_at_128_layers_as_at_8() -> None:
    peaks = []
    for n_layer in (8, 128):
        arena = Arena(1 << 30)
        train_offloaded(made_model(n_layer, torch.float32), at_once(), 1, arena, n=1)
        peaks.append(arena.peak_bytes)
    assert peaks[0] == peaks[1]


def test_one_more_layer_in_the_window_takes_one_more_layer_of_the_device() -> None:
    """So the device has only the window of layers' parameters, which is two at least."""
    peaks = []
    for window in (2, 3, 4):
        arena, model = Arena(1 << 30), made_model(8, torch.float32)
        train_offloaded(model, at_once(), 1, arena, window=window)
        peaks.append(arena.peak_bytes)
    layer_bytes = 4 * sum(math.ceil(p.numel() / 128) * 128 for p in model.blocks[0].parameters())
    assert peaks == [peaks[0], peaks[0] + layer_bytes, peaks[0] + 2 * layer_bytes]


def test_a_device_of_that_size_is_enough_and_the_plain_run_fails_in_it() -> None:
    n_layer = 8
    measured = Arena(1 << 30)
    train_offloaded(made_model(n_layer, torch.float32), at_once(), 1, measured, n=2)
    enough = Arena(measured.peak_bytes)
    train_offloaded(made_model(n_layer, torch.float32), at_once(), 1, enough, n=2)
    with pytest.raises(torch.OutOfMemoryError, match="do not fit"), Arena(measured.peak_bytes):
        train_whole(made_model(n_layer, torch.float32), 1)
    too_small = Arena(measured.peak_bytes - 1)
    with pytest.raises(torch.OutOfMemoryError, match="do not fit"):
        train_offloaded(made_model(n_layer, torch.float32), at_once(), 1, too_small, n=2)


def test_an_arena_counts_live_tensors_and_not_views() -> None:
    outside = torch.ones(1000)
    with Arena(10_000) as arena:
        kept = outside + 1
        assert arena.used_bytes == 4000
        view = kept[10:].view(3, 330)
        outside.mul_(2)
        assert arena.used_bytes == 4000
        del kept
        assert arena.used_bytes == 4000
        del view
        gc.collect()
        assert arena.used_bytes == 0
        with pytest.raises(torch.OutOfMemoryError, match=r"12,000 bytes do not fit: 0 of 10,000"):
            torch.empty(3000)
    assert arena.peak_bytes == 4000


def costs_of(model: GPT2, link: ModelledLink, group: int) -> Costs:
    """Measure the time, which is exact on a modelled link."""
    offloaded = OffloadedModel(copy.deepcopy(model), link, CPU, dtype=torch.float64, group=group)
    costs = measure_costs(offloaded, batches(0)[0])
    assert (costs.forward_seconds, costs.backward_seconds) == pytest.approx(tuple(link.seconds_of.values()))
    assert (1 / costs.bandwidth, costs.latency) == pytest.approx((1 / link.bandwidth, link.latency), rel=1e-6, abs=1e-9)
    link.restart()
    return replace(costs, bandwidth=link.bandwidth, latency=link.latency)


@settings(max_examples=25)
@given(
    st.integers(2, 6), st.integers(2, 7), st.sampled_from([1e6, 1e7, 1e8]), st.floats(0, 0.01), st.floats(0.001, 0.1)
)
def test_a_step_takes_what_the_model_of_the_link_predicts(
    n_layer: int, window: int, bandwidth: float, latency: float, seconds: float
) -> None:
    model = made_model(n_layer)
    link = ModelledLink(bandwidth, latency, {"forward": seconds, "backward": 3 * seconds})
    costs = costs_of(model, link, 4)
    window = min(window, n_layer)
    train_offloaded(model, link, 1, window=window)
    expected = predict_step(costs, window)
    assert link.now == pytest.approx(expected.seconds, rel=1e-9)
    assert link.copied_seconds == pytest.approx(expected.copied_seconds, rel=1e-9)
    assert link.stalled_seconds == pytest.approx(expected.stalled_seconds, rel=1e-6, abs=1e-9 * link.now)


@given(st.integers(2, 20), st.integers(1, 5), *[st.integers(1, 10**9)] * 3, st.floats(1e-3, 1.0), st.floats(1.0, 4.0))
def test_from_the_covering_bandwidth_a_step_waits_only_for_its_first_and_last_copies(
    n_layer: int, group: int, layer_bytes: int, input_bytes: int, gradient_bytes: int, seconds: float, more: float
) -> None:
    costs = Costs(
        n_layer=n_layer,
        group=group,
        layer_bytes=layer_bytes,
        input_bytes=input_bytes,
        gradient_bytes=gradient_bytes,
        ends_bytes=1000,
        ends_gradient_bytes=1000,
        forward_seconds=seconds,
        backward_seconds=more * seconds,
        bandwidth=1.0,
        latency=0.0,
    )
    enough = covering_bandwidth(costs)
    ends = 2000 + layer_bytes + 2 * group * input_bytes + gradient_bytes
    computing = n_layer * group * (1 + more) * seconds
    at_it = predict_step(replace(costs, bandwidth=enough), 2)
    assert at_it.seconds == pytest.approx(computing + at_it.stalled_seconds)
    assert at_it.stalled_seconds <= ends / enough * (1 + 1e-9) + 1e-9 * computing
    longer = replace(costs, n_layer=4 * n_layer + 40)
    stalls = [predict_step(replace(c, bandwidth=0.9 * enough), 2).stalled_seconds for c in (costs, longer)]
    assert stalls[1] > stalls[0] * (1 + 1e-9)  # below it, every further layer is waited for


def test_copies_are_hidden_if_computing_takes_longer() -> None:
    """A layer's copy takes two thirds of its forward pass: the step waits for at most a tenth of the copies' time."""
    model = made_model(32)
    link = ModelledLink(1e7, 1e-4, {"forward": 1.0, "backward": 3.0})
    layer_seconds = costs_of(model, link, 4).copy_seconds(costs_of(model, link, 4).layer_bytes)
    link.seconds_of = {"forward": 1.5 * layer_seconds / 4, "backward": 4.5 * layer_seconds / 4}
    costs = costs_of(model, link, 4)
    window = choose_window(costs, 1 << 30)
    train_offloaded(model, link, 1, window=window)
    assert window == 2
    assert link.stalled_seconds < 0.1 * link.copied_seconds


def test_the_window_is_the_smallest_that_is_as_fast_as_any() -> None:
    model = made_model(12)
    fast = costs_of(model, ModelledLink(1e9, 0.0, {"forward": 1.0, "backward": 3.0}), 1)
    assert choose_window(fast, 1 << 30) == 2
    slow = replace(fast, bandwidth=1e3)  # it waits for gradients going back, and layers arrive behind them
    assert choose_window(slow, 1 << 30) == 2
    loading = replace(slow, input_bytes=slow.layer_bytes)  # each layer that is still loaded at the turn saves its copy
    assert choose_window(loading, 1 << 30) == 12
    assert choose_window(loading, 5 * slow.layer_bytes) == 5
    assert predict_step(loading, 12).seconds < predict_step(loading, 5).seconds < predict_step(loading, 2).seconds
    with pytest.raises(ConfigError, match="are left for a window"):
        choose_window(slow, 2 * slow.layer_bytes - 1)


@pytest.mark.slow
def test_group_and_window_are_fitted_to_the_device() -> None:
    """As many more microbatches as fit use the memory that one leaves free, and the window uses the rest."""
    found = []
    tokens = batches(0, 8)
    needed = Arena(1 << 30)
    train_offloaded(made_model(6), at_once(), 1, needed, group=1)
    layer_bytes = costs_of(made_model(6), at_once(), 1).layer_bytes
    for n_layers_more in (0, 1, 20):
        model, link = made_model(6), ModelledLink(1e6, 0.0, {"forward": 1e-6, "backward": 3e-6})
        arena = Arena(needed.peak_bytes + n_layers_more * layer_bytes + A_FEW_LOSSES)
        offloaded = OffloadedModel(model, link, CPU, dtype=torch.float64)
        with arena:
            fit(offloaded, tokens[0], len(tokens), arena)
            offloaded.forward_backward(tokens)  # which fits
        found.append((offloaded.group, offloaded.window.size))
    assert found == [(1, 2), (4, 2), (8, 6)]
    with pytest.raises(torch.OutOfMemoryError), Arena(needed.peak_bytes - A_FEW_LOSSES) as arena:
        fit(offloaded, tokens[0], len(tokens), arena)
