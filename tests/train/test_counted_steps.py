"""What a step asks of its device, counted on meta tensors (`counted_device.py`): a card is queued work, and never asked.

The shapes are the paper's, because what has no values takes no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from counted_device import CountedDevice, Counts
from torch import Tensor

from webtext.train import GPT2, TrainSettings
from webtext.train.data.windows import WindowRules, Windows
from webtext.train.engine import Engine
from webtext.train.model.compilation import compile_model
from webtext.train.optimizer.optimizer import Reading, is_fault, set_learning_rate
from webtext.train.shape import GPT2Config

META = torch.device("meta")
EOT, MICROBATCHES = 50256, 2


@dataclass
class CountedRun:
    """The last of two steps, since the first one allocates the optimizer's state; and held-out windows."""

    step: Counts
    update: Counts
    evaluation: Counts
    n_reads: int


def counted_run(**changes: Any) -> CountedRun:
    """What the trainer does in a step (`run/trainer.py`), in one process, with compiled blocks."""
    settings = TrainSettings.of(**{"batch_size": 8, "microbatch_size": 4, "dtype": "bfloat16", **changes})
    with META:
        model = GPT2(settings.config(EOT + 1))
        microbatches = [torch.empty(4, settings.context + 1, dtype=torch.long) for _ in range(MICROBATCHES)]
    model.activation_checkpointing = settings.machine.activation_checkpointing
    reads: list[Tensor] = []
    windows = Windows([np.zeros(8 * 1024 + 1, np.int64), np.zeros(50, np.int64)], context=1024, stride=None)
    with CountedDevice() as device, patch.object(Tensor, "tolist", lambda tensor: reads.append(tensor) or [0.0, 1.0]):
        compile_model(model)
        engine = Engine(model, WindowRules.of(settings, EOT), META, torch.bfloat16)
        optimizer = engine.make_optimizer(settings)
        for _ in range(2):
            device.take()
            set_learning_rate(optimizer, 1e-3)
            loss = engine.forward_backward(microbatches, MICROBATCHES)
            step = device.take()
            norm = engine.gradient_norm()
            engine.update(optimizer, 1.0, norm, is_fault(loss, norm, (10.0, 10.0)))
            Reading(torch.stack([loss, norm]))  # the trainer reads it one step later
            update = device.take()
        assert reads == []
        engine.total_loss(windows, 4)
    return CountedRun(step, update, device.take(), len(reads))


CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "masks": {"documents": "masked"},
    "padded": {"documents": "padded"},
    "checkpointing": {"activation_checkpointing": True},
    "muon": {"optimizer": "muon"},
}


@pytest.fixture(scope="module", params=CHANGES)
def run(request: pytest.FixtureRequest) -> CountedRun:
    return counted_run(**CHANGES[request.param])


def test_a_step_never_asks_the_device_for_a_value(run: CountedRun) -> None:
    assert run.step.waits == run.update.waits == []


def test_a_microbatch_is_some_launches_beside_the_compiled_blocks(run: CountedRun) -> None:
    assert run.step.n_launched <= 150 * MICROBATCHES


def test_a_large_model_launches_little_more() -> None:
    """One operation for each of the 48 blocks, in the first microbatch alone: the cast of its gradients to float32."""
    small, large = (counted_run(n_layer=n).step for n in (12, 48))
    assert large.n_launched - small.n_launched == 48 - 12
    assert large.regions["forward"] == 48 * MICROBATCHES


def ideal_bytes(config: GPT2Config, n_tokens: int, n_microbatches: int = MICROBATCHES) -> float:
    """What a fused step in bfloat16 moves: each tensor between two kernels is written and read once.

    Products and attention are kernels, and all that is between two of them is one. With C channels, L blocks, V rows of
    the vocabulary, P parameters and n tokens, and s = 2, a microbatch moves 3 L s (18 n C + 12 C^2 + 4 n C) + 3 s (n C +
    n V + C V) in products and attention, 46 L s n C between them, 2 s n V for the softmax in place, and (s + 8) P for the
    sums of gradients; and a step 36 P + s P beside its microbatches.
    """
    n, c, v, s = n_tokens, config.n_embd, config.vocab_size, 2
    products = 3 * config.n_layer * s * (18 * n * c + 12 * c * c + 4 * n * c) + 3 * s * (n * c + n * v + c * v)
    between, softmax = 46 * config.n_layer * s * n * c, 2 * s * n * config.padded_vocab_size
    summed = (s + 8) * config.n_parameters
    return n_microbatches * (products + between + softmax + summed) + (36 + s) * config.n_parameters


def test_a_step_moves_at_most_twice_the_bytes_of_an_ideal_fused_one() -> None:
    ideal = ideal_bytes(TrainSettings().config(EOT + 1), 4 * 1024)
    for changes in ({}, {"documents": "masked"}, {"documents": "padded"}):
        run = counted_run(**changes)
        assert 1 <= (run.step.n_bytes + run.update.n_bytes) / ideal <= 2


def test_an_update_is_a_few_launches(run: CountedRun) -> None:
    assert run.update.n_launched <= 75


def test_each_block_is_compiled_as_a_whole(run: CountedRun) -> None:
    """One region forward and one back, for each of 12 blocks and each microbatch; the one back recomputes."""
    n = 12 * MICROBATCHES
    assert run.step.regions["backward"] == run.step.regions["forward"] == n


def test_held_out_losses_are_read_once(run: CountedRun) -> None:
    assert run.evaluation.waits == []
    assert run.n_reads == 1


@pytest.mark.parametrize(
    "question", [Tensor.item, bool, Tensor.cpu, lambda x: x[x > 0]], ids=["item", "bool", "cpu", "mask"]
)
def test_a_question_to_the_device_is_found(question: Any) -> None:
    with CountedDevice(), pytest.raises((RuntimeError, NotImplementedError)):
        question(torch.empty((), device=META))


def test_a_copy_that_the_host_waits_for_is_found() -> None:
    with CountedDevice() as device:
        torch.zeros(3).to(META, non_blocking=True)
        assert device.take().waits == []
        torch.zeros(3).to(META)
        assert device.take().waits == ["aten._to_copy.default"]


def test_views_and_allocations_are_not_launched() -> None:
    with CountedDevice() as device:
        x = torch.empty(4, 6, device=META)
        y = x.view(6, 4)[1:].T.detach()
        assert device.take().n_launched == 0
        y + 1
        counts = device.take()
    assert counts.n_launched == 1
    assert counts.n_bytes == 2 * 20 * 4


def test_a_compiled_region_moves_what_its_kernels_read_and_write() -> None:
    def two_products(x: Tensor, weight: Tensor) -> Tensor:
        y = torch.relu(x @ weight) * 2 + x  # 1 product; 1 kernel for what is between
        return y @ weight

    with CountedDevice() as device:
        x, weight = torch.empty(5, 4, device=META), torch.empty(4, 4, device=META)
        torch.compile(two_products)(x, weight)
        counts = device.take()
    assert counts.n_launched == 0
    assert counts.regions == {"other": 1}
    assert counts.kernels == {"other": 3}
    products, between = 2 * (20 + 16 + 20), 20 + 20 + 20
    assert counts.n_bytes == 4 * (products + between)
