"""Float32 parameters and a step in bfloat16: what is cast, where gradients arrive, and how close the two stay."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from webtext.train.model.gpt2 import GPT2
from webtext.train.model.precision import cast_parameters, compute_dtype
from webtext.train.shape import GPT2Config

TINY = GPT2Config(n_layer=2, n_head=2, n_embd=32, context=16, vocab_size=50)
BFLOAT16 = torch.bfloat16


def batch(seed: int = 0, size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    tokens_bt = torch.randint(50, (size, 17), generator=torch.Generator().manual_seed(seed))
    return tokens_bt[:, :-1], tokens_bt[:, 1:]


def test_inside_all_is_bfloat16_and_afterwards_even_an_error_restores_the_parameters() -> None:
    model = GPT2(TINY)
    before = dict(model.named_parameters())

    def fail() -> None:
        with cast_parameters(model, BFLOAT16):
            assert {p.dtype for m in model.modules() for p in m._parameters.values() if p is not None} == {BFLOAT16}
            assert model(batch()[0]).dtype == BFLOAT16
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    after = dict(model.named_parameters())
    assert before.keys() == after.keys()
    assert all(after[name] is before[name] and after[name].dtype == torch.float32 for name in before)


def test_gradients_of_several_backward_passes_are_summed_in_float32() -> None:
    """Each is a bfloat16 number. Their sum is bit-equal to float32's and has more digits than bfloat16."""
    model = GPT2(TINY)
    alone = []
    for seed in range(3):
        model.zero_grad()
        with cast_parameters(model, BFLOAT16):
            model.loss(*batch(seed)).backward()  # type: ignore[no-untyped-call]
        alone.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        assert all(torch.equal(g, g.bfloat16().float()) for g in alone[-1])
    model.zero_grad()
    with cast_parameters(model, BFLOAT16):
        for seed in range(3):
            model.loss(*batch(seed)).backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(gradients) == len(list(model.parameters()))
    for total, one, two, three in zip(gradients, *alone, strict=True):
        assert total.dtype == torch.float32
        assert torch.equal(total, one + two + three)
    assert any(not torch.equal(g, g.bfloat16().float()) for g in gradients)


def test_the_copies_are_freed_after_the_block() -> None:
    model = GPT2(TINY)
    with cast_parameters(model, BFLOAT16):
        model.loss(*batch()).backward()  # type: ignore[no-untyped-call]
        copies = [weakref.ref(parameter) for parameter in model.parameters()]
    gc.collect()
    assert not any(copy() is not None for copy in copies)


def test_a_blocks_sums_are_complete_before_the_last_pass_has_reached_the_blocks_below() -> None:
    model = GPT2(TINY)
    done: list[tuple[int, torch.Tensor]] = []
    embedded: list[int] = []
    with cast_parameters(model, BFLOAT16, 2, lambda sums: done.append((len(embedded), sums))):
        model.position_embedding.weight.register_hook(lambda _: embedded.append(1))
        for seed in range(2):
            assert done == []
            model.loss(*batch(seed)).backward()  # type: ignore[no-untyped-call]
    of_block = sum(p.numel() for p in model.blocks[0].parameters())
    assert [before for before, sums in done if len(sums) == of_block] == [1, 1]
    assert sum(len(sums) for _, sums in done) == sum(p.numel() for p in model.parameters())
    for _, sums in done:
        assert any(p.grad is not None and p.grad.data_ptr() == sums.data_ptr() for p in model.parameters())


def test_loss_and_gradients_stay_close_to_those_of_float32() -> None:
    torch.manual_seed(2)
    model = GPT2(TINY)
    model.loss(*batch()).backward()  # type: ignore[no-untyped-call]
    exact = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    loss = model.loss(*batch()).item()
    model.zero_grad()
    with cast_parameters(model, BFLOAT16):
        rough = model.loss(*batch())
        rough.backward()  # type: ignore[no-untyped-call]
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(loss, rel=2e-3)
    total = torch.cat([g.flatten() for g in exact.values()])
    apart = torch.cat([(p.grad - exact[name]).flatten() for name, p in model.named_parameters() if p.grad is not None])
    assert apart.norm() < 0.02 * total.norm()


@pytest.mark.slow
def test_a_hundred_updates_learn_the_same_in_both() -> None:
    """Both learn one batch by heart from the same parameters; every ten updates losses agree to 3 % of the first."""
    curves = []
    for dtype in (torch.float32, BFLOAT16):
        torch.manual_seed(3)
        model = GPT2(TINY)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        losses = []
        for _ in range(100):
            with cast_parameters(model, dtype):
                loss = model.loss(*batch())
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        curves.append(losses[::10])
    assert curves[0][-1] < 0.5 * curves[0][0]
    assert curves[1] == pytest.approx(curves[0], abs=0.03 * curves[0][0])


def test_the_dtype_is_what_is_asked_for_and_narrow_models_stay_in_float32_on_a_cpu() -> None:
    cpu = torch.device("cpu")
    assert compute_dtype("bfloat16", cpu, 8) == BFLOAT16
    assert compute_dtype("float32", cpu, 8192) == torch.float32
    assert compute_dtype("auto", cpu, 64) == torch.float32
