"""Counts what one rank of a mesh asks of its device: `python counted_mesh.py MESH RANK` prints a line of JSON.

Torch's `fake` process group has any number of ranks in one process and sends nothing. FSDP2 takes the meta device for one
that has no streams and no values yet, so it gets both here.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any
from unittest.mock import patch

import torch
from counted_device import CountedDevice
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from webtext.train import GPT2, TrainSettings
from webtext.train.mesh import MeshShape
from webtext.train.model.compilation import compile_model
from webtext.train.model.loss import WindowRules
from webtext.train.optimizer.optimizer import set_learning_rate
from webtext.train.optimizer.update import is_fault
from webtext.train.parallel.parallelize import ParallelModel

META, MICROBATCHES = torch.device("meta"), 2
PARAMETERS = ("aten._to_copy.default", "aten.add_.Tensor", "aten.copy_.default")
"""FSDP2 casts, adds and copies each parameter's gradient by itself."""


class Streams:
    """A device's module whose streams and events do nothing."""

    def current_device(self) -> int:
        return 0

    def stream(self, _: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: Streams()


def count(mesh: str, rank: int, **changes: Any) -> dict[str, Any]:
    shape = MeshShape.parse(mesh)
    settings = TrainSettings.of(
        **{"n_layer": 12, "n_head": 16, "n_embd": 1024, "batch_size": 4 * shape.n_data, "microbatch_size": 2, **changes}
    )
    with META:
        model = GPT2(settings.config(50257))
        microbatches = [torch.empty(2, settings.context + 1, dtype=torch.long) for _ in range(MICROBATCHES)]
    validates = "torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup._validate_no_meta_params"
    with (
        CountedDevice() as device,
        patch.object(torch, "meta", Streams(), create=True),
        patch(validates, lambda _: None),
    ):
        compile_model(model)
        rules, values = WindowRules.of(settings, 50256), lambda _, size: torch.empty(size, device=META)
        engine = ParallelModel(model, shape, META, dtype=torch.bfloat16, rules=rules, values=values)
        optimizer = engine.make_optimizer(settings)
        for _ in range(2):  # the first one allocates the optimizer's state
            device.take()
            set_learning_rate(optimizer, 1e-3)
            loss = engine.forward_backward(microbatches, MICROBATCHES)
            step = device.take()
            norm = engine.gradient_norm()
            engine.update(optimizer, 1.0, norm, is_fault(loss, norm, (10.0, 10.0)))
            update = device.take()
    of_parameters = sum(step.operations[name] for name in PARAMETERS)
    return {
        "mesh": mesh,
        "rank": rank,
        "waits": step.waits + update.waits,
        "step": (step.n_launched - of_parameters) / MICROBATCHES,
        "of_parameters": of_parameters / MICROBATCHES / len(list(model.parameters())),
        "collectives": sum(n for name, n in step.operations.items() if name.startswith("c10d.")) / MICROBATCHES,
        "blocks": step.regions["forward"] / MICROBATCHES,
        "update": update.n_launched,
    }


def main() -> None:
    mesh, *ranks = sys.argv[1:]
    for rank in map(int, ranks):
        distributed.init_process_group("fake", rank=rank, world_size=MeshShape.parse(mesh).size, store=FakeStore())
        try:
            print(json.dumps(count(mesh, rank)), flush=True)
        finally:
            distributed.destroy_process_group()


if __name__ == "__main__":
    main()
