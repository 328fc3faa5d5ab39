"""An optimizer a layer makes the updates of one for all: clipped, skipped, by AdamW and by Muon, to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from webtext.train import GPT2, GPT2Config, TrainSettings
from webtext.train.offload.host_memory import HostMemory
from webtext.train.offload.host_optimizer import HostOptimizers
from webtext.train.optimizer import make_optimizer, optimizer_tensors, set_learning_rate
from webtext.train.update import gradient_norm, update


def made_model() -> GPT2:
    torch.manual_seed(0)
    return GPT2(GPT2Config(n_layer=2, n_head=2, n_embd=16, context=8, vocab_size=50))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("in_files", [False, True])
def test_updates_and_states_are_those_of_one_optimizer(optimizer: str, in_files: bool, tmp_path: Path) -> None:
    settings = TrainSettings(optimizer=optimizer, max_grad_norm=0.5, muon_learning_rate=2e-3)
    whole, parted = made_model(), made_model()
    one = make_optimizer(whole, settings)
    ends = torch.nn.ModuleList([parted.token_embedding, parted.position_embedding, parted.final_norm])
    memory = HostMemory(folder=tmp_path if in_files else None)
    many = HostOptimizers([ends, *parted.blocks], settings, memory)
    for step in range(4):
        for model in (whole, parted):
            torch.manual_seed(step)
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
        norm, fault = gradient_norm(whole), torch.tensor(float(step == 2))  # the third step is skipped
        rate = 1e-3 / (step + 1)
        set_learning_rate(one, settings, rate)
        update(one, norm, settings.max_grad_norm, fault)
        for i in range(3):
            many.step(i, rate, norm, fault)
    for ours, theirs in zip(parted.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    expected = optimizer_tensors(whole, one)
    found = optimizer_tensors(parted, many.whole)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name])
        assert tensor.dtype == expected[name].dtype


def test_states_of_a_run_without_an_update_are_zeros_that_a_checkpoint_can_fill() -> None:
    model, settings = made_model(), TrainSettings()
    many = HostOptimizers([model], settings, HostMemory())
    tensors = optimizer_tensors(model, many.whole)
    whole = made_model()
    assert tensors.keys() == optimizer_tensors(whole, make_optimizer(whole, settings)).keys()
    assert not any(tensor.any() for tensor in tensors.values())
