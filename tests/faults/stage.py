"""The stage of the drills: a process under the shim, which runs commands in a folder, recorded or with one fault."""

from __future__ import annotations

import enum
import errno
import functools
import hashlib
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from disk import Disk

HERE = Path(__file__).resolve().parent
CONTROL = struct.Struct("=4i3q1024s1024s")
MODULES = (
    "webtext.app.main", "webtext.clean.command", "webtext.clean.pipeline", "webtext.tokenizer.command", "webtext.shards.command",
    "webtext.base.workers.local_engine", "webtext.base.workers.worker", "pyarrow.parquet", "pyarrow.dataset",
)  # fmt: skip


class Fault(enum.IntEnum):
    """What happens at the N-th change; the numbers are those of `shim.c`."""

    NONE = 0
    FAIL = 1  # the call fails and does nothing
    KILL = 2  # all processes are killed before it
    TEAR = 3  # half of a write, or the whole of another change, and then the kill
    TEAR_AND_FAIL = 4  # half of a write, and then an error
    SHORTEN = 5  # half of a write, without an error, as POSIX allows
    DIE = 6  # the process that makes it is killed before it, a worker or the command itself


@dataclass(frozen=True, slots=True)
class Ended:
    """How a list of commands ended: the signal that killed it or 0, each command's exit code, and what it printed."""

    signal: int
    codes: tuple[int, ...]
    said: str
    fired: bool
    n_changes: int

    @property
    def well(self) -> bool:
        return self.signal == 0 and not any(self.codes)

    @property
    def clearly(self) -> bool:
        """Whether it ended well or with a short error: no traceback, no error that calls itself unexpected."""
        return self.well or (
            self.signal == 0 and -1 not in self.codes and "error: " in self.said
            and "Traceback" not in self.said and "unexpected" not in self.said
        )  # fmt: skip


@functools.cache
def shim() -> Path:
    """Compile the shim, once for each version of it."""
    source = HERE / "shim.c"
    name = f"webtext-shim-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}-{os.getuid()}.so"
    built = Path(tempfile.gettempdir()) / name
    if not built.exists():
        temporary = built.with_name(f"{name}.{os.getpid()}")
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-ldl", "-lpthread"]
        subprocess.run(["cc", "-o", temporary, source, *flags], check=True)
        temporary.rename(built)
    return built


class Stage:
    """Runs commands in child processes of one process that has loaded everything, under the shim."""

    def __init__(self, scratch: Path, modules: Sequence[str] = ()) -> None:
        """Start the process."""
        scratch.mkdir(parents=True, exist_ok=True)
        self._log = scratch / "log"
        control = scratch / "control"
        control.write_bytes(bytes(CONTROL.size))
        with open(control, "r+b") as file:
            self._control = mmap.mmap(file.fileno(), CONTROL.size)
        environment = os.environ | {
            "LD_PRELOAD": str(shim()), "FAULTS_CONTROL": str(control), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(HERE),
        }  # fmt: skip
        # Python's own malloc and no bytecode: what differs between two runs of the same code is nobody's business here.
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "stagehand.py"), *MODULES, *modules],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, folder: Path, commands: Sequence[Sequence[str]], *, learn: bool = False) -> Ended:
        """Run commands in `folder`, one after the other, until one fails; if `learn`, import first what they import."""
        return self._run(folder, commands, 0, 0, Fault.NONE, 0, learn)

    def record(self, folder: Path, commands: Sequence[Sequence[str]]) -> tuple[Disk, Ended]:
        """Run commands and return what they did to `folder`; the model of the disk must agree with the real one."""
        disk = Disk(folder)
        self._log.write_bytes(b"")
        ended = self._run(folder, commands, 1, 0, Fault.NONE, 0)
        disk.replay(self._log)
        return disk, ended

    def fail(
        self, folder: Path, commands: Sequence[Sequence[str]], n: int, fault: Fault, error: int = errno.ENOSPC
    ) -> Ended:
        """Run commands with a fault at the n-th change, counted from 1."""
        self._log.write_bytes(b"")
        return self._run(folder, commands, 1, n, fault, error)

    def _run(
        self, folder: Path, commands: Sequence[Sequence[str]], recording: int, n: int, fault: Fault, error: int,
        learn: bool = False,
    ) -> Ended:  # fmt: skip
        place = str(folder.resolve()).encode()
        self._control[:] = CONTROL.pack(recording, fault, error, 0, 0, n, 0, place, str(self._log).encode())
        request = {"folder": str(folder), "commands": list(map(list, commands)), "learn": learn}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the stagehand died: see its message above"
        answer = json.loads(line)
        _, _, _, _, n_changes, _, fired, _, _ = CONTROL.unpack(self._control[:])
        self._control[:4] = bytes(4)
        return Ended(answer["signal"], tuple(answer["codes"]), answer["error"], bool(fired), n_changes)


def copied(folder: Path, target: Path) -> Path:
    """Copy a folder, as the beginning of a drill."""
    shutil.rmtree(target, ignore_errors=True)
    return shutil.copytree(folder, target)
