"""A finished build on a file system that is mounted read-only: a rerun succeeds and writes nothing."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Return name -> modification time and inode of every file and folder."""
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in [folder, *folder.rglob("*")]}


@pytest.mark.parametrize("command", ["build", pytest.param("pretrain", marks=pytest.mark.slow)])
def test_a_rerun_over_a_finished_build_writes_nothing(
    command: str, small_demo: Path, in_a_mount_namespace: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    build = small_demo / "build"
    before = snapshot(build)
    place = shlex.quote(str(build))
    rerun = shlex.join([sys.executable, "-m", "webtext.app.main", command, str(small_demo / "build.toml"), "--quiet"])
    answer = in_a_mount_namespace(f"mount --bind {place} {place} && mount -o remount,bind,ro {place} && {rerun}")
    assert answer.returncode == 0, answer.stderr
    answer = in_a_mount_namespace(rerun)  # not even where it could write
    assert answer.returncode == 0, answer.stderr
    assert snapshot(build) == before
