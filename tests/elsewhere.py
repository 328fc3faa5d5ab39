"""An engine as on another machine: its tasks share nothing with the driver but the folders that they are given.

Tasks run one after the other in one process with a working folder and a temporary folder of its own, which are emptied
after each task. There a task cannot open what is in the driver's temporary folder, or map a file to write to it, because
other machines would not see that.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from webtext.base.inputs.files import InputFile
from webtext.base.parts.partset import PartSet
from webtext.base.storage import stopping_error
from webtext.base.workers.attempt import Attempt
from webtext.base.workers.local_engine import TaskFailure

START = "import elsewhere; elsewhere.serve()"


class Elsewhere:
    """The engine. `private` is the driver's own temporary folder."""

    max_message_bytes = 1 << 20  # of a task or its result: an engine for many machines carries no data

    def __init__(self, private: Path, workers: int = 2) -> None:
        self.workers = workers
        self.n_tasks = 0
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {sys.path!r}; {START}", str(private)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def map(
        self, function: Callable[..., Any], tasks: Sequence[Any], *, on_done: Callable[[int, Any], None], **_: Any
    ) -> list[TaskFailure]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        failures = []
        for index, task in enumerate(tasks):
            self.n_tasks += 1
            call = pickle.dumps((function, task))
            pickle.dump((sys.path, call), self._child.stdin)
            self._child.stdin.flush()
            result, error, stops = pickle.load(self._child.stdout)
            assert max(len(call), len(pickle.dumps(result))) <= self.max_message_bytes
            if stops is not None:
                raise stops
            if error:
                failures.append(TaskFailure(index, error))
            else:
                on_done(index, result)
        return failures

    def limited(self, limits: Any) -> contextlib.AbstractContextManager[Elsewhere]:
        return contextlib.nullcontext(self)

    def close(self) -> None:
        self._child.communicate()


@contextlib.contextmanager
def only_tasks_read() -> Iterator[None]:
    """In this context, the driver can neither open a part of a set nor hash a file."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("the driver reads a part or a file")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartSet, "_parquet", refuse)
        patch.setattr(InputFile, "sha256", refuse)
        yield


def serve() -> None:
    """Run the tasks that come from stdin, in the child."""
    private = sys.argv[1]

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            if os.path.abspath(os.fsdecode(arguments[0])).startswith(private + os.sep):
                raise PermissionError(f"{arguments[0]!r} is in the driver's temporary folder")
        elif event == "mmap.__new__" and arguments[2] != mmap.ACCESS_READ and has_a_name(arguments[0]):
            raise PermissionError("other machines don't see what is written to a mapped file")

    sys.addaudithook(check)
    answers, sys.stdout = os.fdopen(os.dup(1), "wb"), sys.stderr
    while True:
        try:
            sys.path[:], call = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        with tempfile.TemporaryDirectory() as own:
            os.chdir(own)
            os.environ["TMPDIR"] = tempfile.tempdir = own
            try:
                function, task = pickle.loads(call)
                answer = function(Attempt(), task), "", None
            except Exception as error:
                answer = None, "".join(traceback.format_exception(error)), stopping_error(error)
            os.chdir("/")
            tempfile.tempdir = None
            del os.environ["TMPDIR"]
        pickle.dump(answer, answers)
        answers.flush()


def has_a_name(descriptor: int) -> bool:
    """Whether other processes can open the file, unlike memory that this process and its children share."""
    return descriptor >= 0 and os.path.exists(os.readlink(f"/proc/self/fd/{descriptor}"))
