"""`forking_torchrun.py ...`: torchrun, whose ranks are forked from it instead of started by an interpreter of their own.

Importing torch and the trainer takes a process seconds of CPU. Here torchrun does it once for itself, its ranks, and those of
each restart. All else is torchrun's own: rendezvous, environment, restarts, signals, exit codes, logs.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

import webtext.app.main
import webtext.train.command
import webtext.train.parallel.parallelize
import webtext.train.trainer  # noqa: F401


class Forked:
    """What torchrun asks of a `subprocess.Popen`."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *streams: TextIO | None) -> None:
        self.args = command
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            become(command[1:], environment, streams)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
            time.sleep(0.01)
        return code


def become(command: Sequence[str], environment: Mapping[str, str], streams: Sequence[TextIO | None]) -> NoReturn:
    """Be the process of `python COMMAND` as far as a program can tell; nothing of the agent is ended or torn down."""
    code = 1
    try:
        os.setsid()
        for number in signal.valid_signals():  # those that are ignored stay so, as in a new program
            if number != signal.SIGINT and callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, stream in enumerate(streams, 1):
            if stream is not None:
                os.dup2(stream.fileno(), number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(environment)
        while command[0] == "-u":
            command = command[1:]
        if command[0] == "-m":
            sys.argv = list(command[1:])
            sys.modules.pop(command[1], None)  # which runpy would warn of
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(command)
            sys.path[0] = str(Path(command[0]).parent)
            runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def popen(self: SubprocessHandler, command: tuple[str, ...], environment: dict[str, str]) -> Forked:
    return Forked(command, environment, self._stdout, self._stderr)


if __name__ == "__main__":
    SubprocessHandler._popen = popen  # type: ignore[method-assign, assignment]
    torchrun.main()
