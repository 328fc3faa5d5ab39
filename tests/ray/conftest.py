"""The cluster that all tests of this folder share."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before Ray is imported: its programs shall not use the token of a cluster that this user has.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(32).hex()}
sys.path.append(str(Path(__file__).parent))

import ray_nodes  # noqa: E402


@pytest.fixture(scope="session")
def nodes() -> Iterator[ray_nodes.Nodes]:
    """One cluster for all tests of a process. Its own folder keeps it apart from a cluster in use."""
    with pytest.MonkeyPatch.context() as environment, tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        environment.setenv("RAY_TMPDIR", folder)  # short, because names of sockets are
        made = ray_nodes.Nodes()
        try:
            yield made
        finally:
            made.shutdown()
