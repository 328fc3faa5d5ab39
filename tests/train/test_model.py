"""The model compared with the paper's facts and with torch's own cross-entropy."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from webtext.base.errors import ConfigError, InputError
from webtext.train.model import cross_entropy
from webtext.train.model.gpt2 import GPT2
from webtext.train.model.precision import cast_parameters
from webtext.train.shape import GPT2Config

TINY = GPT2Config(n_layer=2, n_head=2, n_embd=16, context=8, vocab_size=50)


@pytest.mark.parametrize(
    ("name", "alias", "shape", "n_parameters"),
    [
        ("117M", "124M", (12, 768), 124_439_808),
        ("345M", "355M", (24, 1024), 354_823_168),
        ("762M", "774M", (36, 1280), 774_030_080),
        ("1542M", "1558M", (48, 1600), 1_557_611_200),
    ],
)
def test_the_four_sizes_have_the_papers_shapes_and_the_known_counts(
    name: str, alias: str, shape: tuple[int, int], n_parameters: int
) -> None:
    """Layers and widths are Table 2 of the paper; the counts are those of the published checkpoints."""
    config = GPT2Config.named(name)
    assert GPT2Config.named(alias) == config
    assert (config.n_layer, config.n_embd, config.context, config.vocab_size) == (*shape, 1024, 50257)
    assert config.n_parameters == n_parameters
    with torch.device("meta"):
        model = GPT2(config)
    padding = (config.padded_vocab_size - config.vocab_size) * config.n_embd
    assert sum(parameter.numel() for parameter in model.parameters()) - padding == n_parameters


def test_an_unknown_size_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="unknown model size '1543M'\ndid you mean '1542M'"):
        GPT2Config.named("1543M")


@pytest.mark.parametrize("change", [{"n_layer": 0}, {"n_head": 3}, {"vocab_size": -1}])
def test_an_impossible_shape_is_rejected(change: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        GPT2Config(**{"n_head": 2, "n_embd": 16, **change})  # type: ignore[arg-type]


def test_logits_have_exactly_vocab_size_columns_and_use_the_input_embedding() -> None:
    model = GPT2(TINY)
    tokens_bt = torch.arange(6)[None]
    assert model.token_embedding.weight.shape == (128, 16)
    assert model(tokens_bt).shape == (1, 6, 50)
    expected = model.hidden(tokens_bt) @ model.token_embedding.weight[:50].T
    assert torch.allclose(model(tokens_bt), expected, atol=1e-6)
    assert not any("head" in name for name, _ in model.named_parameters())


def test_no_position_sees_a_later_token() -> None:
    model = GPT2(TINY).eval()
    one = torch.tensor([[1, 2, 3, 4, 5, 6]])
    other = torch.tensor([[1, 2, 3, 9, 9, 9]])
    difference_t = (model(one) - model(other)).abs().amax(dim=(0, 2))
    assert difference_t[:3].max() == 0
    assert difference_t[3:].min() > 0


def test_padding_rows_get_no_gradient_and_an_id_in_the_padding_is_an_error() -> None:
    model = GPT2(TINY)
    tokens = torch.randint(50, (2, 9))
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()  # type: ignore[no-untyped-call]
    assert model.token_embedding.weight.grad is not None
    assert model.token_embedding.weight.grad[50:].abs().max() == 0
    with pytest.raises(IndexError):
        model(torch.tensor([[50]]))


def test_more_tokens_than_the_context_are_rejected() -> None:
    with pytest.raises(InputError, match="9 tokens do not fit a context of 8"):
        GPT2(TINY)(torch.zeros(1, 9, dtype=torch.long))


@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(1, 40),
    vocab_size=st.integers(1, 128),
    chunk=st.integers(1, 20),
    block=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_chunked_cross_entropy_equals_torchs_with_its_gradients(
    n: int, vocab_size: int, chunk: int, block: int, seed: int
) -> None:
    """In float64 the only difference is the order of sums: 1e-12."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(128, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(vocab_size, (n,), generator=generator)
    reference = functional.cross_entropy((hidden @ weight.T)[:, :vocab_size], targets)
    expected = torch.autograd.grad(reference * 3, (hidden, weight))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cross_entropy, "LOGITS_PER_CHUNK", chunk * 128)
        patch.setattr(cross_entropy, "LOGITS_PER_BLOCK", block * 128)
        loss = cross_entropy.linear_cross_entropy(hidden, weight, targets, vocab_size)
        losses_n = cross_entropy.token_losses(hidden, weight, targets, vocab_size)
    assert abs(loss.item() - reference.item()) < 1e-12
    assert abs(losses_n.mean().item() - reference.item()) < 1e-12
    for ours, theirs in zip(torch.autograd.grad(loss * 3, (hidden, weight)), expected, strict=True):
        assert (ours - theirs).abs().max() < 1e-12


def test_log_likelihood_is_that_of_the_softmax_of_the_logits() -> None:
    model = GPT2(TINY)
    tokens_bt = torch.randint(50, (3, 7))
    log_probabilities = model(tokens_bt[:, :-1]).log_softmax(-1)
    expected = log_probabilities.gather(2, tokens_bt[:, 1:, None])[..., 0]
    assert torch.allclose(model.log_likelihood(tokens_bt), expected, atol=1e-5)
    assert model.log_likelihood(tokens_bt[:, :1]).shape == (3, 0)


def test_log_likelihood_of_the_last_tokens_alone_is_that_of_all() -> None:
    """In float64, so that the order of sums doesn't matter; also with document masks."""
    model = GPT2(GPT2Config(n_layer=2, n_head=2, n_embd=16, context=12, vocab_size=61)).double().eval()
    tokens_bt = torch.randint(61, (3, 13))
    for documents_bt in (None, torch.randint(2, (3, 12)).cumsum(1)):
        whole_bt = model.log_likelihood(tokens_bt, documents_bt)
        for last in (1, 5, 12):
            found_bt = model.log_likelihood(tokens_bt, documents_bt, last=last)
            assert torch.allclose(found_bt, whole_bt[:, -last:], rtol=0, atol=1e-12)
            assert found_bt.shape == (3, last)


def test_the_gradient_of_the_embedding_is_not_copied_to_a_padded_one() -> None:
    model, tokens_bt = GPT2(TINY), torch.randint(50, (2, 9))
    loss = model.loss(tokens_bt[:, :-1], tokens_bt[:, 1:])
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        loss.backward()  # type: ignore[no-untyped-call]
    names = [event.key for event in profiled.key_averages()]
    assert "aten::embedding_dense_backward" in names
    assert "aten::slice_backward" not in names


def test_a_tiny_batch_is_learned_by_heart() -> None:
    torch.manual_seed(1)
    model = GPT2(TINY)
    tokens = torch.randint(50, (4, 9))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert loss.item() < 0.05


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activation_checkpointing_changes_no_bit_of_loss_or_gradients(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    model = GPT2(GPT2Config(n_layer=3, n_head=2, n_embd=32, context=16, vocab_size=50))
    tokens_bt = torch.randint(50, (4, 17))
    answers = []
    for how in (False, True):
        model.activation_checkpointing = how
        model.zero_grad()
        with cast_parameters(model, dtype):
            loss = model.loss(tokens_bt[:, :-1], tokens_bt[:, 1:])
            loss.backward()
        answers.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert len(answers[0]) == 1 + len(list(model.parameters()))
    for other in answers[1:]:
        assert all(torch.equal(one, again) for one, again in zip(answers[0], other, strict=True))
