"""`compile`: when it is on, the same losses, one compilation of all blocks without a graph break, and one of the loss."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from small_runs import losses, small, train
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from webtext.base.config import changed
from webtext.base.errors import ConfigError, MachineError
from webtext.train import GPT2, GPT2Config, TrainSettings
from webtext.train.data.windows import documents_of
from webtext.train.model import cross_entropy
from webtext.train.model.compilation import compile_model, compiles
from webtext.train.model.cross_entropy import linear_cross_entropy
from webtext.train.model.precision import cast_parameters

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
COMPILED = small(
    n_layer=3, n_head=2, n_embd=32, steps=4, learning_rate=1e-2, eval_windows=2, eval_interval=2,
    checkpoint_interval=None, dtype="bfloat16",
)  # fmt: skip


def test_it_is_on_if_set_or_on_a_gpu_that_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert [compiles(setting, CPU) for setting in ("on", "auto", "off")] == [True, False, False]
    monkeypatch.setattr("webtext.train.model.compilation.find_spec", lambda name: name)
    for can in (True, False):
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda device, can=can: (7 if can else 6, 0))
        assert compiles("auto", CUDA) is can
        assert not compiles("off", CUDA)
    with pytest.raises(MachineError, match="compile is 'on', but torch finds no Triton"):
        compiles("on", CUDA)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MachineError, match="there is no C\\+\\+ compiler"):
        compiles("on", CPU)
    with pytest.raises(ConfigError, match="compile is 'yes'"):
        TrainSettings.of(compile="yes")


@pytest.mark.parametrize("lacking", ["C compiler", "Python.h"])
def test_a_gpu_on_a_machine_where_triton_builds_nothing_trains_uncompiled_and_says_so(
    lacking: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr("webtext.train.model.compilation.find_spec", lambda name: name)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    if lacking == "C compiler":
        (tmp_path / "Python.h").touch()
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CC", raising=False)
    assert not compiles("auto", CUDA, said.append)
    (line,) = said
    assert line.startswith("train: not compiled, which is slower: Triton ")
    assert lacking in line
    with pytest.raises(MachineError, match="compile is 'on', but Triton"):
        compiles("on", CUDA)


@pytest.fixture(autouse=True)
def _nothing_is_compiled_yet() -> None:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()


def n_compilations() -> int:
    """Return the number of compilations in this test."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_run_has_the_losses_of_others_and_compiles_each_of_its_parts_once(
    backend: str, tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """'eager' is torch.compile without the C++ compiler, which takes longest."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    for name in ("on", "off"):
        train(tokens, tmp_path / name, changed(COMPILED, compile=name))
    compiled, plain = losses(tmp_path / "on"), losses(tmp_path / "off")
    assert compiled == pytest.approx(plain, rel=1e-2)
    assert len(compiled) == 4 + 3
    assert n_compilations() == 4  # a block, the loss, and the sums of the gradients of a block and of the ends


def kept_and_gradients(
    model: GPT2, tokens_bt: Tensor, documents_bt: Tensor, dtype: torch.dtype
) -> tuple[int, list[Tensor]]:
    """Return the numbers that the forward pass keeps, and the loss with all gradients."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor

    model.zero_grad()
    torch.manual_seed(1)
    with cast_parameters(model, dtype):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = model.loss(tokens_bt[:, :-1], tokens_bt[:, 1:], documents_bt[:, :-1])
        loss.backward()  # type: ignore[no-untyped-call]
    return sum(kept.values()), [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_are_compiled_with_masks_and_their_checkpointing_without_a_graph_break(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fullgraph` raises at a graph break. All blocks share one graph for each kind of checkpointing."""
    whole = functools.partial(torch.compile, fullgraph=True, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", whole)
    torch.manual_seed(0)
    plain, compiled = (GPT2(GPT2Config(n_layer=3, n_head=2, n_embd=32, context=16, vocab_size=61)) for _ in range(2))
    compile_model(compiled)
    tokens_bt = torch.randint(61, (2, 17))
    documents_bt = documents_of(tokens_bt, int(tokens_bt[0, 5]))
    kept = []
    for how in (False, True):
        plain.activation_checkpointing = compiled.activation_checkpointing = how
        _, expected = kept_and_gradients(plain, tokens_bt, documents_bt, dtype)
        n_kept, found = kept_and_gradients(compiled, tokens_bt, documents_bt, dtype)
        kept.append(n_kept)
        atol = 1e-6 if dtype == torch.float32 else 4e-3
        assert all(torch.allclose(one, other, rtol=0, atol=atol) for one, other in zip(found, expected, strict=True))
    assert n_compilations() == 2 + 1  # the loss is compiled once
    assert kept[1] < kept[0]


def test_flex_attention_gives_the_gradients_of_the_matrix_and_compiles_once_for_all_microbatches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU, by torch's plain implementation, which on a CPU is refused gradients only by a check."""
    whole = functools.partial(torch.compile, fullgraph=True, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", whole)
    monkeypatch.setattr("webtext.train.model.gpt2.uses_flex", lambda *_: True)
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=2, n_embd=32, context=160, vocab_size=61)
    plain, compiled = GPT2(config), GPT2(config)
    compile_model(compiled)
    for how in (False, True):
        plain.activation_checkpointing = compiled.activation_checkpointing = how
        for n in (1, 9):  # documents, about
            tokens_bt = torch.randint(61, (2, 161))
            documents_bt = documents_of(tokens_bt % (61 // n), 3)
            _, expected = kept_and_gradients(plain, tokens_bt, documents_bt, torch.float32)
            _, found = kept_and_gradients(compiled, tokens_bt, documents_bt, torch.float32)
            assert all(
                torch.allclose(one, other, rtol=0, atol=1e-5) for one, other in zip(found, expected, strict=True)
            )
    assert n_compilations() == 2 + 1 + 1  # a block for each kind of checkpointing, the mask and the loss


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-14), (torch.bfloat16, 1e-3)])
def test_a_compiled_loss_is_the_plain_one_in_one_kernel_without_wide_logits(
    dtype: torch.dtype, atol: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 of 64 targets count. Two chunks are equal, so they are compiled once; each keeps a number for each position."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 16, generator=generator).to(dtype).requires_grad_() for n in (64, 512))
    targets = torch.randint(500, (64,), generator=generator)
    counted = torch.arange(64) % 8 < 3
    monkeypatch.setattr(cross_entropy, "LOGITS_PER_CHUNK", 40 * 512)
    answers = []
    for compiled in (False, True):
        loss = linear_cross_entropy(hidden, weight, targets, 500, counted, compiled=compiled)
        answers.append([loss.detach(), *torch.autograd.grad(loss, (hidden, weight))])
    for one, other in zip(*answers, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=atol)
    logits, first = torch.randn(32, 512, generator=generator).to(dtype), targets[:32]
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        torch.compile(cross_entropy._to_slopes, dynamic=False)(logits, first, 500)
    assert n_compilations() == 1
    events = profiled.events()
    assert events is not None
    assert [event.name for event in events if event.name.startswith("aten::")] == []
    assert max(event.cpu_memory_usage for event in events) == 32 * max(4, dtype.itemsize)


@pytest.mark.parametrize(("n", "sizes"), [(21, [3] * 7), (48, [6] * 8), (13, [5, 5, 3]), (3, [3]), (0, [])])
def test_positions_are_divided_into_equal_chunks_if_there_are_few(
    n: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_entropy, "LOGITS_PER_CHUNK", 5 * 8)
    found = cross_entropy.chunk_rows(n, torch.empty(8, 2))
    assert [rows.stop - rows.start for rows in found] == sizes
