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


PACKAGES_OF_THE_SYSTEM = ("chromium", "redis-server", "iproute2")
"""A test may skip because one of these is missing, and for no other cause where WEBTEXT_REFUSE_SKIPS is set."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Where WEBTEXT_REFUSE_SKIPS is set, a skip that names no package of the system is a failure."""
    if os.environ.get("WEBTEXT_REFUSE_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not any(f"needs {package}" in reason for package in PACKAGES_OF_THE_SYSTEM):
            report.outcome = "failed"
            report.longrepr = f"skipped where no skip is allowed: {reason}"
