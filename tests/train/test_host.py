"""An offloaded model's host: its memory, and one optimizer per layer that makes the updates of a single one."""

from __future__ import annotations

import mmap

import pytest
import torch
from small_runs import PinnedMemory

from webtext.base.errors import MachineError
from webtext.train import GPT2, GPT2Config, TrainSettings
from webtext.train.host_memory import host_zeros
from webtext.train.offload.engine import layer_optimizers
from webtext.train.offload.host import Link
from webtext.train.optimizer.optimizer import (
    Together,
    gradient_norm,
    make_optimizer,
    optimizer_tensors,
    set_learning_rate,
    update,
)


def test_what_is_copied_is_pinned_at_exactly_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = PinnedMemory()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    rows = host_zeros((3, 5000), torch.bfloat16, pinned=True)
    assert runtime.registered == {rows.data_ptr(): 30_000}
    assert rows.data_ptr() % mmap.PAGESIZE == 0  # so no page belongs to two blocks
    assert not rows.any()
    row = rows[1].fill_(1)
    del rows
    assert len(runtime.registered) == 1
    del row
    assert not runtime.registered
    other = host_zeros((5,), torch.float32, pinned=False)
    assert not runtime.registered
    with pytest.raises(MachineError, match=r"4,000,000 bytes of host memory can't be locked .*error 2.*\nfree some"):
        host_zeros((1000, 1000), torch.float32, pinned=True)
    del other


def test_the_hosts_thread_has_the_gpu_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.device] = []
    monkeypatch.setattr(torch.cpu, "set_device", used.append)
    Link(torch.device("cpu")).host.submit(int).result()
    assert used == [torch.device("cpu")]


def made_model() -> GPT2:
    torch.manual_seed(0)
    return GPT2(GPT2Config(n_layer=2, n_head=2, n_embd=16, context=8, vocab_size=50))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_updates_and_states_are_those_of_one_optimizer(optimizer: str) -> None:
    settings = TrainSettings.of(optimizer=optimizer, max_grad_norm=0.5, muon_learning_rate=2e-3)
    whole, parted = made_model(), made_model()
    ours, theirs = dict(parted.named_parameters()), dict(whole.named_parameters())
    one, of_layers = make_optimizer(theirs, settings), layer_optimizers(ours, settings)
    many = Together(*of_layers.values())
    for step in range(4):
        for model in (whole, parted):
            torch.manual_seed(step)
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
        norm, fault = gradient_norm(whole), torch.tensor(float(step == 2))  # the third step is skipped
        for chosen in (one, many):
            set_learning_rate(chosen, 1e-3 / (step + 1))
        update(one, norm, settings.optimizer.max_grad_norm, fault)
        for layer in (1, -1, 0):
            update(of_layers[layer], norm, settings.optimizer.max_grad_norm, fault)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    expected, found = optimizer_tensors(theirs, one), optimizer_tensors(ours, many)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)  # names, dtypes and values


def test_states_of_a_run_without_an_update_are_zeros_that_a_checkpoint_can_fill() -> None:
    parameters, settings = dict(made_model().named_parameters()), TrainSettings()
    tensors = optimizer_tensors(parameters, Together(*layer_optimizers(parameters, settings).values()))
    assert tensors.keys() == optimizer_tensors(parameters, make_optimizer(parameters, settings)).keys()
    assert not any(tensor.any() for tensor in tensors.values())
