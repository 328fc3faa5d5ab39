"""Tensor parallel with sequence parallel (Shoeybi et al. 2019; Korthikanti et al. 2022), by torch's DTensor styles.

Query, key, value and the first feed-forward layer are split by columns, what follows them by rows; between them, norms,
dropout and the residual stream hold a part of the sequence each. Embeddings are split by vocabulary, and the
loss never gathers logits.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from webtext.train.model import GPT2
from webtext.train.parallel.vocab_parallel import VocabParallelCrossEntropy, vocab_parallel_losses

_SEQUENCE, _WHOLE = Shard(1), Replicate()
_BLOCK = {
    "attention_norm": SequenceParallel(),
    "attention": PrepareModuleInput(input_layouts=(_SEQUENCE, None), desired_input_layouts=(_WHOLE, None)),
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.projection": RowwiseParallel(output_layouts=_SEQUENCE),
    "feed_forward_norm": SequenceParallel(),
    "feed_forward": PrepareModuleInput(input_layouts=_SEQUENCE, desired_input_layouts=_WHOLE),
    "feed_forward.expand": ColwiseParallel(),
    "feed_forward.contract": RowwiseParallel(output_layouts=_SEQUENCE),
}


def split_tensors(model: GPT2, mesh: DeviceMesh) -> None:
    """Turn the parameters of a model, or of one stage of it, into DTensors over the one-dimensional `mesh`, in place.

    Heads, positions and rows of the embedding must divide (`refusal.py`).
    """
    for block in model.blocks.children():
        parallelize_module(block, mesh, _BLOCK)
    children = dict(model.named_children())
    if "token_embedding" in children:
        # torch's style shards the columns of this class and no other's.
        n_rows, width = model.token_embedding.weight.shape
        embedding = nn.Embedding(n_rows, width, device="meta")
        embedding.weight = model.token_embedding.weight
        style = RowwiseParallel(input_layouts=_WHOLE, output_layouts=_SEQUENCE)
        model._modules["token_embedding"] = parallelize_module(embedding, mesh, style)
    if "position_embedding" in children:
        _split_positions(model.position_embedding, mesh)
    if "final_norm" in children:
        parallelize_module(model.final_norm, mesh, SequenceParallel())


def _split_positions(embedding: nn.Embedding, mesh: DeviceMesh) -> None:
    """Every rank holds all positions, and gives those of its part of the sequence."""

    def replicate(name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        module.register_parameter("weight", nn.Parameter(distribute_tensor(embedding.weight.detach(), mesh, [_WHOLE])))

    def whole(module: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
        return (DTensor.from_local(inputs[0], mesh, [_WHOLE], run_check=False),)

    def part(module: nn.Module, output: Any, mesh: DeviceMesh) -> Any:
        return output.redistribute(placements=[Shard(0)]).to_local()

    distribute_module(embedding, mesh, replicate, whole, part)


def tensor_parallel_loss(
    hidden_btc: Tensor,
    weight_vc: Tensor,
    targets_n: Tensor,
    vocab_size: int,
    group: ProcessGroup,
    counted_n: Tensor | None = None,
) -> Tensor:
    """The loss of a hidden state that lies over `group` by position; hidden state and output weights are DTensors.

    As `cross_entropy.linear_cross_entropy`, its mean over the positions where `counted_n` is true.
    """
    # Each rank's gradient of the hidden state is a summand: going back, they are summed as they are scattered.
    hidden_nc = _gathered(hidden_btc).to_local(grad_placements=[Partial()]).flatten(0, 1)
    loss: Tensor = VocabParallelCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_nc, _own(weight_vc), targets_n, vocab_size, group, counted_n
    )
    return loss


def tensor_parallel_token_losses(
    hidden_btc: Tensor, weight_vc: Tensor, targets_n: Tensor, vocab_size: int, group: ProcessGroup
) -> Tensor:
    """The loss of each position, [n], the same on all ranks; without gradient."""
    hidden_nc = _gathered(hidden_btc).to_local().flatten(0, 1)
    return vocab_parallel_losses(hidden_nc, _own(weight_vc), targets_n, vocab_size, group)


def _gathered(hidden_btc: Tensor) -> DTensor:
    assert isinstance(hidden_btc, DTensor)
    return hidden_btc.redistribute(placements=[_WHOLE])


def _own(weight_vc: Tensor) -> Tensor:
    assert isinstance(weight_vc, DTensor)
    return weight_vc.to_local()
