"""Spread a model over a mesh: first into stages, then split tensors, then shards or replicas.

The order is forced: a stage is a smaller model, tensor parallel splits its parameters into plain tensors
(`tensor_parallel.py`), and FSDP2 shards the result. Replicas are our own copies, because FSDP2 on a mesh of one shard
takes four times the operations (docs/tried/train.md).

The optimizer updates the rank's own shard of a parameter as a plain tensor on the same memory, so any elementwise
optimizer works as in one process (torch's fused AdamW doesn't take a mixture of DTensors and plain tensors). `stored`
wraps such a shard, or its optimizer state, as a DTensor, so checkpoints can be resharded.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed import new_subgroups_by_enumeration
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard

from webtext.train.data.windows import WindowRules, Windows
from webtext.train.distributed import HANG_TIMEOUT
from webtext.train.engine import Engine
from webtext.train.mesh import AXES, LARGEST_GATHERED, blocks_of_stage, n_stages, stages_of_rank
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.initialization import TOKEN_EMBEDDING, Values
from webtext.train.model.precision import cast_parameters
from webtext.train.parallel.stage import Stage, pipeline
from webtext.train.parallel.tensor_parallel import split_axis, split_tensors
from webtext.train.settings import TrainSettings


class ParallelModel(Engine):
    """The Engine of one process of a mesh. Every process makes one, and all call the same methods.

    `model` is on the meta device. Memory is allocated only for this process's shards, and their initial values come from
    one full parameter at a time. With `offload`, FSDP2 keeps the shards on the host, where they are updated.
    """

    def __init__(
        self,
        model: GPT2,
        settings: TrainSettings,
        rules: WindowRules,
        device: torch.device,
        dtype: torch.dtype,
        values: Values,
    ) -> None:
        self.device, self.dtype, self.rules, self.machine = device, dtype, rules, settings.machine
        self.home = torch.device("cpu") if self.machine.offload else device
        self.shape = shape = self.machine.mesh_shape(distributed.get_world_size())
        self.mesh = mesh = init_device_mesh(device.type, astuple(shape), mesh_dim_names=AXES)
        self.n_data = shape.n_data
        self.data_rank = mesh.get_local_rank("dp") * shape.fsdp + mesh.get_local_rank("fsdp")
        self._shapes = shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        n = n_stages(schedule := self.machine.pipeline_schedule, shape.pp)
        numbers = stages_of_rank(schedule, mesh.get_local_rank("pp"), shape.pp)
        self.stages = {i: Stage(model, blocks_of_stage(model.config.n_layer, n, i), dtype, rules) for i in numbers}
        self._pieces: dict[str, Tensor] = {}  # DTensors where data ranks share
        for stage in self.stages.values():
            if shape.tp > 1:
                stage.tensor_group = mesh.get_group("tp")
                split_tensors(stage.model, stage.tensor_group)
            if shape.fsdp > 1:
                self._shard(stage)
            stage.to_empty(device=self.home)
            for name, piece in stage.model.named_parameters():
                self._fill(name, piece, values(name, shapes[name]))
                self._pieces[name] = piece
        self.parameters = {name: nn.Parameter(_local(piece.detach())) for name, piece in self._pieces.items()}
        split = ("tp", "dp", "fsdp")  # in this order: FSDP2 shards the parts that tensor parallel made
        ranks = mesh["dp", "fsdp", "tp"].mesh.permute(2, 0, 1).contiguous()
        groups, kinds = list(map(mesh.get_group, split)), {device.type, self.home.type}
        self._stored_on = {kind: DeviceMesh.from_group(groups, kind, ranks, mesh_dim_names=split) for kind in kinds}
        self._pipelines: dict[tuple[bool, int], Any] = {}  # torch's schedules
        self._tied_pair: distributed.ProcessGroup | None = None  # of the ranks with the tied weight's two copies
        if shape.pp > 1:
            pairs = [[first, last] for first, *_, last in mesh.mesh.flatten(1).T.tolist()]
            self._tied_pair, _ = new_subgroups_by_enumeration(pairs, HANG_TIMEOUT)  # type: ignore[no-untyped-call]

    def _shard(self, stage: Stage) -> None:
        """Shard block by block, so that one block's gradients are sent while the next one's are computed.

        FSDP2 also casts: a step computes in `dtype`, and gradients are summed in the parameters' own dtype. On a mesh
        with an axis of replicas, even of one, it sums the shards of several passes in one operation per block.
        """
        n_bytes = sum(p.numel() for p in stage.parameters()) * self.dtype.itemsize
        self._regathers = self.shape.pp == 1 and (n_bytes > LARGEST_GATHERED or self.machine.offload)
        policy = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=next(stage.parameters()).dtype)
        pins = self.device.type == "cuda"
        where = CPUOffloadPolicy(pin_memory=pins) if self.machine.offload else OffloadPolicy()
        for module in (*stage.model.blocks.children(), stage):
            reshards = self._regathers and module is not stage  # with whose own parameters the backward pass begins
            sharded = fully_shard(
                module,
                mesh=self.mesh["dp", "fsdp"],
                mp_policy=policy,
                offload_policy=where,
                reshard_after_forward=reshards,
            )
            sharded.set_force_sum_reduction_for_comms(True)  # NCCL's mean over one replica may be wrong

    @torch.no_grad()
    def _fill(self, name: str, piece: Tensor, values: Tensor) -> None:
        """Copy this rank's part of a full parameter's values into its shard."""
        axis = split_axis(name)
        if axis is not None:
            values = _part(values, self.mesh["tp"], axis)
        _local(piece).copy_(_part(values, self.mesh["fsdp"], 0))

    def forward_backward(self, microbatches: Iterable[Tensor], n_microbatches: int) -> Tensor:
        """Set the gradients of a step's microbatches, [b, t + 1] each; return their mean loss over all data ranks."""
        with self._casts(n_microbatches):
            if self.shape.pp > 1:
                tokens_bt = torch.cat(list(microbatches))
                loss = self._through_pipeline(tokens_bt, n_microbatches)
                loss = torch.zeros((), device=self.device) if loss is None else loss
                share = self.rules.counted_share(tokens_bt[:, :-1])
            else:
                loss, share = self._accumulate(microbatches, n_microbatches)
        # Only the last stage of a pipeline has a loss, on all its tensor parallel ranks; all ranks have the share.
        sums = torch.stack([loss.double(), share.double() / self.shape.pp])  # one message for both
        distributed.all_reduce(sums)
        self._take_gradients()
        loss, self.share = (sums / self.shape.tp / self.n_data).unbind()
        return loss / self.share

    @contextlib.contextmanager
    def _casts(self, n_passes: int = 0) -> Iterator[None]:
        """Compute in `dtype` in the block; average the gradients of `n_passes` backward passes over replicas.

        Where there are shards, FSDP2 does both.
        """
        sent: list[distributed.Work] = []

        def average(sums: Tensor) -> None:
            sums /= self.shape.dp
            sent.append(distributed.all_reduce(sums, group=self.mesh.get_group("dp"), async_op=True))

        when_summed = average if n_passes and self.shape.dp > 1 else None
        with contextlib.ExitStack() as stack:
            for stage in self.stages.values() if self.shape.fsdp == 1 else ():
                stack.enter_context(cast_parameters(stage.model, self.dtype, n_passes, when_summed))
            yield
        for work in sent:
            work.wait()

    def _accumulate(self, microbatches: Iterable[Tensor], n: int) -> tuple[Tensor, Tensor]:
        (stage,) = self.stages.values()
        losses, shares = [], []
        for i, tokens_bt in enumerate(microbatches):
            if isinstance(stage, FSDPModule):  # each pass adds to this rank's shards; the last one sums over replicas
                stage.set_requires_all_reduce(i == n - 1)
                stage.set_reshard_after_backward(self._regathers or i == n - 1)
            loss: Tensor = stage(tokens_bt[:, :-1], tokens_bt)[0] / n
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            shares.append(self.rules.counted_share(tokens_bt[:, :-1]) / n)
        return torch.stack(losses).sum(), torch.stack(shares).sum()

    def _through_pipeline(self, tokens_bt: Tensor, n: int) -> Tensor | None:
        """Run n microbatches, whose shape is the same in all steps, through the stages of all ranks.

        With gradients, which it sets, it returns their mean loss; without, each target's; and None where the last stage isn't.
        """
        key, inputs_bt = (torch.is_grad_enabled(), len(tokens_bt)), tokens_bt[:, :-1]
        if key not in self._pipelines:
            microbatch, group = inputs_bt[: len(tokens_bt) // n], self.mesh.get_group("pp")
            self._pipelines[key] = pipeline(self.stages, microbatch, self.machine.pipeline_schedule, n, group)
        inputs = (inputs_bt,) if 0 in self.stages else ()
        if not torch.is_grad_enabled():
            return cast("Tensor | None", self._pipelines[key].eval(*inputs, tokens_bt=tokens_bt))
        how: dict[str, Any] = {"target": tokens_bt, "losses": [], "return_outputs": False}
        self._pipelines[key].step(*inputs, tokens_bt=tokens_bt, **how)
        return torch.stack(how["losses"]).detach().sum() if how["losses"] else None

    def _take_gradients(self) -> None:
        """Move the gradients to the parameters that the optimizer updates."""
        gradients = {name: _local(piece.grad) for name, piece in self._pieces.items() if piece.grad is not None}
        if self.shape.tp > 1:  # gradients of what isn't split are of a part of the sequence: summed in one message
            parts = {name: gradient for name, gradient in gradients.items() if split_axis(name) is None}
            flat = torch.cat([part.flatten() for part in parts.values()])
            distributed.all_reduce(flat, group=self.mesh.get_group("tp"))
            sums = torch.split(flat, [part.numel() for part in parts.values()])
            gradients |= {name: total.view_as(parts[name]) for name, total in zip(parts, sums, strict=True)}
        if self.shape.pp > 1 and TOKEN_EMBEDDING in gradients:
            distributed.all_reduce(gradients[TOKEN_EMBEDDING], group=self._tied_pair)
        for name, piece in self._pieces.items():
            self.parameters[name].grad, piece.grad = gradients.get(name), None

    def gradient_norm(self) -> Tensor:
        """Return the norm in float64: each shard's squares, divided by its number of copies, summed over all ranks."""
        by_holders: dict[int, list[Tensor]] = defaultdict(list)
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                by_holders[self._n_holders(name)].append(parameter.grad)
        squares = torch.zeros((), dtype=torch.float64, device=self.device)
        for n, gradients in by_holders.items():
            squares += nn.utils.get_total_norm(gradients).double() ** 2 / n
        distributed.all_reduce(squares)  # torch's own norm of a DTensor reduces over one mesh, not over stages too
        return squares.sqrt() / self.share

    def _n_holders(self, name: str) -> int:
        """Return how many processes have the same shard of a parameter."""
        n = self.shape.dp * (self.shape.tp if split_axis(name) is None else 1)
        return 2 * n if name == TOKEN_EMBEDDING and self._tied_pair is not None else n

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        """Return the DTensor whose local shard is `tensor`, on a mesh of its device; a meta tensor's is the run's."""
        axis, shape = split_axis(name), self._shapes[name]
        return DTensor.from_local(
            tensor.detach(),
            self._stored_on[self.device.type if tensor.is_meta else tensor.device.type],
            (Replicate() if axis is None else Shard(axis), Replicate(), Shard(0)),
            run_check=False,
            shape=shape,
            stride=torch.empty(shape, device="meta").stride(),
        )

    @torch.no_grad()
    def total_loss(self, windows: Windows, batch_size: int) -> tuple[float, int]:
        # Each rank of a pipeline computes its stages of a batch while the others compute theirs of other batches.
        n, total = self.shape.pp, torch.zeros(2, dtype=torch.float64, device=self.device)
        with torch.compiler.set_stance("force_eager"), self._casts():
            for tokens_bt, is_scored_bt in _batches(windows, batch_size * n, self.data_rank, self.n_data):
                tokens_bt, is_scored_bt = (x.to(self.device, non_blocking=True) for x in (tokens_bt, is_scored_bt))
                losses_bt = self._losses(tokens_bt)
                if losses_bt is not None:
                    total += torch.stack([losses_bt.double().where(is_scored_bt, 0).sum(), is_scored_bt.sum()])
        for stage in self.stages.values():
            for module in stage.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()
        distributed.all_reduce(total)
        loss, n_scored = (total / self.shape.tp).tolist()
        return loss, round(n_scored)

    def _losses(self, tokens_bt: Tensor) -> Tensor | None:
        """Return the loss of each token after the first, [b, t], or None if this rank doesn't have the last stage."""
        if self.shape.pp > 1:
            return self._through_pipeline(tokens_bt, self.shape.pp)
        (stage,) = self.stages.values()
        losses_bt: Tensor = stage(tokens_bt[:, :-1], tokens_bt)
        return losses_bt


def _batches(windows: Windows, size: int, data_rank: int, n_data: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tokens [size, context + 1] and which after the first are scored [size, context]; as often on all ranks.

    Windows are padded on the right, and a rank with fewer batches than others gets some that don't count: shards, tensor
    parallel ranks and pipelines must send the same shapes equally often.
    """
    n_batches = math.ceil(len(windows) / n_data / size)
    for first in range(0, n_batches * size, size):
        tokens_bt = np.zeros((size, windows.context + 1), np.int64)
        is_scored_bt = np.zeros((size, windows.context), bool)
        for row in range(size):
            number = (first + row) * n_data + data_rank
            if number < len(windows):
                tokens, n_scored = windows.window(number)
                tokens_bt[row, : len(tokens)] = tokens
                is_scored_bt[row, len(tokens) - 1 - n_scored : len(tokens) - 1] = True
        yield torch.from_numpy(tokens_bt), torch.from_numpy(is_scored_bt)


def _part(tensor: Tensor, mesh: DeviceMesh, axis: int) -> Tensor:
    """Return this rank's share of a tensor that is split along `axis` over a mesh of one axis, empty on some ranks."""
    parts, rank = tensor.chunk(mesh.size(), axis), mesh.get_local_rank()
    return parts[rank] if rank < len(parts) else tensor[:0]


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
