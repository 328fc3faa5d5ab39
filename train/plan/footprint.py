"""Memory of the device that a layout fills most, estimated before anything is allocated. Needs no torch.

It is arithmetic: the tensors of `gpt2.py`, `cross_entropy.py` and the optimizer are counted one by one at the end of a
forward pass, when most are alive. The overhead of the allocator and the libraries is left out. The tensors are float32
master weights, gradients and AdamW's two moments (Rajbhandari et al. 2020, section 3.1) or Muon's one, a bfloat16 copy
of all weights (dtype 'auto' counts as bfloat16), and what the backward pass needs. In a mesh the fullest rank counts:

pp    a rank has only its stages: the first has the embeddings, the last a copy of the token embedding and the logits.
      Under 1f1b, rank r of p keeps the activations of p - r microbatches (Narayanan et al. 2021, section 2.2). Torch
      allocates what a stage receives for all microbatches at once
dp    divides nothing
fsdp  divides parameters, gradients and moments (Rajbhandari et al. 2020, stage 3). Gathered parameters have the step's
      dtype: pipelines and steps of several microbatches keep all of them, others the embeddings and two blocks.
      Gradients are not divided while microbatches are accumulated, because only the last one reduces them
tp    divides matrices, and activations except the gathered inputs of query, key and value and of the feed-forward
      layer (Korthikanti et al. 2022, section 4.2.2; they send those twice instead of keeping them)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from webtext.train.mesh import MeshShape
from webtext.train.plan.layout import Layout
from webtext.train.settings import TrainSettings
from webtext.train.shape import GPT2Config

LOGITS_PER_CHUNK = 2**27  # as in cross_entropy.py, which needs torch
GIB = 2**30
FLOAT32, BFLOAT16 = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one device, by purpose."""

    parameters: int
    gradients: int
    optimizer: int
    cast_parameters: int
    activations: int
    output_layer: int

    @property
    def total(self) -> int:
        """Sum of all purposes."""
        return sum(dataclasses.astuple(self))


def memory_on(config: GPT2Config, settings: TrainSettings, shape: MeshShape, microbatch: int) -> Memory:
    """Return `memory_of_layout` for a run with these settings on a mesh; `MeshShape()` is one device."""
    return memory_of_layout(config, settings, Layout.of(settings, shape, microbatch))


def memory_of_layout(config: GPT2Config, settings: TrainSettings, layout: Layout) -> Memory:
    """Return the bytes on the fullest device, by purpose.

    `cast_parameters` includes gathered parameters, and `activations` what stages receive.
    """
    of_ranks = (_memory_of_rank(config, settings, layout, rank) for rank in layout.fullest_ranks)
    return max(of_ranks, key=lambda memory: memory.total)


def _memory_of_rank(config: GPT2Config, settings: TrainSettings, layout: Layout, rank: int) -> Memory:
    shape, is_float32 = layout.shape, settings.dtype == "float32"
    size, n_tokens = FLOAT32 if is_float32 else BFLOAT16, layout.microbatch * settings.context
    is_first, is_last = layout.ends(rank)
    n_blocks = layout.blocks(config, rank)
    table = -(-config.padded_vocab_size * config.n_embd // shape.tp)
    block = block_parameters(config, shape.tp)
    ends = table * (is_first or is_last) + config.context * config.n_embd * is_first + 2 * config.n_embd * is_last
    if is_first and is_last and shape.pp > 1:
        ends += table  # the two stages of a V schedule have a copy each
    received = 0  # hidden states and their gradients from other ranks, for every microbatch
    if shape.pp > 1:
        received = (2 * layout.chunks - is_first - is_last) * layout.n_microbatches * n_tokens * size * config.n_embd
    whole = ends + n_blocks * block
    mine = -(-whole // shape.fsdp)
    n_hidden = 12 * n_blocks * config.n_embd**2 // shape.tp
    moments = 2 * mine - (-(-n_hidden // shape.fsdp) if settings.optimizer.optimizer == "muon" else 0)
    gathered = whole if shape.pp > 1 or layout.n_microbatches > 1 else ends + min(2, n_blocks) * block
    is_whole = shape.fsdp == 1 or layout.n_microbatches > 1
    casts = (0 if is_float32 else BFLOAT16 * whole) if shape.fsdp == 1 else size * gathered
    logits = min(n_tokens * -(-config.padded_vocab_size // shape.tp), LOGITS_PER_CHUNK)
    # the final norm's output and gradient, the weight's gradient, and a chunk of logits
    output = 2 * size * n_tokens * config.n_embd + FLOAT32 * table + logits * (size + FLOAT32)
    return Memory(
        parameters=FLOAT32 * mine,
        gradients=FLOAT32 * (whole if is_whole else mine + min(2, n_blocks) * block),
        optimizer=FLOAT32 * moments,
        cast_parameters=casts,
        activations=_activations(config, settings, layout, rank, size) + received // shape.tp,
        output_layer=output if is_last else 0,
    )


def block_parameters(config: GPT2Config, tp: int) -> int:
    """Return a block's parameters on one of `tp` ranks: matrices and column biases are split, 6 vectors are not."""
    return -(-(12 * config.n_embd**2 + 7 * config.n_embd) // tp) + 6 * config.n_embd


def _activations(config: GPT2Config, settings: TrainSettings, layout: Layout, rank: int, size: int) -> int:
    """Return the bytes that the microbatches in flight keep for the backward pass, with flash attention.

    They are those of all blocks (`block_activations`) and, on ranks that have them, token ids, a dropout mask and the
    final norm's. Document masks are one matrix per sequence for all layers.
    """
    width, tp, n_blocks = config.n_embd, layout.shape.tp, layout.blocks(config, rank)
    n_tokens = layout.microbatch * settings.context
    norm = (size * width + 2 * size) / tp
    dropout = 1 if config.dropout else 0
    kept, beside = block_activations(config, layout.activation_checkpointing, size, tp)
    is_first, is_last = layout.ends(rank)
    ends = (norm if is_last else 0) + (8 + (tp > 1) + width * dropout / tp if is_first else 0)  # ids; which are here
    masks = size * settings.context if settings.data.document_masks else 0
    return math.ceil(n_tokens * (layout.in_flight(rank) * (n_blocks * kept + ends + masks) + beside))


def block_activations(config: GPT2Config, how: str, size: int, tp: int = 1) -> tuple[float, float]:
    """Return the bytes per token that a block keeps on one of `tp` ranks, and those that it recomputes going back.

    Only one block at a time recomputes. A block has, in numbers of `size` bytes: the inputs of both norms with their
    mean and scale, the input of query, key and value, all three and their output with one float32 per head (Dao et al.
    2022), and the inputs of expand, GELU and contract (C, 4 C, 4 C). Dropout adds a byte for each channel of its two
    masks. Full checkpointing keeps only the block's input. Selective checkpointing also keeps query, key and value, the
    outputs of attention and of its projection (not divided over ranks), and GELU's input. With dropout, attention is
    recomputed and contract's output is kept.
    """
    width = size * config.n_embd
    heads = FLOAT32 * config.n_head / tp
    block = (
        (2 * (width + 2 * size) + 12 * width) / tp
        + 2 * width
        + heads
        + (2 * config.n_embd / tp if config.dropout else 0)
    )
    if how == "none":
        return block, 0
    if how == "full":
        return width / tp, block
    if config.dropout:
        return 8 * width / tp + 2 * width, block - 8 * width / tp
    kept = 9 * width / tp + heads
    return kept + width, block - kept
