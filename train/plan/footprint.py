"""Memory of the device that a layout fills most, estimated before anything is allocated. Needs no torch.

The tensors of the model, the loss and the optimizer are counted one by one at the end of a forward pass, when most are
alive: float32 master weights, gradients and AdamW's two moments (Rajbhandari et al. 2020, section 3.1) or Muon's one, a
bfloat16 copy of all weights, and what the backward pass needs. The overhead of the allocator and the libraries is left
out. dtype 'auto' counts as bfloat16, device 'auto' as a GPU that torch compiles for. In a mesh the fullest rank counts:

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


def memory_of_layout(config: GPT2Config, settings: TrainSettings, layout: Layout) -> Memory:
    """Return the bytes on the fullest device, by purpose.

    `cast_parameters` includes gathered parameters, and `activations` what stages receive.
    """
    of_ranks = (_memory_of_rank(config, settings, layout, rank) for rank in layout.fullest_ranks)
    return max(of_ranks, key=lambda memory: memory.total)


def number_bytes(settings: TrainSettings) -> int:
    """Return the size of a number in the dtype of the matrix products."""
    return FLOAT32 if settings.dtype == "float32" else BFLOAT16


def _memory_of_rank(config: GPT2Config, settings: TrainSettings, layout: Layout, rank: int) -> Memory:
    shape, size, n_tokens = layout.shape, number_bytes(settings), layout.microbatch * settings.context
    is_first, is_last = layout.ends(rank)
    n_blocks, accumulates = layout.blocks(config, rank), layout.n_microbatches > 1
    ends, blocks = rank_parameters(config, layout, rank)
    whole, two_blocks = ends + blocks, min(2, n_blocks) * block_parameters(config, shape.tp)
    mine = -(-whole // shape.fsdp)
    n_hidden = 12 * n_blocks * config.n_embd**2 // shape.tp
    moments = 2 * mine - (-(-n_hidden // shape.fsdp) if settings.optimizer.optimizer == "muon" else 0)
    if shape.fsdp == 1:
        casts = 0 if size == FLOAT32 else size * whole
    else:
        casts = size * (whole if shape.pp > 1 or accumulates else ends + two_blocks)
    received = 0  # hidden states and their gradients from other ranks, for every microbatch
    if shape.pp > 1:
        received = (2 * layout.chunks - is_first - is_last) * layout.n_microbatches * n_tokens * size * config.n_embd
    return Memory(
        parameters=FLOAT32 * mine,
        gradients=FLOAT32 * (whole if shape.fsdp == 1 or accumulates else mine + two_blocks),
        optimizer=FLOAT32 * moments,
        cast_parameters=casts,
        activations=_activations(config, settings, layout, rank) + received // shape.tp,
        output_layer=_output_layer(config, settings, n_tokens, shape.tp) if is_last else 0,
    )


def block_parameters(config: GPT2Config, tp: int) -> int:
    """Return a block's parameters on one of `tp` ranks: matrices and column biases are split, 6 vectors are not."""
    return -(-(12 * config.n_embd**2 + 7 * config.n_embd) // tp) + 6 * config.n_embd


def rank_parameters(config: GPT2Config, layout: Layout, rank: int) -> tuple[int, int]:
    """Return the parameters of a rank's ends (embeddings, output layer and final norm), and those of its blocks.

    The first stage of a pipeline and the last have a copy of the token embedding each, also if a V has both on one rank.
    """
    is_first, is_last = layout.ends(rank)
    n_tables = is_first + is_last if layout.shape.pp > 1 else 1
    table = -(-config.padded_vocab_size * config.n_embd // layout.shape.tp)
    ends = n_tables * table + (config.context * is_first + 2 * is_last) * config.n_embd
    return ends, layout.blocks(config, rank) * block_parameters(config, layout.shape.tp)


def _output_layer(config: GPT2Config, settings: TrainSettings, n_tokens: int, tp: int) -> int:
    """Return the bytes of the final norm's output and gradient, of the weight's gradient, and of a chunk of logits.

    The chunk has a float32 copy too where the loss isn't compiled, except on a CPU, which takes a few rows at a time.
    """
    size, columns = number_bytes(settings), -(-config.padded_vocab_size // tp)
    copies = not compiles(settings) and (settings.device != "cpu" or tp > 1)
    logits = min(n_tokens * columns, LOGITS_PER_CHUNK) * (size + FLOAT32 * copies)
    return 2 * size * n_tokens * config.n_embd + FLOAT32 * columns * config.n_embd + logits


def compiles(settings: TrainSettings) -> bool:
    """Return whether a run is compiled; 'auto' compiles on a GPU."""
    return settings.machine.compile == "on" or (settings.machine.compile == "auto" and settings.device != "cpu")


def _activations(config: GPT2Config, settings: TrainSettings, layout: Layout, rank: int) -> int:
    """Return the bytes that the microbatches in flight keep for the backward pass, with flash attention.

    They are those of all blocks (`block_activations`) and, on ranks that have them, token ids, a dropout mask and the
    final norm's. Document masks are one matrix per sequence for all layers, except in flex attention (`attention.py`).
    """
    width, tp, size = config.n_embd, layout.shape.tp, number_bytes(settings)
    kept, beside = block_activations(config, layout.activation_checkpointing, size, tp)
    is_first, is_last = layout.ends(rank)
    ids = 8 + (tp > 1) + (width / tp if config.dropout else 0)  # with tp also whether a rank has the token
    norm = (size * width + 2 * size) / tp
    uses_flex = compiles(settings) and settings.device != "cpu" and not config.dropout
    mask = size * settings.context if settings.data.document_masks and not uses_flex else 0
    of_all = layout.blocks(config, rank) * kept + ids * is_first + norm * is_last + mask
    return math.ceil(layout.microbatch * settings.context * (layout.in_flight(rank) * of_all + beside))


def block_activations(config: GPT2Config, how: str, size: int, tp: int = 1) -> tuple[float, float]:
    """Return the bytes per token that a block keeps on one of `tp` ranks, and those that it recomputes going back.

    Only one block at a time recomputes. A block has, in numbers of `size` bytes: the inputs of both norms with their
    mean and scale, the input of query, key and value, all three and their output with one float32 per head (Dao et al.
    2022), and the inputs of expand, GELU and contract (C, 4 C, 4 C). Dropout adds a byte for each channel of its two
    masks. Full checkpointing keeps only the block's input. Selective checkpointing also keeps query, key and value, the
    outputs of attention and of its projection (not divided over ranks), and GELU's input. With dropout, attention is
    recomputed and contract's output is kept. Compiled blocks keep the same.
    """
    width, heads = size * config.n_embd, FLOAT32 * config.n_head / tp
    masks = 2 * config.n_embd / tp if config.dropout else 0
    block = (14 * width + 4 * size) / tp + 2 * width + heads + masks
    if how == "none":
        return block, 0
    if how == "full":
        return width / tp, block
    if config.dropout:
        return 8 * width / tp + 2 * width, block - 8 * width / tp
    kept = 9 * width / tp + heads
    return kept + width, block - kept
