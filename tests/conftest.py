"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, named by WEBTEXT_TEST_DATA or lying beside the repository; tests skip without it."""
    folder = Path(os.environ.get("WEBTEXT_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: set WEBTEXT_TEST_DATA (looked in '{folder}')")
    return folder
