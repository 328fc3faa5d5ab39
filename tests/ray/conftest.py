"""The cluster that all tests of this folder share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import ray_nodes  # noqa: E402


@pytest.fixture(scope="session")
def nodes() -> Iterator[ray_nodes.Nodes]:
    """One cluster for all tests of a process."""
    with ray_nodes.cluster() as nodes:
        yield nodes
