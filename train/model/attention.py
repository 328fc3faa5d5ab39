"""Causal attention: torch's kernels in an order of preference, or a few large matrix products on a CPU in bfloat16.

On a GPU, compiled steps with document masks use flex attention (Dong et al. 2024), which skips the blocks of scores that
are masked completely. Elsewhere the mask is a matrix, which cuDNN or the efficient kernel adds to the scores.

Torch's CPU kernel works on small tiles, which make bfloat16 products slow: with torch 2.13, a step of 6 layers of 384 takes
one thread 1.09 times as long. Here a block of queries is multiplied with all keys up to the block's end at once. Nothing of
it is kept: the backward pass recomputes its probabilities, as flash attention does (Dao et al. 2022), so memory is linear
in the context.

Shape suffixes as in `gpt2.py`; s is a query of one block, t a key up to the block's end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

    from webtext.train.shape import GPT2Config

    Mask = Tensor | BlockMask

MIN_BLOCK, MAX_BLOCK = 128, 256
"""Queries per block: a quarter of the context within these bounds. Small ones cost more calls, large ones mask more."""
MIN_FLEX_HEAD_SIZE = 16


def attention(q_bhtd: Tensor, k_bhtd: Tensor, v_bhtd: Tensor, mask: Mask | None = None) -> Tensor:
    """Return softmax(q k^T / sqrt(d)) v, [b, h, t, d], where a position sees itself and those before it.

    Queries are of all positions, or of the last one alone. A `mask` permits less: it is added to the scores, or it is
    of `document_blocks`.
    """
    is_causal = mask is None and q_bhtd.shape == k_bhtd.shape
    if is_causal and q_bhtd.device.type == "cpu" and q_bhtd.dtype == torch.bfloat16:
        return cast(Tensor, blocked_attention(q_bhtd, k_bhtd, v_bhtd))
    if mask is None or isinstance(mask, Tensor):
        return functional.scaled_dot_product_attention(q_bhtd, k_bhtd, v_bhtd, mask, is_causal=is_causal)
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q_bhtd, k_bhtd, v_bhtd, block_mask=mask)


def document_blocks(documents_bt: Tensor) -> BlockMask:
    """Return the causal mask of documents for flex attention, [b, 1, t, t]. Compile it; it asks the device for nothing."""
    from torch.nn.attention.flex_attention import create_block_mask

    def sees(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (documents_bt[b, query] == documents_bt[b, key])

    n_windows, t = documents_bt.shape
    return create_block_mask(sees, n_windows, None, t, t, device=documents_bt.device)


def uses_flex(config: GPT2Config, device: torch.device) -> bool:
    """Return whether a compiled training step with document masks uses flex attention."""
    return device.type == "cuda" and config.n_embd // config.n_head >= MIN_FLEX_HEAD_SIZE


def preferred_kernels(device: torch.device) -> list[SDPBackend]:
    """Return torch's kernels for a GPU, best first: cuDNN's use Hopper's instructions, flash attention's Ampere's."""
    first = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
    if torch.cuda.get_device_capability(device) < (9, 0):
        first.reverse()
    return [*first, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@torch.library.custom_op("webtext::blocked_attention", mutates_args=())
def blocked_attention(q_bhtd: Tensor, k_bhtd: Tensor, v_bhtd: Tensor) -> Tensor:
    """Blocked attention as one torch operator, so that torch.compile doesn't trace it."""
    y_bhtd = torch.empty_like(q_bhtd)  # in memory as the query is: the heads of one token are adjacent
    q_bhtd, k_bhtd, v_bhtd = q_bhtd.contiguous() / math.sqrt(q_bhtd.shape[-1]), k_bhtd.contiguous(), v_bhtd.contiguous()
    for block in _blocks(q_bhtd.shape[2]):
        p_bhst = _probabilities(q_bhtd, k_bhtd, block)
        y_bhtd[:, :, block] = p_bhst @ v_bhtd[:, :, : block.stop]
    return y_bhtd


@torch.library.custom_op("webtext::blocked_attention_backward", mutates_args=())
def blocked_attention_backward(
    dy_bhtd: Tensor, q_bhtd: Tensor, k_bhtd: Tensor, v_bhtd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value."""
    b, h, t, d = q_bhtd.shape
    dq_bhtd = torch.empty_like(q_bhtd)
    dk_bhtd, dv_bhtd = (q_bhtd.new_zeros(b, h, t, d, dtype=torch.float32) for _ in range(2))
    q_bhtd, k_bhtd, v_bhtd = q_bhtd.contiguous() / math.sqrt(d), k_bhtd.contiguous(), v_bhtd.contiguous()
    dy_bhtd = dy_bhtd.contiguous()
    for block in _blocks(t):
        until, dy_bhsd = slice(block.stop), dy_bhtd[:, :, block]
        p_bhst = _probabilities(q_bhtd, k_bhtd, block)
        dv_bhtd[:, :, until] += p_bhst.mT @ dy_bhsd
        dp_bhst = dy_bhsd @ v_bhtd[:, :, until].mT
        ds_bhst = torch._softmax_backward_data(dp_bhst, p_bhst, -1, p_bhst.dtype)
        dq_bhtd[:, :, block] = (ds_bhst @ k_bhtd[:, :, until]) / math.sqrt(d)
        dk_bhtd[:, :, until] += ds_bhst.mT @ q_bhtd[:, :, block]
    return dq_bhtd, dk_bhtd.to(q_bhtd.dtype), dv_bhtd.to(q_bhtd.dtype)


blocked_attention.register_fake(lambda q_bhtd, k_bhtd, v_bhtd: torch.empty_like(q_bhtd))
blocked_attention_backward.register_fake(
    lambda dy_bhtd, q_bhtd, *_: (torch.empty_like(q_bhtd), *(q_bhtd.new_empty(q_bhtd.shape) for _ in range(2)))
)
blocked_attention.register_autograd(
    lambda ctx, dy_bhtd: blocked_attention_backward(dy_bhtd, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def _blocks(t: int) -> Iterator[slice]:
    size = min(max(t // 4, MIN_BLOCK), MAX_BLOCK)
    return (slice(start, min(start + size, t)) for start in range(0, t, size))


def _probabilities(scaled_q_bhtd: Tensor, k_bhtd: Tensor, block: slice) -> Tensor:
    scores_bhst = scaled_q_bhtd[:, :, block] @ k_bhtd[:, :, : block.stop].mT
    scores_bhst[..., block] += _mask(block.stop - block.start, scores_bhst.dtype)
    return torch.softmax(scores_bhst, -1)


@functools.cache
def _mask(n: int, dtype: torch.dtype) -> Tensor:
    """-inf above the diagonal, which hides the later keys of a query's own block."""
    return torch.full((n, n), -torch.inf, dtype=dtype).triu(1)
