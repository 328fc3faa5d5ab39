"""Leases: the right to write a folder, or a named share of it, which one process has at a time.

On disk a lease is a lock (flock), which ends with its process: of the folder itself, or of the file `_leases/NAME` and,
shared with other names, of the folder. In an object store it is the object `_leases/NAME`, put if there is none
(If-None-Match) and renewed every minute. One that wasn't renewed for five minutes by the store's own clock is replaced
(If-Match), at once if its process ran on this machine and has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from webtext.base.errors import InputError, NetworkError

LEASES = "_leases"
WHOLE = "folder"  # the name of the lease of a whole folder in a store
RENEWAL_SECONDS = 60.0
EXPIRY_SECONDS = 300.0
_CONDITIONAL: set[str] = set()  # the buckets that were seen to honour conditions
MAX_COMMAND_CHARACTERS = 300


class Found(NamedTuple):
    """An object in a store: its entity tag, its age in seconds by the store's clock, and its bytes."""

    tag: str
    age: float
    data: bytes


class Store(Protocol):
    """What leases need of an object store."""

    def put_if(self, location: str, data: bytes, tag: str) -> str:
        """Put an object if none is there, or if it has this entity tag; return the new tag, "" if that isn't so."""

    def look(self, location: str) -> Found | None: ...
    def names(self, location: str) -> list[str]: ...
    def delete(self, location: str) -> None: ...


@contextlib.contextmanager
def lock(folder: Path, name: str) -> Iterator[None]:
    """Lock an existing folder, or the share `name` of it; InputError names the process that has it."""
    with contextlib.ExitStack() as opened:
        handle = os.open(folder, os.O_RDONLY)
        opened.callback(os.close, handle)
        if not _flock(handle, fcntl.LOCK_SH if name else fcntl.LOCK_EX):
            raise _taken(str(folder), WHOLE, _locker(handle))
        if name:
            opened.enter_context(_locked_file(folder, name))
        else:  # what killed shares left
            shutil.rmtree(folder / LEASES, ignore_errors=True)
        yield


def locked(folder: Path) -> list[str]:
    """Return the names of the locked shares of a folder."""
    names = os.listdir(folder / LEASES) if (folder / LEASES).is_dir() else []
    found = []
    for name in sorted(names):
        with contextlib.suppress(FileNotFoundError), open(folder / LEASES / name, "rb") as file:
            if not _flock(file.fileno(), fcntl.LOCK_SH):
                found.append(name)
    return found


@contextlib.contextmanager
def _locked_file(folder: Path, name: str) -> Iterator[None]:
    """Lock a file that exists only while it is locked, because whoever has locked it removes it."""
    path, holder = folder / LEASES / name, ""
    for _ in range(5):  # it may be removed, or locked by `locked` for an instant
        path.parent.mkdir(exist_ok=True)
        with contextlib.ExitStack() as opened:
            mine = False
            with contextlib.suppress(FileNotFoundError):
                file = opened.enter_context(open(path, "ab"))
                if mine := _flock(file.fileno(), fcntl.LOCK_EX):
                    mine = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
                else:
                    holder = _locker(file.fileno())
            if mine:
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                    with contextlib.suppress(OSError):  # other shares are locked
                        path.parent.rmdir()
                return
        time.sleep(0.05)
    raise _taken(str(folder), name, holder)


def _flock(handle: int, mode: int) -> bool:
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def lease(store: Store, url: str, name: str) -> Iterator[None]:
    """Take the lease of the folder at `url`, or of its share `name`, and renew it until the block ends.

    InputError names the process that has it, or says that the store ignores conditions, or that the lease was lost.
    """
    place, bucket = f"{url}/{LEASES}/{name or WHOLE}", "/".join(url.split("/")[:3])
    about = {"holder": _describe(os.getpid()), "process": _process(os.getpid()), "id": os.urandom(16).hex()}
    data = json.dumps(about).encode()
    tags, ended = [_take(store, url, name or WHOLE, data)], threading.Event()

    def renew() -> None:
        while tags[-1] and not ended.wait(RENEWAL_SECONDS):
            with contextlib.suppress(NetworkError):  # the next round tries again
                tags[-1] = _put(store, place, data, tags[-1])

    thread = threading.Thread(target=renew, daemon=True)
    try:
        if bucket not in _CONDITIONAL and store.put_if(place, data, ""):
            raise InputError(
                f"'{url}' can't be locked, because its store ignores conditional writes (If-None-Match)",
                "use a store that has them with current versions of s3fs and aiobotocore, or a local folder",
            )
        for other in [WHOLE] if name else store.names(f"{url}/{LEASES}"):
            found = store.look(f"{url}/{LEASES}/{other}")
            if other != (name or WHOLE) and found and _is_live(found):
                raise _taken(url, other, _about(found)["holder"])
        _CONDITIONAL.add(bucket)
        thread.start()
        yield
    finally:
        ended.set()
        if thread.is_alive():
            thread.join()
        with contextlib.suppress(NetworkError):  # then it expires
            if tags[-1]:
                store.delete(place)
    if not tags[-1]:
        raise InputError(
            f"the lease of '{url}' was lost: it wasn't renewed in time, and another run took it",
            "rerun the same command: it checks what is there",
        )


def leased(store: Store, url: str) -> list[str]:
    """Return the names of the shares of a folder whose leases are renewed."""
    found = {name: store.look(f"{url}/{LEASES}/{name}") for name in store.names(f"{url}/{LEASES}")}
    return sorted(name for name, each in found.items() if name != WHOLE and each and _is_live(each))


def _take(store: Store, url: str, name: str, data: bytes) -> str:
    place, found = f"{url}/{LEASES}/{name}", None
    for _ in range(3):
        if tag := _put(store, place, data, found.tag if found else ""):
            return tag
        found = store.look(place)
        if found and _is_live(found):
            break
    raise _taken(url, name, _about(found)["holder"] if found else "it began at the same time")


def _put(store: Store, place: str, data: bytes, tag: str) -> str:
    """Put a lease on a condition. A put that was repeated after its answer was lost finds its own bytes."""
    if put := store.put_if(place, data, tag):
        return put
    found = store.look(place)
    return found.tag if found and found.data == data else ""


def _is_live(found: Found) -> bool:
    """Whether the lease was renewed in time, and its process, if it ran on this machine, still runs."""
    process, here = _about(found)["process"], _process(os.getpid())
    ended = process[:2] == here[:2] and process != _process(process[2])
    return found.age < EXPIRY_SECONDS and not ended


def _about(found: Found) -> dict[str, Any]:
    try:
        about = json.loads(found.data)
        return {"holder": str(about["holder"]), "process": [*about["process"], "", "", 0][:4]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"holder": "its lease is damaged", "process": ["", "", 0, 0]}


def _taken(folder: str, name: str, holder: str) -> InputError:
    share = "" if name == WHOLE else f" ({name})"
    return InputError(f"another run is writing '{folder}'{share}", holder, "wait for it, or choose another --out")


def _locker(handle: int) -> str:
    """Describe the process that has locked an open file or folder; Linux lists this machine's locks in /proc/locks."""
    about = os.fstat(handle)
    place = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    with contextlib.suppress(OSError, StopIteration):
        locks = map(str.split, Path("/proc/locks").read_text().splitlines())
        return _describe(next(fields[4] for fields in locks if fields[1] == "FLOCK" and fields[5] == place))
    return f"it isn't visible from {os.uname().nodename}: it runs on another host or in another container"


def _describe(pid: int | str) -> str:
    """Describe a process of this machine for people: its number, host, start and command."""
    described = f"process {pid} on {os.uname().nodename}"
    with contextlib.suppress(OSError, ValueError, IndexError):
        command = " ".join(Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").split())
        seconds = float(Path("/proc/uptime").read_text().split()[0]) - _start(pid) / os.sysconf("SC_CLK_TCK")
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - seconds))
        described += f" since {since}: {command[:MAX_COMMAND_CHARACTERS]}"
    return described


def _process(pid: int) -> list[str | int]:
    """Return what identifies a process: the machine's start, the namespace of its number, the number, its start."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return [boot, os.readlink("/proc/self/ns/pid"), pid, _start(pid)]
    return []


def _start(pid: int | str) -> int:
    """Return when a process started, in ticks since the machine's start."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
