"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from webtext.base.run import Run

# A test's result must not depend on the machine's speed or on chance. A busy machine is not a failure, so examples have no
# deadline and may be slow to make. Without WEBTEXT_TEST_EXPLORE, as in continuous integration, every run sees the same
# examples, from a seed that is a hash of the test. WEBTEXT_TEST_EXPLORE=10 tries ten times as many, different in each run;
# a failure that it finds becomes an @example of its property, and so a part of every run.
EXPLORE = int(os.environ.get("WEBTEXT_TEST_EXPLORE") or 0)
settings.register_profile(
    "webtext",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not EXPLORE,
    max_examples=100 * max(EXPLORE, 1),
)
settings.load_profile("webtext")

# A shell that starts the tests in its background has them ignore Ctrl-C, and so would every process that they send it to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.append(str(REPOSITORY / "tests"))  # for the helpers of several folders


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, named by WEBTEXT_TEST_DATA or lying beside the repository; tests skip without it."""
    folder = Path(os.environ.get("WEBTEXT_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: set WEBTEXT_TEST_DATA (looked in '{folder}')")
    return folder


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run whose tasks run as if on another machine (`elsewhere.py`)."""
    from elsewhere import Elsewhere

    from webtext.base.console import Console
    from webtext.base.run import Run

    private = tmp_path_factory.mktemp("of-the-driver")
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    engine = Elsewhere(private)
    yield Run(engine, Console("quiet"))  # type: ignore[arg-type]
    assert engine.n_tasks, "no task was run"
    engine.close()


@pytest.fixture
def linear_time() -> Iterator[None]:
    """Fails a test that takes more than a minute of CPU time.

    For what a right implementation does in a second at most, and one whose time grows with the square of its input in hours:
    no machine is slow enough to be taken for that, and the time of other processes does not count.
    """
    begun = time.process_time()
    yield
    assert time.process_time() - begun < 60


MAY_LACK = ("chromium", "iproute2", "torch 2.11")
"""A test may skip because one of these is missing, and for no other cause where WEBTEXT_REFUSE_SKIPS is set."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Where WEBTEXT_REFUSE_SKIPS is set, a skip that names none of `MAY_LACK` is a failure."""
    if os.environ.get("WEBTEXT_REFUSE_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not any(f"needs {package}" in reason for package in MAY_LACK):
            report.outcome = "failed"
            report.longrepr = f"skipped where no skip is allowed: {reason}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each cause of skipped tests, however many tests it skipped."""
    reports = terminalreporter.stats.get("skipped", [])
    causes = Counter(str(report.longrepr[2]).removeprefix("Skipped: ").partition(":")[0] for report in reports)
    for cause, n in causes.most_common():
        terminalreporter.write_line(f"skipped {n:,}: {cause}")


SMALL_MODULES = (
    "argparse", "calendar", "cmd", "configparser", "csv", "dataclasses", "enum", "functools", "heapq", "json",
    "logging", "optparse", "os", "random", "sched", "shlex", "string", "textwrap", "threading", "timeit",
    "unittest.mock", "zipfile",
)  # fmt: skip
SMALL_TRAIN = """\
context = 128
batch_size = 8
microbatch_size = 8
steps = 30
warmup_steps = 3
learning_rate = 3e-3

[train.shape]
n_layer = 2
n_head = 2
n_embd = 64

[train.monitor]
eval_interval = 15
eval_windows = 16

[train.checkpoint]
checkpoint_interval = 10
"""


@pytest.fixture(scope="session")
def small_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole demo on a smaller web, made once and shared by all test processes. Nobody writes into it."""
    root = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        root = root.parent
    folder = root / "small-demo"
    with held(root / "small-demo.lock"):  # the other test processes wait here for the one that makes it
        if not (folder / "build" / "report.html").is_file():
            with _the_demo_s_port():
                _make_small_demo(folder)
    return folder


@pytest.fixture(scope="module")
def small_web(small_demo: Path) -> Iterator[int]:
    """The port of the small demo's web, which answers while the tests of a module run: one module at a time has it."""
    from webtext.app.demo.run import web_running

    port = int((small_demo / "port").read_text())
    with _the_demo_s_port(), web_running(small_demo / "web", port):
        yield port


def _the_demo_s_port() -> contextlib.AbstractContextManager[None]:
    """Demos take the same port wherever it is free: all tests of this machine take turns, those of other runs too."""
    return held(Path(tempfile.gettempdir()) / f"webtext-tests-demo-port-{os.getuid()}.lock")


@contextlib.contextmanager
def held(lock_file: Path) -> Iterator[None]:
    """Holds a lock among processes; a process that is killed lets go of it."""
    with open(lock_file, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_small_demo(folder: Path) -> None:
    from webtext.app.demo.run import run_demo
    from webtext.base.console import Console
    from webtext.base.run import Run
    from webtext.base.workers.local_engine import LocalEngine

    with LocalEngine(workers=2) as engine:
        run_demo(str(folder), Run(engine, Console("quiet")), train=SMALL_TRAIN, modules=SMALL_MODULES)
