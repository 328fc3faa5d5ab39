"""`stagehand.py MODULE...`: a process with everything imported, which forks a child for each list of commands.

It reads one JSON object per line ({"folder", "commands", "learn"}) and answers with one: {"signal", "codes", "error"}.
If it is to learn, it imports what the child and its workers imported, so that the next ones needn't. A child begins in
a process group of its own, so that a fault can kill it with its workers, like a power cut. The workers are the
engine's own, but forked instead of started, which takes a hundredth of the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

SECONDS = 120  # a guard against hanging, not a measurement
PR_SET_CHILD_SUBREAPER = 36
LEARNED = tempfile.TemporaryFile()  # noqa: SIM115 - names of modules; children append to it


class Forked:
    """What the engine uses of `subprocess.Popen`, for a worker that is a fork."""

    def __init__(self, arguments: Sequence[str], *, pass_fds: Sequence[int], env: dict[str, str], **_: Any) -> None:
        self._status: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                for file in range(3, 256):
                    if file not in (*pass_fds, LEARNED.fileno()):
                        with contextlib.suppress(OSError):
                            os.close(file)
                sys.argv = ["-c", *arguments[4:]]
                from webtext.base.workers.worker import main

                main()
            finally:
                os._exit(0)

    def poll(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def serve(request: dict[str, Any], answers: int) -> None:
    """Run the commands in this process, and write the answer to the file descriptor `answers`."""
    os.setsid()
    signal.alarm(SECONDS)
    if request["learn"]:
        sys.addaudithook(note_import)
    os.chdir(request["folder"])
    with tempfile.TemporaryFile("w+") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        codes = []
        for command in request["commands"]:
            try:
                codes.append(run_here(command))
            except BaseException:
                traceback.print_exc()
                codes.append(-1)
            if codes[-1]:
                break
        sys.stdout.flush()
        sys.stderr.flush()
        said.seek(0)
        os.write(answers, json.dumps({"signal": 0, "codes": codes, "error": said.read()[-3000:]}).encode())
    os._exit(0)


def note_import(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "import":
        os.write(LEARNED.fileno(), f"{arguments[0]}\n".encode())


def run_here(command: Sequence[str]) -> int:
    """Run a webtext command, or a function of these tests, named `module:function`."""
    from webtext.app.main import run
    from webtext.base.errors import WebtextError

    module, colon, name = command[0].partition(":")
    if not colon:
        return run([*command])
    try:
        return int(getattr(importlib.import_module(module), name)(*command[1:]))
    except (WebtextError, OSError) as error:  # what the command line reports in the same way
        print(f"error: {error}")
        return 1


def answer(request: dict[str, Any]) -> dict[str, Any]:
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        serve(request, theirs)
    os.close(theirs)
    with open(ours, "rb") as file:
        said = file.read()
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0):  # orphaned workers: the folder may be looked at when they have ended
            pass
    if request["learn"]:
        LEARNED.seek(0)
        for module in dict.fromkeys(LEARNED.read().decode().split()):
            with contextlib.suppress(Exception):
                importlib.import_module(module)
    if said:
        return dict(json.loads(said))
    return {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else -1, "codes": [], "error": ""}


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    from webtext.base.workers import local_engine as engine
    from webtext.base.workers import process

    engine.PAUSE_SECONDS = 0.0  # before what a kill from outside hit is tried again
    process.subprocess.Popen = Forked  # type: ignore[misc, assignment]
    requests, answers = sys.stdin, os.dup(1)
    os.dup2(2, 1)
    for line in requests:
        os.write(answers, json.dumps(answer(json.loads(line))).encode() + b"\n")


if __name__ == "__main__":
    main()
