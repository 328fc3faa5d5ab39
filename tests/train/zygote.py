"""Python processes that are forked from one that has imported torch and the trainer, which takes seconds of CPU time.

`Forked` is a `subprocess.Popen`. As usual its process has the given arguments, environment, folder, files and session,
its own exit code and signals, and this process as its parent, but no new interpreter is started. It is forked from a
process that is made once per test session. `ForkedHere` forks the calling process, which must have only one thread.
Commands of another program, or with other options, are started as usual.

    made once -> fork -> fork: the command      the fork between ends at once, so that the command's parent becomes the nearest
                                                subreaper (prctl(2)): the process of the tests, for that moment
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

PR_SET_CHILD_SUBREAPER = 36
MOST_FILES = 16
ORIGINAL = subprocess.Popen


class Zygote:
    """The process that is forked. It ends with its owner."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            ORIGINAL(command, pass_fds=[theirs.fileno()])
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def fork(self, start: Start, files: Sequence[int]) -> int:
        """Fork a child of this process and return its id."""
        data = pickle.dumps(start)
        self._prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(self._socket, [len(data).to_bytes(8, "little")], list(files))
            self._socket.sendall(data)
            return int.from_bytes(_exactly(self._socket, 8), "little")
        finally:
            self._prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class Start(NamedTuple):
    """How a process begins: it gets its first three files and those in `keep`."""

    command: list[str]
    environment: dict[str, str]
    folder: str
    keep: list[int]
    new_session: bool


class Forked(subprocess.Popen):  # type: ignore[type-arg]
    """A `subprocess.Popen` that forks commands of this Python from a `Zygote`, which the first one creates."""

    _zygote: ClassVar[Zygote | None] = None

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:  # type: ignore[override]
        (_, pass_fds, cwd, env, _, _, shell), files, (_, _, _, _, _, new_session, _) = rest[:7], rest[7:13], rest[13:]
        command = list(map(str, args)) if isinstance(args, list | tuple) else []
        if command[:1] != [sys.executable] or preexec_fn or shell:
            super()._execute_child(args, executable, preexec_fn, *rest)  # type: ignore[misc]
            return
        environment = {os.fsdecode(k): os.fsdecode(v) for k, v in (os.environ if env is None else env).items()}
        folder = os.path.abspath(os.getcwd() if cwd is None else cwd)
        start = Start(command[1:], environment, folder, list(pass_fds), bool(new_session))
        stdin, _, _, stdout, _, stderr = files
        own = [usual if file == -1 else file for usual, file in enumerate((stdin, stdout, stderr))]
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = self._fork(start, [*own, *pass_fds])
        self._child_created = True
        self._close_pipe_fds(*files)  # type: ignore[attr-defined]

    def _fork(self, start: Start, files: Sequence[int]) -> int:
        Forked._zygote = Forked._zygote or Zygote()
        return Forked._zygote.fork(start, files)


class ForkedHere(Forked):
    """A `Forked` that is forked from the calling process."""

    def _fork(self, start: Start, files: Sequence[int]) -> int:
        pid = os.fork()
        if pid == 0:
            become(start, files)
        return pid


def become(start: Start, files: Sequence[int]) -> NoReturn:
    """Become that process as far as a program can see, without ending or closing anything of the forked one."""
    code = 1
    try:
        _take(files, start.keep)
        os.chdir(start.folder)
        if start.new_session:
            os.setsid()
        for number in signal.valid_signals():  # ignored signals stay ignored, as in a new program
            if number != signal.SIGINT and callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(start.environment)
        _run(list(start.command))
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _run(command: list[str]) -> None:
    is_safe = False  # whether the folder of the program is left out of sys.path
    while command[0] in ("-u", "-P"):
        is_safe = is_safe or command.pop(0) == "-P"
    kind, *rest = command
    place = "" if kind in ("-m", "-c") else str(Path(kind).parent)
    sys.path[:1] = [] if is_safe else [place]
    if kind == "-m":
        sys.argv = rest
        sys.modules.pop(rest[0], None)  # runpy would warn about it
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.argv = command
        runpy.run_path(kind, run_name="__main__")


def _serve(connection: socket.socket) -> None:
    """Fork a process for each request, until the other end is closed."""
    while True:
        size, files = _receive(connection)
        if not size:
            return
        start = pickle.loads(_exactly(connection, size))
        told, tells = os.pipe()
        between = os.fork()
        if between == 0:
            own = os.getpid()
            if child := os.fork():
                os.write(tells, child.to_bytes(8, "little"))
                os._exit(0)
            while (
                os.getppid() == own
            ):  # a worker of the engine ends at once if another process than the engine's made it
                time.sleep(0.0005)
            become(start, files)
        os.waitpid(between, 0)
        connection.sendall(os.read(told, 8))
        for file in (told, tells, *files):
            os.close(file)


def _take(files: Sequence[int], keep: Sequence[int]) -> None:
    """Make the received files this process's first three and those in `keep`, and close all others."""
    first = max(keep, default=2) + 1
    high = [os.dup(file) for file in files]
    while min(high) < first:
        high = [os.dup(file) for file in high]
    wanted = (0, 1, 2, *keep)
    for file, number in zip(high, wanted, strict=True):
        os.dup2(file, number)
    for number in range(3, first):
        if number not in wanted:
            with contextlib.suppress(OSError):
                os.close(number)
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _receive(connection: socket.socket) -> tuple[int, list[int]]:
    """Return the size of a request, 0 at the end, and the files that came with it."""
    data, files, _, _ = socket.recv_fds(connection, 8, MOST_FILES)
    if not data:
        return 0, []
    data += _exactly(connection, 8 - len(data))
    return int.from_bytes(data, "little"), files


def _exactly(connection: socket.socket, n: int) -> bytes:
    found = b""
    while len(found) < n:
        if not (more := connection.recv(n - len(found))):
            raise EOFError("the other process has ended")
        found += more
    return found


if __name__ == "__main__":
    sys.modules["zygote"] = sys.modules["__main__"]  # pickled objects name it so
    import forking_torchrun  # noqa: F401  all that a run loads: it takes longer than most tests

    _serve(socket.socket(fileno=int(sys.argv[1])))
