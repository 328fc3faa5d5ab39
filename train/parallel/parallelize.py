"""A model spread over a mesh: the order in which stages, tensors, shards and replicas are made of it.

    model = ParallelModel(GPT2(config), MeshShape.parse("pp=2,fsdp=2,tp=2"), device, n_microbatches=4)
    loss = model.forward_backward(batches)     # the step's mean over all microbatches and data ranks
    norm = model.clip_gradients(1.0)           # the same bits on every rank
    optimizer.step()

Each rank's parameters are torch's DTensors where they are split, so checkpoints reshard and any elementwise optimizer works.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, distributed, nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from webtext.train.model import GPT2
from webtext.train.parallel import stages
from webtext.train.parallel.mesh import MeshShape
from webtext.train.parallel.pipeline import Pipeline
from webtext.train.parallel.stage import TIED, Stage
from webtext.train.parallel.tensor_parallel import split_tensors


class ParallelModel:
    """This process's part of a model; every process of the mesh makes one, of equal models."""

    def __init__(
        self, model: GPT2, shape: MeshShape, device: torch.device, *, schedule: str = "1f1b", n_microbatches: int = 1
    ) -> None:
        self.shape, self.n_microbatches = shape, n_microbatches
        self.mesh = mesh = shape.build(device.type)
        n_stages = stages.n_stages(schedule, shape.pp)
        numbers = stages.stages_of_rank(schedule, mesh["pp"].get_local_rank(), shape.pp)
        blocks = {i: stages.blocks_of_stage(model.config.n_layer, n_stages, i) for i in numbers}
        self.stages = {i: Stage(model, blocks[i]) for i in numbers}
        for stage in self.stages.values():
            if shape.tp > 1:
                split_tensors(stage.model, mesh["tp"])
                stage.tensor_group = mesh["tp"].get_group()
            self._spread_over_data_ranks(stage)
        self.pipeline: Pipeline | None = None
        self._tied_pair: distributed.ProcessGroup | None = None
        if shape.pp > 1:
            self.pipeline = Pipeline(self.stages, schedule, n_microbatches, mesh["pp"].get_group(), device)
            self._tied_pair = self._join_tied(stages.rank_of_stage(schedule, n_stages - 1, shape.pp))

    def _spread_over_data_ranks(self, stage: Stage) -> None:
        """Block by block, so that one block's gradients are sent while the next one's are computed.

        torch's DistributedDataParallel is silently wrong over tensor parallel parameters; `replicate` is not.
        """
        modules = (*stage.model.blocks.children(), stage)
        if self.shape.fsdp > 1:
            mesh = self.mesh["dp", "fsdp"] if self.shape.dp > 1 else self.mesh["fsdp"]
            for module in modules:  # a pipeline's microbatches use the same parameters again at once
                fully_shard(module, mesh=mesh, reshard_after_forward=self.shape.pp == 1)
        elif self.shape.dp > 1:
            for module in modules:
                replicate(module, mesh=self.mesh["dp"])

    @property
    def data_rank(self) -> int:
        """Which of the `shape.n_data` shares of a batch this process reads."""
        return self.mesh["dp"].get_local_rank() * self.shape.fsdp + self.mesh["fsdp"].get_local_rank()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """This rank's parameters under their names in the whole model, the copy of the tied one among them."""
        for stage in self.stages.values():
            yield from stage.model.named_parameters()

    def parameters(self) -> list[nn.Parameter]:
        """This rank's parameters."""
        return [parameter for _, parameter in self.named_parameters()]

    def forward_backward(self, batches: Iterable[Tensor]) -> Tensor:
        """Add the gradients of a step's microbatches, [b, t + 1] each; returns their mean loss over all data ranks."""
        loss = self._accumulate(batches) if self.pipeline is None else self.pipeline.step(torch.cat(list(batches)))
        for parameter in self.parameters():
            if isinstance(parameter, DTensor) and isinstance(
                parameter.grad, DTensor
            ):  # some are still each tensor parallel rank's summand
                parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
        if self.pipeline is not None:
            self._sum_tied()
        loss = loss.double()  # of the last stage alone, and equal on all tensor parallel ranks
        distributed.all_reduce(loss)
        return loss / (self.shape.n_data * self.shape.tp)

    def _accumulate(self, batches: Iterable[Tensor]) -> Tensor:
        (stage,) = self.stages.values()
        losses = []
        for i, tokens_bt in enumerate(batches):
            if isinstance(stage, FSDPModule):  # only the last backward pass of a step sends gradients around
                stage.set_requires_gradient_sync(i == self.n_microbatches - 1)
            loss: Tensor = stage(tokens_bt[:, :-1], tokens_bt[:, 1:])[0] / self.n_microbatches
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def clip_gradients(self, max_norm: float) -> Tensor:
        """Scale all gradients together to at most `max_norm`; returns their norm before, float64."""
        squares = torch.zeros((), dtype=torch.float64)
        for name, parameter in self.named_parameters():
            if parameter.grad is not None:
                norm = torch.linalg.vector_norm(_local(parameter.grad), dtype=torch.float64)
                squares += norm**2 / self._n_holders(name, parameter)
        distributed.all_reduce(squares)
        norm = squares.sqrt()
        nn.utils.clip_grads_with_norm_(self.parameters(), max_norm, norm)
        return norm

    def _n_holders(self, name: str, parameter: nn.Parameter) -> int:
        """How many processes hold this very piece of a parameter."""
        pieces = 1
        if isinstance(parameter, DTensor):
            sizes = parameter.device_mesh.shape
            pieces = math.prod(
                size for size, placement in zip(sizes, parameter.placements, strict=True) if placement.is_shard()
            )
        is_tied = name == TIED and self.shape.pp > 1
        return self.shape.n_data * self.shape.tp // pieces * (2 if is_tied else 1)

    def _join_tied(self, last_rank: int) -> distributed.ProcessGroup | None:
        """The group of the two ranks that hold the copies of the tied weight; None for others, and where it is one rank."""
        mine = None
        if last_rank:
            for ranks in self.mesh.mesh.flatten(1).T.tolist():  # all processes make all groups, in one order
                pair = distributed.new_group([ranks[0], ranks[last_rank]])
                if distributed.get_rank() in (ranks[0], ranks[last_rank]):
                    mine = pair
        return mine

    def _sum_tied(self) -> None:
        """Give both copies of the tied weight the sum of their gradients."""
        copies = [
            stage.model.token_embedding.weight for stage in self.stages.values() if stage.is_first or stage.is_last
        ]
        gradients = [_local(weight.grad) for weight in copies if weight.grad is not None]
        if len(gradients) == 2:
            gradients[0] += gradients[1]
            gradients[1].copy_(gradients[0])
        elif gradients:
            distributed.all_reduce(gradients[0], group=self._tied_pair)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
