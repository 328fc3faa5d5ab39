"""What an offloaded run asks of its device, counted on a simulated one: nothing waits for a value of a tensor there.

`.item()`, `bool()`, `.cpu()` and indexing by a mask raise for a meta tensor, so a step that ends asked for nothing.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from counted_device import launches, tensors_of
from simulated_device import SimulatedDevice
from torch.utils._python_dispatch import TorchDispatchMode

from webtext.train import GPT2, TrainSettings
from webtext.train.data.windows import WindowRules
from webtext.train.model.initialization import drawn
from webtext.train.offload import host as module
from webtext.train.offload.engine import OffloadedEngine
from webtext.train.optimizer.optimizer import Reading, is_fault, set_learning_rate

META = torch.device("meta")
SHAPE = {"n_head": 2, "n_embd": 32, "context": 16, "batch_size": 4, "microbatch_size": 2, "dtype": "bfloat16"}
FINE = [1.0, 0.0, 1.0]  # norm, fault and share
MICROBATCHES = 2


def counted(
    n_layer: int = 2, n_steps: int = 2, *, masks: bool = False, pads: bool = False, **changes: object
) -> SimulatedDevice:
    """Steps of the engine, and what the trainer does around them (`run/trainer.py`)."""
    settings = TrainSettings.of(n_layer=n_layer, offload=True, **{**SHAPE, **changes})
    config = settings.config(250)
    with META:
        model = GPT2(config)
    tokens = [torch.empty(2, 17, dtype=torch.long, device=META) for _ in range(MICROBATCHES)]
    with (
        SimulatedDevice() as device,
        patch.object(module, "ThreadPoolExecutor", device.host_thread),
        patch.object(torch, "get_device_module", lambda _: device),
        patch.object(Reading, "read", lambda _: FINE),
    ):
        rules = WindowRules(masks, pads, eot_id=7)
        engine = OffloadedEngine(model, settings, rules, META, torch.bfloat16, drawn(config, 0))
        optimizer = engine.make_optimizer(settings)
        set_learning_rate(optimizer, 1e-3)
        assert device.take().waits == []
        for _ in range(n_steps):
            loss = engine.forward_backward(tokens, len(tokens))
            norm = engine.gradient_norm()
            fault = is_fault(loss, norm, (10.0, 10.0))
            engine.update(optimizer, settings.optimizer.max_grad_norm, norm, fault)
            Reading(torch.stack([loss, norm]))  # the trainer reads it one step later
        engine.stored("", loss)
    return device


@pytest.mark.parametrize(
    "changes",
    [{}, {"masks": True}, {"pads": True}, {"optimizer": "muon", "n_steps": 1}],
    ids=["clipped", "masks", "padded", "muon"],
)
def test_a_step_asks_the_device_for_nothing(changes: dict[str, object]) -> None:
    device = counted(**changes)  # type: ignore[arg-type]
    assert device.n_waits == 0  # the host's thread waits for gradients; what queues the work never does
    assert device.counts.waits == []
    assert device.races == []


def test_a_layer_takes_as_many_operations_however_many_layers_there_are() -> None:
    """At most 75 for each microbatch, forward, forward again and back; and the ends, with the loss, as many again."""
    counts = [counted(n_layer, 1).counts.n_launched for n_layer in (2, 3, 4)]
    of_a_layer = counts[2] - counts[1]
    assert counts[1] - counts[0] == of_a_layer <= MICROBATCHES * 75
    assert counts[0] - 2 * of_a_layer <= MICROBATCHES * 75


class HostOperations(TorchDispatchMode):
    """Counts the operations that compute or copy; none may use the device."""

    n = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not any(tensor.is_meta for tensor in tensors_of((args, kwargs))), func
        self.n += launches(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("changes", [{}, {"optimizer": "muon"}], ids=str)
def test_the_update_of_a_row_takes_at_most_60_operations_on_the_host_and_none_on_the_device(
    changes: dict[str, object],
) -> None:
    step, found = OffloadedEngine._step, []

    def observed(*arguments: Any) -> None:
        with HostOperations() as host:
            step(*arguments)
        found.append(host.n)

    with patch.object(OffloadedEngine, "_step", observed):
        counted(2, 2, **changes)
    assert len(found) >= 3, "the ends and two layers"
    assert 0 < max(found) <= 60, found
