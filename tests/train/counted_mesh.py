"""Counts what one rank of a mesh asks of its device: `python counted_mesh.py CHANGES MESH RANK ...` prints a line of JSON per
rank. CHANGES are settings as JSON.

Torch's `fake` process group has any number of ranks in one process and sends nothing. FSDP2 takes the meta device for one
that has no streams and no values yet, so it gets both here. The schedules of pipelines ask their first message, once per
run, whether all stages know their shapes.
"""

from __future__ import annotations

import contextlib
import json
import sys
import weakref
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from counted_device import CountedDevice, is_view
from test_counted_steps import ideal_bytes
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from webtext.train import GPT2, TrainSettings
from webtext.train.data.windows import WindowRules, Windows
from webtext.train.mesh import MeshShape
from webtext.train.model.compilation import compile_model
from webtext.train.optimizer.optimizer import is_fault, set_learning_rate
from webtext.train.parallel.parallelize import ParallelModel

META, MICROBATCH = torch.device("meta"), 4


class Streams:
    """A device's module whose streams and events do nothing."""

    def current_device(self) -> int:
        return 0

    def stream(self, _: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: Streams()


class Memory(CountedDevice):
    """Also counts the bytes in use, and the most of them at any message."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.most_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten._to_copy.default or not args[0].is_meta or str(kwargs.get("device")) != "cpu":
            return super().__torch_dispatch__(func, types, args, kwargs)
        result = torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        self.count(func, args, kwargs, [result])
        return result

    def count(self, func: Any, args: Any, kwargs: Any, made: list[Tensor]) -> None:
        super().count(func, args, kwargs, made)
        is_new = not is_view(func)  # a DTensor itself has no memory, but its shard does
        new = [t.untyped_storage() for t in made if is_new and t.is_meta and not isinstance(t, DTensor)]
        self._blocks |= {storage._cdata: weakref.ref(storage) for storage in new}
        if "c10d" in str(func):
            self.most_bytes = max(self.most_bytes, self.used_bytes())

    def used_bytes(self) -> int:
        return sum(0 if (storage := block()) is None else storage.nbytes() for block in self._blocks.values())


def count(mesh: str, rank: int, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of the second step, since the first one allocates the optimizer's state; and of held-out windows."""
    shape = MeshShape.parse(mesh)
    n = max(2, shape.pp)
    sizes = {"n_layer": 12, "n_head": 16, "n_embd": 1024, "batch_size": MICROBATCH * n * shape.n_data}
    settings = TrainSettings.of(**{**sizes, "microbatch_size": MICROBATCH, "mesh": mesh, **changes})
    with META:
        model = GPT2(settings.config(50257))
        microbatches = [torch.empty(MICROBATCH, settings.context + 1, dtype=torch.long) for _ in range(n)]
    stream = np.zeros(8 * settings.context * shape.n_data + 1, np.int64)
    windows = Windows([stream], context=settings.context, stride=None)
    validates = "torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup._validate_no_meta_params"
    reads: list[Tensor] = []
    kept: list[int] = []

    def sampled() -> Iterator[Tensor]:
        for tokens_bt in microbatches:
            kept.append(device.used_bytes())
            yield tokens_bt

    with Memory() as device, patch.object(torch, "meta", Streams(), create=True), patch(validates, lambda _: None):
        model.activation_checkpointing = settings.machine.activation_checkpointing
        compile_model(model)
        rules, home = WindowRules.of(settings, 50256), torch.device("cpu") if settings.machine.offload else META
        arguments = model, settings, rules, META, torch.bfloat16
        engine = ParallelModel(*arguments, values=lambda _, size: torch.empty(size, device=home))
        optimizer = engine.make_optimizer(settings)
        for item in (lambda _: 1, Tensor.item):  # all stages know their shapes
            device.take()
            reads.clear()
            with (
                patch.object(Tensor, "item", item),
                patch.object(Tensor, "tolist", lambda tensor: reads.append(tensor) or [0.0, 1.0]),
            ):
                set_learning_rate(optimizer, 1e-3)
                loss = engine.forward_backward(sampled(), n)
                step = device.take()
                norm = engine.gradient_norm()
                engine.update(optimizer, 1.0, norm, is_fault(loss, norm, (10.0, 10.0)))
                update = device.take()
                engine.total_loss(windows, MICROBATCH)
    ideal = ideal_bytes(model.config, MICROBATCH * settings.context, n)
    return {
        "mesh": mesh,
        "rank": rank,
        "waits": [*step.waits, *update.waits, *device.take().waits],
        "step": step.n_launched / n,
        "blocks": step.regions["forward"] / n,
        "bytes": (step.n_bytes + update.n_bytes) / ideal,
        "update": update.n_launched,
        "reads": len(reads),
        "homes": sorted({str(t.device) for p in engine.parameters.values() for t in (p, *optimizer.state[p].values())}),
        "kept": kept[-1],  # before the last microbatch of the second step
        "most": device.most_bytes,
    }


def main() -> None:
    changes, mesh, *ranks = sys.argv[1:]
    for rank in map(int, ranks):
        size = MeshShape.parse(mesh).size
        distributed.init_process_group("cpu:fake,meta:fake", rank=rank, world_size=size, store=FakeStore())
        try:
            print(json.dumps(count(mesh, rank, json.loads(changes))), flush=True)
        finally:
            distributed.destroy_process_group()


if __name__ == "__main__":
    main()
