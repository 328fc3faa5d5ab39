"""Runs that the tests of cleaning share: worker processes load their libraries once per session."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from webtext.base.console import Console
from webtext.base.run import Run
from webtext.base.workers.local_engine import LocalEngine, WorkerLimits
from webtext.clean.command import group

sys.path.insert(0, str(Path(__file__).parent))
LIMITS = WorkerLimits(tasks_per_worker=1_000_000)


@pytest.fixture(scope="session")
def run() -> Iterator[Run]:
    """A run with two workers."""
    with LocalEngine(workers=2, limits=LIMITS) as engine:
        yield Run(engine, Console("quiet"))


@pytest.fixture(scope="session")
def alone() -> Iterator[Run]:
    """A run with one worker."""
    with LocalEngine(workers=1, limits=LIMITS) as engine:
        yield Run(engine, Console("quiet"))


@pytest.fixture
def clean(alone: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a verb of `webtext clean` in this process, with the worker of `alone`; returns what it prints on stdout."""
    shared = contextlib.nullcontext(alone.engine)
    monkeypatch.setattr("webtext.base.workers.local_engine.LocalEngine", lambda *_, **__: shared)
    return lambda *arguments: CliRunner().invoke(group, arguments, catch_exceptions=False).stdout
