"""The model of a disk: what a power cut leaves of a few calls, worked out by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from disk import (  # noqa: E402
    Disk,
    data_first,
    everything,
    files_of,
    names_and_sizes_first,
    names_first,
    only_synced,
    read_tree,
    sampled,
    write_tree,
)
from promises import broken_promises  # noqa: E402
from stage import CONTROL, shim  # noqa: E402

Recorded = Callable[[str], Disk]

SAVE = """
with open(".new.tmp", "wb") as file:
    file.write(b"new")
    {sync_file}
os.replace(".new.tmp", "value")
{sync_folder}
"""
SYNC_FILE, SYNC_FOLDER = "file.flush(); os.fsync(file.fileno())", "folder = os.open('.', os.O_RDONLY); os.fsync(folder)"


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Run Python code under the shim in a folder that contains the file `value` with b"old"; return the disk's history."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "value").write_bytes(b"old")
    control, log = tmp_path / "control", tmp_path / "log"
    log.touch()
    control.write_bytes(CONTROL.pack(1, 0, 0, 0, 0, 0, 0, str(folder).encode(), str(log).encode()))

    def record(code: str) -> Disk:
        disk = Disk(folder)
        environment = os.environ | {"LD_PRELOAD": str(shim()), "FAULTS_CONTROL": str(control)}
        subprocess.run(
            [sys.executable, "-c", "import mmap, os, shutil\n" + code], cwd=folder, env=environment, check=True
        )
        disk.replay(log)
        assert disk.state(disk.last_moment(), everything) == read_tree(folder)
        return disk

    return record


def after(disk: Disk, policy: Callable[[str, int, int], float]) -> dict[str, bytes]:
    return files_of(disk.state(disk.last_moment(), policy))


def test_a_file_that_is_synced_renamed_and_whose_folder_is_synced_survives_whatever_the_disk_kept(
    recorded: Recorded,
) -> None:
    disk = recorded(SAVE.format(sync_file=SYNC_FILE, sync_folder=SYNC_FOLDER))
    for policy in (only_synced, names_first, data_first, *map(sampled, range(20))):
        assert after(disk, policy) == {"value": b"new"}
        for moment in range(disk.last_moment()):
            assert files_of(disk.state(moment, policy))["value"] in (b"old", b"new")


def test_a_file_that_is_renamed_before_it_is_synced_may_be_empty_or_zeros(recorded: Recorded) -> None:
    disk = recorded(SAVE.format(sync_file="", sync_folder=SYNC_FOLDER))
    assert after(disk, only_synced) == {"value": b""}
    assert after(disk, names_and_sizes_first) == {"value": b"\0\0\0"}
    assert after(disk, data_first) == {"value": b"new"}


def test_a_rename_may_be_lost_if_its_folder_is_not_synced(recorded: Recorded) -> None:
    disk = recorded(SAVE.format(sync_file=SYNC_FILE, sync_folder=""))
    assert after(disk, only_synced) == {"value": b"old"}
    assert after(disk, names_first) == {"value": b"new"}


def test_a_new_folder_is_lost_with_all_that_is_synced_in_it_until_its_parent_is_synced(recorded: Recorded) -> None:
    code = "os.mkdir('a'); f = open('a/b', 'wb'); f.write(b'1'); f.flush(); os.fsync(f.fileno())\n"
    code += "os.fsync(os.open('a', os.O_RDONLY))"
    assert after(recorded(code), only_synced) == {"value": b"old"}


def test_an_append_may_reach_the_disk_in_part(recorded: Recorded) -> None:
    disk = recorded("with open('value', 'ab', 0) as file:\n    file.write(b'12'); file.write(b'34')")
    found = {after(disk, sampled(seed))["value"] for seed in range(400)}
    assert {b"old", b"old1234", b"old12", b"old\0\x0034", b"old1"} <= found


def test_writes_through_a_mapping_and_copies_inside_the_kernel_are_seen_when_they_are_synced(
    recorded: Recorded,
) -> None:
    disk = recorded(
        "shutil.copyfile('value', 'copy')\n"
        "with open('copy', 'r+b') as file:\n"
        "    mapped = mmap.mmap(file.fileno(), 3)\n"
        "    mapped[0] = 79\n"
        "    os.fsync(file.fileno())\n"
        "os.fsync(os.open('.', os.O_RDONLY))\n"
    )
    assert after(disk, only_synced) == {"value": b"old", "copy": b"Old"}


def test_links_removals_folders_and_sizes_are_recorded(recorded: Recorded) -> None:
    disk = recorded(
        "os.link('value', 'other'); os.remove('value'); os.makedirs('a/b'); os.rename('a/b', 'c'); os.rmdir('a')\n"
        "os.truncate('other', 2); shutil.move('other', 'c/other')\n"
    )
    assert after(disk, everything) == {"c/other": b"ol"}
    assert after(disk, only_synced) == {"value": b"old"}


def test_a_state_can_be_written_and_read(tmp_path: Path) -> None:
    tree = {"a": b"1", "b": {"c": b"2", "d": {}}}
    assert read_tree(write_tree(tree, tmp_path / "x")) == tree


def test_an_entry_whose_part_is_missing_or_differs_breaks_a_promise() -> None:
    about = {"name": "part-00000.parquet", "bytes": 1, "sha256": "0" * 64, "attachments": []}
    entry = json.dumps(about).encode()
    (missing,) = broken_promises({"set/_parts/00000.json": entry}, fresh=True)
    assert missing == "'set/_parts/00000.json' lists 'set/part-00000.parquet', which is missing"
    for fresh in (True, False):
        (differs,) = broken_promises({"set/_parts/00000.json": entry, "set/part-00000.parquet": b"1"}, fresh=fresh)
        assert differs == "'set/_parts/00000.json' lists 'set/part-00000.parquet' with other bytes"
    assert broken_promises({"set/_parts/00000.json": entry, "set/part-00000.parquet": b"12"}, fresh=False) == []
    assert broken_promises({"set/manifest.json": b"\0\0"}, fresh=False) == [
        "'set/manifest.json' is not JSON: b'\\x00\\x00'"
    ]


def test_a_file_that_lost_its_bytes_may_have_kept_its_time(recorded: Recorded, tmp_path: Path) -> None:
    """In the end `new` is another file than in the beginning, and so is its time; `value` is as it was."""
    disk = recorded(
        "with open('new.tmp', 'w') as file:\n    file.write('1234')\n"
        "os.utime('new.tmp', ns=(7, 7)); os.rename('new.tmp', 'new')\n"
    )
    torn = disk.state(disk.last_moment(), names_and_sizes_first)
    assert torn == {"new": b"\0\0\0\0", "value": b"old"}
    folder = write_tree(torn, tmp_path / "torn")
    assert (folder / "new").stat().st_mtime_ns == 7
    assert (folder / "value").stat().st_mtime_ns == disk.root.entries["value"].times_ns[0]  # type: ignore[union-attr]
