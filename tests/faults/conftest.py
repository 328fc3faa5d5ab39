"""A mount namespace for tests that fill a disk or mount it read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

MountNamespace = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def in_a_mount_namespace() -> MountNamespace:
    """Run a bash script that may mount file systems; they are visible only to the script and end with it."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]

    def run(script: str) -> subprocess.CompletedProcess[str]:
        command = ["unshare", *user, "--mount", "bash", "-c", script]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    if run("mount -t tmpfs -o size=64k none /mnt").returncode:
        pytest.skip("this user may not mount file systems, not even in a namespace")
    return run
