"""The right to write a folder on a disk: a lock (flock) of the folder itself, which ends with its process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from webtext.base.errors import InputError

MAX_COMMAND_CHARACTERS = 300


@contextlib.contextmanager
def lock(folder: Path, shared: bool) -> Iterator[None]:
    """Lock an existing folder, alone or with others that share it; InputError names a process that has it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            what, remedy = f"another run is writing '{folder}'", "wait for it, or choose another --out"
            raise InputError(what, _locker(handle), remedy) from None
        yield
    finally:
        os.close(handle)


def _locker(handle: int) -> str:
    """Describe the process that has locked an open folder; Linux lists this machine's locks in /proc/locks."""
    about = os.fstat(handle)
    place = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    with contextlib.suppress(OSError, StopIteration):
        locks = map(str.split, Path("/proc/locks").read_text().splitlines())
        return _describe(next(fields[4] for fields in locks if fields[1] == "FLOCK" and fields[5] == place))
    return f"it isn't visible from {os.uname().nodename}: it runs on another host or in another container"


def _describe(pid: str) -> str:
    """Describe a process of this machine for people: its number, host, start and command."""
    described = f"process {pid} on {os.uname().nodename}"
    with contextlib.suppress(OSError, ValueError, IndexError):
        command = " ".join(Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").split())
        start = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])  # ticks since the machine's
        seconds = float(Path("/proc/uptime").read_text().split()[0]) - start / os.sysconf("SC_CLK_TCK")
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - seconds))
        described += f" since {since}: {command[:MAX_COMMAND_CHARACTERS]}"
    return described
