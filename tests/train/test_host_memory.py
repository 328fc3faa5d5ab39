"""Host memory, also in files: no file remains, and a folder that can't store any is an error at once."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest
import torch

from webtext.base.errors import MachineError
from webtext.train.offload.arena import Arena
from webtext.train.offload.host_memory import HostMemory


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


def test_an_arena_does_not_count_it(tmp_path: Path) -> None:
    with Arena(10) as arena:
        for memory in (HostMemory(), HostMemory(folder=tmp_path)):
            assert memory.zeros((100,), torch.bfloat16).dtype == torch.bfloat16
    assert arena.peak_bytes == 0


def test_a_full_disk_is_an_error_before_anything_is_computed(tmp_path: Path) -> None:
    signal_before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, limits[1]))
    try:
        with pytest.raises(MachineError, match=r"has no room for 40,000 bytes .*\nfree some space, or name"):
            HostMemory(folder=tmp_path).zeros((10_000,), torch.float32)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, signal_before)


def test_a_folder_that_cannot_store_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match=r"file/folder' can't store files of an offloaded model \(Not a directory\)"):
        HostMemory(folder=tmp_path / "file" / "folder").zeros((1,), torch.float32)
    with pytest.raises(MachineError, match="can't store files of an offloaded model"):
        HostMemory(folder=Path("/proc")).zeros((1,), torch.float32)  # where nobody may write, not even root
