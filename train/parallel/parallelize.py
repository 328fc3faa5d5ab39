"""Spread a model over a mesh: first into stages, then split tensors, then shards or replicas.

    with torch.device("meta"):
        model = GPT2(config)
    model = ParallelModel(model, MeshShape.parse("pp=2,fsdp=2,tp=2"), device, dtype=torch.bfloat16, rules=WindowRules())
    optimizer = torch.optim.AdamW(model.parameters.values())
    loss = model.forward_backward(microbatches, n)     # the step's mean over all microbatches and data ranks
    norm = model.gradient_norm()                       # the same bits on every rank

Tensor parallel splits parameters into plain tensors (`tensor_parallel.py`), of which torch makes its shards. The
optimizer updates the rank's own shard of a parameter as a plain tensor on the same memory, so any elementwise optimizer
works as in one process (torch's fused AdamW doesn't take a mixture of DTensors and plain tensors). `stored` wraps such
a shard, or its optimizer state, as a DTensor, so checkpoints can be resharded.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.optim import Optimizer

from webtext.train.data.windows import WindowRules, Windows
from webtext.train.mesh import MeshShape, blocks_of_stage, n_stages, stages_of_rank
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.initialization import TOKEN_EMBEDDING, Values, drawn
from webtext.train.model.precision import GradientSums, cast_parameters
from webtext.train.optimizer.optimizer import make_optimizer, update
from webtext.train.parallel.stage import Pipeline, Stage, StageWalk
from webtext.train.parallel.tensor_parallel import split_axis, split_tensors
from webtext.train.settings import TrainSettings


class ParallelModel:
    """The Engine of one process of a mesh. Every process makes one, and all call the same methods.

    `model` is on the meta device. Memory is allocated only for this process's shards of its stages' parameters. They
    get their initial values from one full parameter at a time (`initialization.py`).
    """

    updates_early = False

    def __init__(
        self,
        model: GPT2,
        shape: MeshShape,
        device: torch.device,
        *,
        dtype: torch.dtype,
        rules: WindowRules,
        schedule: str = "1f1b",
        values: Values | None = None,
    ) -> None:
        self.config, self.shape, self.device, self.dtype = model.config, shape, device, dtype
        self.rules, self.schedule = rules, schedule
        self.mesh = mesh = shape.build(device.type)
        self._shapes = shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        self._is_compiled, self._n_passes = model.is_compiled, 1
        self._sums: dict[nn.Module, GradientSums] = {}  # of modules with shards
        values = values or drawn(model.config, 0)
        n = n_stages(schedule, shape.pp)
        numbers = stages_of_rank(schedule, mesh.get_local_rank("pp"), shape.pp)
        blocks = {i: blocks_of_stage(model.config.n_layer, n, i) for i in numbers}
        self.stages = {i: Stage(model, blocks[i], dtype) for i in numbers}
        for stage in self.stages.values():
            if shape.tp > 1:
                stage.tensor_group = mesh.get_group("tp")
                split_tensors(stage.model, stage.tensor_group)
            self._spread_over_data_ranks(stage)
            stage.to_empty(device=device)
            for name, parameter in stage.model.named_parameters():
                self._fill(name, parameter, values(name, shapes[name]))
        named = (stage.model.named_parameters() for stage in self.stages.values())
        self._pieces = dict(itertools.chain(*named))  # what FSDP2 and the stages have: DTensors where data ranks share
        self.parameters = {name: nn.Parameter(_local(piece.detach())) for name, piece in self._pieces.items()}
        self._stored_mesh = _in_order_of_splitting(mesh["dp", "fsdp", "tp"])
        self._pipeline: Pipeline | None = None
        self._tied_pair = self._join_tied() if shape.pp > 1 else None

    def _spread_over_data_ranks(self, stage: Stage) -> None:
        """Shard block by block, so that one block's gradients are sent while the next one's are computed.

        The same wrapper casts: a step computes in `dtype`, and gradients are summed in the parameters' own dtype.
        The backward pass begins with what the stage has outside its blocks. Without shards, `_casts` does both.
        """
        if self.shape.fsdp == 1:
            return
        own = next(stage.parameters()).dtype
        policy = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=own)
        mesh = self.mesh["dp", "fsdp"] if self.shape.dp > 1 else self.mesh["fsdp"]
        for module in (*stage.model.blocks.children(), stage):
            fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
            if self.dtype != own:
                module.register_forward_pre_hook(self._sum_together)

    def _sum_together(self, module: nn.Module, _: Any) -> None:
        """Sum the gradients of a module with shards in one operation; FSDP2 takes one for each parameter."""
        if self._n_passes > 1 and module not in self._sums:
            own = [p for name, p in module.named_parameters() if not name.startswith("model.blocks.")]
            for parameter in own:
                parameter.grad_dtype = None  # any: of a pass in `dtype`, of a step in the parameters' own
            dtype = next(iter(self.parameters.values())).dtype
            self._sums[module] = GradientSums([(p, p) for p in own], dtype, compiled=self._is_compiled)
        if module in self._sums:
            self._sums[module].n_passes = self._n_passes

    @torch.no_grad()
    def _fill(self, name: str, piece: Tensor, values: Tensor) -> None:
        """Copy this rank's part of a full parameter's values into its shard."""
        axis = split_axis(name)
        if axis is not None:
            values = _part(values, self.mesh["tp"], axis)
        _local(piece).copy_(_part(values, self.mesh["fsdp"], 0))

    @property
    def data_rank(self) -> int:
        """Index of the share of a batch, of `n_data`, that this process reads."""
        return self.mesh.get_local_rank("dp") * self.shape.fsdp + self.mesh.get_local_rank("fsdp")

    @property
    def n_data(self) -> int:
        """Number of shares of a batch: replicas times shards."""
        return self.shape.n_data

    def forward_backward(self, microbatches: Iterable[Tensor], n_microbatches: int) -> Tensor:
        """Set the gradients of a step's microbatches, [b, t + 1] each; return their mean loss over all data ranks."""
        with self._casts(n_microbatches):
            if self.shape.pp > 1:
                loss, share = self._through_pipeline(torch.cat(list(microbatches)), n_microbatches)
            else:
                loss, share = self._accumulate(microbatches, n_microbatches)
        # Only the last stage of a pipeline has a loss, on all its tensor parallel ranks; all ranks have the share.
        sums = torch.stack([loss.double(), share.double() / self.shape.pp])  # one message for both
        distributed.all_reduce(sums)
        total, shares = sums / self.shape.tp
        return self.rules.mean_over_counted(total / self.n_data, shares / self.n_data, self._take_gradients())

    @contextlib.contextmanager
    def _casts(self, n_passes: int = 0) -> Iterator[None]:
        """Compute in `dtype` in the block; average the gradients of `n_passes` backward passes over replicas."""
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
        self._n_passes = n
        if isinstance(stage, FSDPModule):
            self._gather_once_or_twice(stage, is_once=n > 1)
        for i, tokens_bt in enumerate(microbatches):
            if isinstance(stage, FSDPModule):  # only the last backward pass of a step sums gradients over ranks
                stage.set_requires_gradient_sync(i == n - 1)
                stage.set_reshard_after_backward(i == n - 1)
            inputs_bt = tokens_bt[:, :-1]
            how = {"documents_bt": self.rules.documents(inputs_bt), "counted_bt": self.rules.counted(inputs_bt)}
            loss: Tensor = stage(inputs_bt, tokens_bt[:, 1:], **how)[0] / n
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            shares.append(self.rules.counted_share(inputs_bt) / n)
        return torch.stack(losses).sum(), torch.stack(shares).sum()

    def _gather_once_or_twice(self, stage: FSDPModule, *, is_once: bool) -> None:
        """Keep a step's gathered parameters for all its microbatches, or only until a block's forward pass is over.

        Gradients that are summed over microbatches have the whole parameters' size anyway, in float32. A step of one
        microbatch keeps no such sums, and gathers each block again, except those with which the backward pass begins.
        """
        stage.set_reshard_after_forward(not is_once)
        stage.set_reshard_after_forward(False, recurse=False)
        *_, last = cast(Stage, stage).model.blocks.children()
        cast(FSDPModule, last).set_reshard_after_forward(False)

    def _through_pipeline(self, tokens_bt: Tensor, n: int) -> tuple[Tensor, Tensor]:
        inputs_bt = tokens_bt[:, :-1]
        if self._pipeline is None:
            shapes = {i: stage.example(inputs_bt[: len(inputs_bt) // n]) for i, stage in self.stages.items()}
            self._pipeline = Pipeline(self.stages, shapes, self.schedule, n, self.mesh.get_group("pp"), self.device)
        self._n_passes = n
        loss = self._pipeline.step(tokens_bt, self.rules.documents(inputs_bt), self.rules.counted(inputs_bt))
        return loss, self.rules.counted_share(inputs_bt)

    def _take_gradients(self) -> list[Tensor]:
        """Move the gradients to the parameters that the optimizer updates, and return them."""
        gradients = {name: _local(piece.grad) for name, piece in self._pieces.items() if piece.grad is not None}
        if self.shape.tp > 1:
            gradients |= self._summed_over_parts_of_the_sequence(gradients)
        if self.shape.pp > 1 and TOKEN_EMBEDDING in gradients:
            distributed.all_reduce(gradients[TOKEN_EMBEDDING], group=self._tied_pair)
        for name, gradient in gradients.items():
            self.parameters[name].grad = gradient
        for piece in self._pieces.values():
            piece.grad = None
        return list(gradients.values())

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
        return squares.sqrt()

    def _n_holders(self, name: str) -> int:
        """Return how many processes have the same shard of a parameter."""
        n = self.shape.dp * (self.shape.tp if split_axis(name) is None else 1)
        return 2 * n if name == TOKEN_EMBEDDING and self._tied_pair is not None else n

    def make_optimizer(self, settings: TrainSettings) -> Optimizer:
        """Return an optimizer of this process's parameters."""
        return make_optimizer(self.parameters, settings, self.stored)

    def update(self, optimizer: Optimizer, max_norm: float | None, norm: Tensor, fault: Tensor) -> None:
        """Update this process's parameters, by the norm and fault that all processes share."""
        update(optimizer, norm, max_norm, fault)
        optimizer.zero_grad(set_to_none=True)

    def parameters_changed(self) -> None:
        """Do nothing, because nothing is derived from the parameters."""

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        """Return the DTensor whose local shard is `tensor`."""
        axis, shape = split_axis(name), self._shapes[name]
        return DTensor.from_local(
            tensor.detach(),
            self._stored_mesh,
            (Replicate() if axis is None else Shard(axis), Replicate(), Shard(0)),
            run_check=False,
            shape=shape,
            stride=torch.empty(shape, device="meta").stride(),
        )

    @torch.no_grad()
    def total_loss(self, windows: Windows, batch_size: int) -> tuple[float, int]:
        """Return the summed loss and its number of tokens, computed as in a step but uncompiled, stage after stage."""
        for stage in self.stages.values():
            stage.eval()
        ranks = [i % self.shape.pp for i in range(n_stages(self.schedule, self.shape.pp))]
        walk = StageWalk(self.stages, ranks, self.mesh.get_group("pp"), self.rules, self.device)
        with torch.compiler.set_stance("force_eager"), self._casts():
            total = walk.total_loss(windows, batch_size, self.data_rank, self.n_data)
        for stage in self.stages.values():
            stage.train()
            for module in stage.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()
        distributed.all_reduce(total)
        loss, n_scored = (total / self.shape.tp).tolist()
        return loss, round(n_scored)

    def _join_tied(self) -> distributed.ProcessGroup | None:
        """Return the group of the two ranks with the tied weight's copies, the first and the last; None for others."""
        mine = None
        for first, *_, last in self.mesh.mesh.flatten(1).T.tolist():  # all processes must make all groups, in one order
            pair = distributed.new_group([first, last])
            if distributed.get_rank() in (first, last):
                mine = pair
        return mine

    def _summed_over_parts_of_the_sequence(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums of the gradients of parameters that tensor parallel doesn't split, made in one message."""
        summands = {name: gradient for name, gradient in gradients.items() if split_axis(name) is None}
        flat = torch.cat([summand.flatten() for summand in summands.values()])
        distributed.all_reduce(flat, group=self.mesh.get_group("tp"))
        sums = torch.split(flat, [summand.numel() for summand in summands.values()])
        return {name: total.view_as(summands[name]) for name, total in zip(summands, sums, strict=True)}


def _in_order_of_splitting(mesh: DeviceMesh) -> DeviceMesh:
    """Return the mesh ["dp", "fsdp", "tp"] as ["tp", "dp", "fsdp"]: FSDP2 shards what tensor parallel has split."""
    groups = [mesh.get_group(axis) for axis in ("tp", "dp", "fsdp")]
    ranks = mesh.mesh.permute(2, 0, 1).contiguous()
    return DeviceMesh.from_group(groups, mesh.device_type, ranks, mesh_dim_names=("tp", "dp", "fsdp"))


def _part(tensor: Tensor, mesh: DeviceMesh, axis: int) -> Tensor:
    """Return this rank's share of a tensor that is split along `axis` over a mesh of one axis, empty on some ranks."""
    parts, rank = tensor.chunk(mesh.size(), axis), mesh.get_local_rank()
    return parts[rank] if rank < len(parts) else tensor[:0]


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
