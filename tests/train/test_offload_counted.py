"""What an offloaded run asks of its device, counted on a simulated one: nothing waits for a value of a tensor there.

`.item()`, `bool()`, `.cpu()` and indexing by a mask raise for a meta tensor, so a step that ends asked for nothing.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from simulated_device import SimulatedDevice
from torch import Tensor

from webtext.train import GPT2, TrainSettings
from webtext.train.model.initialization import drawn
from webtext.train.model.loss import WindowRules
from webtext.train.offload import rows
from webtext.train.offload.engine import OffloadedEngine
from webtext.train.optimizer.optimizer import set_learning_rate
from webtext.train.optimizer.update import Reading, is_fault
from webtext.train.resilience.distributed import World

META = torch.device("meta")
SHAPE = {"n_head": 2, "n_embd": 32, "context": 16, "batch_size": 4, "microbatch_size": 2, "dtype": "bfloat16"}
FINE = [1.0, 0.0]  # norm and fault


def counted(
    n_layer: int = 2, n_steps: int = 2, *, masks: bool = False, pads: bool = False, **changes: object
) -> SimulatedDevice:
    """Steps of the engine, and what the trainer does around them (`run/trainer.py`)."""
    settings = TrainSettings.of(n_layer=n_layer, offload="host", **{**SHAPE, **changes})
    config = settings.config(250)
    with META:
        model = GPT2(config)
    tokens = [torch.empty(2, 17, dtype=torch.long, device=META) for _ in range(2)]
    with (
        SimulatedDevice() as device,
        patch.object(rows, "ThreadPoolExecutor", device.host_thread),
        patch.object(torch, "get_device_module", lambda _: device),
        patch.object(Reading, "read", lambda _: FINE),
    ):
        rules, world = WindowRules(masks, pads, eot_id=7), World(0, 1, META)
        engine = OffloadedEngine(model, settings, rules, world, torch.bfloat16, drawn(config, 0))
        optimizer = engine.make_optimizer(settings)
        set_learning_rate(optimizer, 1e-3)
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
    [
        {},
        {"max_grad_norm": None},
        {"masks": True, "max_grad_norm": None},
        {"pads": True},
        {"optimizer": "muon", "n_steps": 1},
    ],
    ids=["clipped", "updated early", "masks", "padded", "muon"],
)
def test_a_step_asks_the_device_for_nothing(changes: dict[str, object]) -> None:
    device = counted(**changes)  # type: ignore[arg-type]
    assert device.n_waits == 0  # the host's thread waits for gradients; what queues the work never does
    assert device.counts.waits == []
    assert device.races == []


def test_a_question_to_the_device_is_found() -> None:
    def asking(loss: Tensor, norm: Tensor, limits: tuple[float, float]) -> Tensor:
        return torch.tensor(float(bool(loss <= limits[0])))

    with pytest.raises((RuntimeError, NotImplementedError)), patch(f"{__name__}.is_fault", asking):
        counted()


def test_a_layer_takes_as_many_operations_however_many_layers_there_are() -> None:
    """Two microbatches: forward, forward again and back; what a layer takes beside them is copies and a row of zeros."""
    counts = [counted(n_layer, 1).counts.n_launched for n_layer in (2, 3, 4)]
    assert counts[2] - counts[1] == counts[1] - counts[0] <= 2 * 150
