"""An offloaded model's host: memory and files, and one optimizer per layer that makes the updates of a single one."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch

from webtext.base.errors import MachineError
from webtext.train import GPT2, GPT2Config, TrainSettings
from webtext.train.host_memory import HostMemory
from webtext.train.offload.engine import HostOptimizer
from webtext.train.offload.host import Link
from webtext.train.optimizer.optimizer import (
    gradient_norm,
    make_optimizer,
    optimizer_tensors,
    set_learning_rate,
    update,
)


def test_files_are_mapped_and_have_no_name_that_a_killed_run_could_leave(tmp_path: Path) -> None:
    rows = HostMemory(folder=tmp_path / "new" / "folder").zeros((3, 5000), torch.float32)
    assert rows.shape == (3, 5000)
    assert not rows.any()
    rows[1] += 7
    assert rows.sum() == 35_000
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    smaps = Path("/proc/self/smaps")
    if smaps.exists():
        of_rows = smaps.read_text().partition(f"{tmp_path}/new/folder/")[2].splitlines()
        assert of_rows[0].endswith("(deleted)")
        flags = next(line for line in of_rows if line.startswith("VmFlags:"))
        assert "sr" in flags.split()  # read ahead, as for sequential reading


class Runtime:
    """CUDA's functions for pinned memory: what is registered, as bytes by address."""

    def __init__(self) -> None:
        self.registered: dict[int, int] = {}

    def cudaHostRegister(self, address: int, n_bytes: int, flags: int) -> int:  # noqa: N802 - its name in CUDA
        self.registered[address] = n_bytes
        return 2 if n_bytes > 10**6 else 0  # cudaErrorMemoryAllocation

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        del self.registered[address]
        return 0


def test_what_is_copied_is_pinned_at_exactly_its_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    memory = HostMemory(pins=True)
    rows = memory.zeros((3, 5000), torch.bfloat16, linked=True)
    assert runtime.registered == {rows.data_ptr(): 30_000}
    assert rows.data_ptr() % mmap.PAGESIZE == 0  # so no page belongs to two blocks
    assert not rows.any()
    row = rows[1].fill_(1)
    del rows
    assert len(runtime.registered) == 1
    del row
    assert not runtime.registered
    others = (
        memory.zeros((5,), torch.float32),
        HostMemory(pins=True, folder=tmp_path).zeros((5,), torch.float32, linked=True),
    )
    assert not runtime.registered
    with pytest.raises(MachineError, match=r"4,000,000 bytes of host memory can't be locked .*error 2.*\nfree some"):
        memory.zeros((1000, 1000), torch.float32, linked=True)
    del others


def test_the_hosts_thread_has_the_gpu_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.device] = []
    monkeypatch.setattr(torch.cpu, "set_device", used.append)
    Link(torch.device("cpu")).host.submit(int).result()
    assert used == [torch.device("cpu")]


def test_a_full_disk_is_an_error_before_anything_is_computed(tmp_path: Path, small_files: None) -> None:
    with pytest.raises(MachineError, match=r"can't store 40,000 bytes .*\nfree some space, or name"):
        HostMemory(folder=tmp_path).zeros((10_000,), torch.float32)


def test_a_folder_that_cannot_store_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match=r"folder' can't store [0-9,]+ bytes of .* model \(Not a directory\)"):
        HostMemory(folder=tmp_path / "file" / "folder").zeros((1,), torch.float32)
    with pytest.raises(MachineError, match="can't store [0-9,]+ bytes of an offloaded model"):
        HostMemory(folder=Path("/proc")).zeros((1,), torch.float32)  # where nobody may write, not even root


def made_model() -> GPT2:
    torch.manual_seed(0)
    return GPT2(GPT2Config(n_layer=2, n_head=2, n_embd=16, context=8, vocab_size=50))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("in_files", [False, True])
def test_updates_and_states_are_those_of_one_optimizer(optimizer: str, in_files: bool, tmp_path: Path) -> None:
    settings = TrainSettings.of(optimizer=optimizer, max_grad_norm=0.5, muon_learning_rate=2e-3)
    whole, parted = made_model(), made_model()
    ours, theirs = dict(parted.named_parameters()), dict(whole.named_parameters())
    one = make_optimizer(theirs, settings)
    many = HostOptimizer(ours, settings, HostMemory(folder=tmp_path if in_files else None))
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
            update(many.of_layer[layer], norm, settings.optimizer.max_grad_norm, fault)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    expected, found = optimizer_tensors(theirs, one), optimizer_tensors(ours, many)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name])
        assert tensor.dtype == expected[name].dtype


def test_states_of_a_run_without_an_update_are_zeros_that_a_checkpoint_can_fill() -> None:
    parameters, settings = dict(made_model().named_parameters()), TrainSettings()
    tensors = optimizer_tensors(parameters, HostOptimizer(parameters, settings, HostMemory()))
    assert tensors.keys() == optimizer_tensors(parameters, make_optimizer(parameters, settings)).keys()
    assert not any(tensor.any() for tensor in tensors.values())
