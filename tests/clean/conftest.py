"""Shared fixture of the tests of cleaning: a run with two workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from webtext.base.console import Console
from webtext.base.run import Run
from webtext.base.workers.engine import LocalEngine


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with LocalEngine(workers=2) as engine:
        yield Run(engine, Console("quiet"))
