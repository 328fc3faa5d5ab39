"""Blocked attention compared with torch's in float32, for all shapes; it sees no later tokens and bounds its memory.

On a GPU: which of torch's kernels is used, and the blocks of document masks.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from webtext.train import GPT2Config
from webtext.train.model import attention as module
from webtext.train.model.attention import attention, document_blocks, preferred_kernels, uses_flex

BFLOAT16 = torch.bfloat16


def vectors(b: int, h: int, t: int, d: int, seed: int = 0) -> list[Tensor]:
    """Return query, key, value and the output's gradient in the model's layout: the heads of a token are adjacent."""
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(b, t, h, d, generator=generator).to(BFLOAT16).transpose(1, 2) for _ in range(4)]
    return [*(x.requires_grad_() for x in made[:3]), made[3]]


def with_gradients(y: Tensor, x: list[Tensor]) -> list[Tensor]:
    return [y.detach(), *torch.autograd.grad(y, x[:3], x[3])]


def expected_of(x: list[Tensor]) -> list[Tensor]:
    exact = [part.detach().float().requires_grad_() for part in x[:3]]
    reference = functional.scaled_dot_product_attention(*exact, is_causal=True)
    return with_gradients(reference, [*exact, x[3].float()])


@settings(max_examples=25, deadline=None)
@given(
    b=st.integers(1, 2), h=st.integers(1, 3), t=st.integers(1, 20), d=st.sampled_from([1, 4, 6]), size=st.integers(1, 7)
)
def test_it_equals_torchs_attention_to_the_rounding_of_bfloat16(b: int, h: int, t: int, d: int, size: int) -> None:
    x = vectors(b, h, t, d)
    expected = expected_of(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIN_BLOCK", size)
        patch.setattr(module, "MAX_BLOCK", size)
        found = with_gradients(attention(*x[:3]), x)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == BFLOAT16
        assert (ours.float() - theirs).norm() <= 0.02 * theirs.norm() + 0.05


@pytest.mark.parametrize("t", [1, 127, 128, 129, 700])
def test_contexts_around_whole_blocks_are_as_near_as_torchs_own_kernel(t: int) -> None:
    x = vectors(1, 2, t, 16)
    for ours, theirs in zip(with_gradients(attention(*x[:3]), x), expected_of(x), strict=True):
        assert (ours.float() - theirs).norm() <= 0.01 * theirs.norm()


def test_no_position_sees_a_later_one() -> None:
    q, k, v, _ = vectors(1, 1, 300, 8)
    later = [x.detach().clone() for x in (k, v)]
    for x in later:
        x[:, :, 200:] = 9.0
    assert torch.equal(attention(q, k, v)[:, :, :200], attention(q, *later)[:, :, :200])


def test_float32_is_left_to_torch() -> None:
    x = [part.detach().float() for part in vectors(1, 2, 9, 4)[:3]]
    expected = functional.scaled_dot_product_attention(*x, is_causal=True)
    assert torch.equal(attention(*x), expected)


def test_nothing_as_large_as_the_context_squared_is_kept() -> None:
    x, kept = vectors(1, 1, 64, 2), []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        attention(*x[:3])
    assert max(kept) == 64 * 2


@settings(max_examples=10, deadline=None)
@given(t=st.integers(1, 300), share=st.sampled_from([0.0, 0.01, 0.5, 1.0]))
def test_flex_attention_shows_a_position_what_the_matrix_of_its_document_shows_it(t: int, share: float) -> None:
    """Uncompiled, without gradients, which it has on no CPU; documents of all lengths from one token on."""
    generator = torch.Generator().manual_seed(t)
    documents_bt = (torch.rand(2, t, generator=generator) < share).cumsum(1)
    q, k, v = (torch.randn(2, 2, t, 16, generator=generator) for _ in range(3))
    same = (documents_bt[:, :, None] == documents_bt[:, None]).tril()[:, None]
    expected = attention(q, k, v, same)
    assert torch.allclose(attention(q, k, v, document_blocks(documents_bt)), expected, atol=1e-5)


def test_blocks_of_documents_ask_the_device_for_nothing() -> None:
    """A meta tensor has no values, so each question raises. The shape doesn't depend on the number of documents."""
    blocks = document_blocks(torch.empty(2, 256, dtype=torch.long, device="meta"))
    assert blocks.kv_indices.shape == (2, 1, 2, 2)


@pytest.mark.parametrize(("capability", "first"), [((8, 0), "flash"), ((9, 0), "cudnn"), ((10, 0), "cudnn")])
def test_kernels_of_a_gpu_are_tried_by_its_generation(
    capability: tuple[int, int], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
    order = [kernel.name.removesuffix("_ATTENTION").lower() for kernel in preferred_kernels(torch.device("cuda"))]
    assert order == [first, "flash" if first == "cudnn" else "cudnn", "efficient", "math"]


def test_flex_attention_runs_on_gpus() -> None:
    config = GPT2Config(n_layer=1, n_head=2, n_embd=64, context=16, vocab_size=50)
    assert [uses_flex(config, torch.device(device)) for device in ("cuda", "cpu")] == [True, False]
