"""What one process of a mesh sends in a step, counted on torch's fake process group, whose messages go nowhere."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import parallel_child
import pytest
import torch
import torch.testing._internal.distributed.fake_pg  # noqa: F401 - registers the backend
from counted_device import CountedDevice, launches
from torch import Tensor, distributed
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.utils._python_dispatch import TorchDispatchMode

from webtext.train.mesh import MeshShape
from webtext.train.model.initialization import drawn
from webtext.train.parallel.parallelize import ParallelModel
from webtext.train.settings import TrainSettings

N_LAYER = 3
BLOCK = 12 * 32**2 + 13 * 32
ENDS = 256 * 32 + 16 * 32 + 2 * 32
LOSS, NORM = 16, 8
"""Bytes of the two sums over all processes: loss and share of counted targets, and the squares of the gradient."""
_WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique")


class Sent(TorchDispatchMode):
    """Collects the bytes of each message by its kind, and the operations for whose result the host waits."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: Counter[tuple[str, int]] = Counter()
        self.waits: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__.partition(".")[0].strip("_")
        if function.namespace == "c10d":
            tensors = [t for given in args for t in (given if isinstance(given, list) else [given])]
            self.messages[name, max(t.nbytes for t in tensors if isinstance(t, Tensor))] += 1
        by_mask = name == "index" and any(t is not None and t.dtype == torch.bool for t in args[1])
        if function.__name__.partition(".")[0] in _WAITS or by_mask:
            self.waits.append(name)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def mesh(request: pytest.FixtureRequest) -> Iterator[MeshShape]:
    """Be process 0 of a mesh whose other processes do not exist."""
    shape = MeshShape.parse(request.param)
    distributed.init_process_group("fake", store=HashStore(), rank=0, world_size=shape.size)
    yield shape
    distributed.destroy_process_group()


def engine_on(shape: MeshShape, windows: str = "plain", n_layer: int = N_LAYER) -> ParallelModel:
    with torch.device("meta"):
        model = parallel_child.made_model(n_layer, torch.bfloat16)
    settings, values = TrainSettings.of(mesh=str(shape)), drawn(model.config, 0)
    return ParallelModel(model, settings, parallel_child.RULES[windows], parallel_child.CPU, torch.bfloat16, values)


def sent_in_a_step(engine: ParallelModel, n_microbatches: int) -> Counter[tuple[str, int]]:
    with Sent() as sent:
        engine.forward_backward(iter([parallel_child.batch_of(0)[:2]] * n_microbatches), n_microbatches)
        engine.gradient_norm()
    for parameter in engine.parameters.values():
        parameter.grad = None
    return sent.messages


SUMS = {("allreduce", LOSS): 1, ("allreduce", NORM): 1}
REDUCED = {
    "dp=8": {("allreduce", 4 * BLOCK): N_LAYER, ("allreduce", 4 * ENDS): 1},
    "fsdp=8": {
        ("reduce_scatter_base", 4 * BLOCK): N_LAYER,
        ("reduce_scatter_base", 4 * ENDS): 1,
        ("allreduce", BLOCK // 2): N_LAYER,
        ("allreduce", ENDS // 2): 1,
    },
    "dp=2,fsdp=4": {
        ("reduce_scatter_base", 4 * BLOCK): N_LAYER,
        ("reduce_scatter_base", 4 * ENDS): 1,
        ("allreduce", BLOCK): N_LAYER,
        ("allreduce", ENDS): 1,
    },
}


@pytest.mark.parametrize("mesh", REDUCED, indirect=True)
def test_a_step_averages_each_gradient_once_and_scatters_those_of_each_microbatch_to_shards(mesh: MeshShape) -> None:
    """It gathers each parameter once. Gradients are float32 and parameters bfloat16; bytes are of the larger side.

    A mesh with shards sums over replicas even if there is one, which sends nothing. Two steps in a row send the same.
    """
    engine = engine_on(mesh)
    for n in (1, 4):
        expected = dict(SUMS)
        for (kind, n_bytes), count in REDUCED[str(mesh)].items():
            expected[kind, n_bytes] = count * (1 if kind == "allreduce" else n)
        if mesh.fsdp > 1:
            expected |= {("allgather_base", 2 * BLOCK): N_LAYER, ("allgather_base", 2 * ENDS): 1}
        assert [sent_in_a_step(engine, n) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize("mesh", ["fsdp=8"], indirect=True)
def test_a_large_model_is_gathered_block_by_block_for_each_pass(
    mesh: MeshShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webtext.train.parallel.parallelize.LARGEST_GATHERED", 2 * (N_LAYER * BLOCK + ENDS) - 1)
    engine = engine_on(mesh)
    for n in (1, 4):
        sent = sent_in_a_step(engine, n)
        assert sent["allgather_base", 2 * BLOCK] == n * 2 * N_LAYER
        assert sent["allgather_base", 2 * ENDS] == n


@pytest.mark.parametrize("mesh", ["tp=4"], indirect=True)
def test_tensor_parallel_ranks_sum_the_unsplit_gradients_once_per_step(mesh: MeshShape) -> None:
    """Per microbatch they send a hidden state eight times a block, and for both ends of the model four times.

    The loss takes two numbers of each rank for each position, in float32.
    """
    engine, unsplit = engine_on(mesh), 4 * (N_LAYER * 6 * 32 + 16 * 32 + 2 * 32)
    hidden, of_logits = 2 * math.prod((2, 16, 32)), 4 * math.prod((2, 16, 2, 4))
    for n in (1, 4):
        sent = sent_in_a_step(engine, n)
        either_way = sent.pop(("allgather_base", hidden)) + sent.pop(("alltoall_base", hidden))
        assert either_way == n * (8 * N_LAYER + 4)
        assert sent == {("allgather_base", of_logits): n, ("allreduce", unsplit): 1} | SUMS


class Launched(CountedDevice):
    """Counts as if this CPU were the device: shards are not made on meta tensors."""

    def count(self, func: Any, args: Any, kwargs: Any, made: list[Tensor]) -> None:
        if launches(func):
            self.counts.operations[str(func)] += 1


@pytest.mark.parametrize("mesh", ["dp=8", "fsdp=8", "dp=2,fsdp=2,tp=2"], indirect=True)
def test_an_update_launches_as_few_operations_for_any_number_of_layers(mesh: MeshShape) -> None:
    """The norm, and AdamW. The fault is the trainer's."""
    n_launched = []
    for n_layer in (2, 5):
        engine = engine_on(mesh, n_layer=n_layer)
        optimizer = engine.make_optimizer(TrainSettings.of())
        with Launched() as device:
            for _ in range(2):  # the first update makes the optimizer's state
                engine.forward_backward(iter([parallel_child.batch_of(0)[:2]]), 1)
                device.take()
                engine.update(optimizer, 1.0, engine.gradient_norm(), torch.tensor(0.0))
                counts = device.take()
        n_launched.append(counts.n_launched)
    assert n_launched[0] == n_launched[1] <= 60


@pytest.mark.parametrize("windows", ["plain", "masks", "pads"])
@pytest.mark.parametrize("mesh", ["dp=8", "fsdp=8", "dp=2,fsdp=4", "tp=4", "dp=2,fsdp=2,tp=2"], indirect=True)
def test_the_host_waits_for_nothing_that_a_step_or_a_held_out_batch_computes(mesh: MeshShape, windows: str) -> None:
    engine = engine_on(mesh, windows)
    optimizer = engine.make_optimizer(TrainSettings.of())
    microbatch, windows_held_out = parallel_child.batch_of(0)[:2], parallel_child.held_out()
    with Sent() as sent:
        for _ in range(2):
            engine.forward_backward(iter([microbatch] * 2), 2)
            engine.update(optimizer, 1.0, engine.gradient_norm(), torch.tensor(0.0))
        engine.total_loss(windows_held_out, 2)
    assert sent.waits == []
