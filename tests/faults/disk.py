"""A model of a disk: from a recording of what a run changed (`shim.c`), every folder that a power cut may leave.

The model knows no more about the file system than POSIX promises:

- A file has the bytes of its last fsync. What was written since may be there in any part: none, all, some writes and not
  others, a write cut at any byte, or zeros of the right length (the size reached the disk, the data didn't).
- A folder has the entries of its last fsync. Each later creation, rename and removal may have happened or not, in any
  combination, because fsync of a file doesn't sync its entry. One rename is atomic: the new name is the old file or the
  new one. A new folder is an entry of its parent like a file.
- Nothing that was synced changes or gets lost.
- A file that was written to may have the time of its last write, whatever it lost: a journal restores times, not data.

That includes what ALICE (Pillai et al., OSDI 2014) and CrashMonkey (Mohan et al., OSDI 2018) found to break
applications: a rename that reaches the disk before the data, a new file without its folder's entry, an append that grows
the file before its bytes arrive, and two renames in the other order. The disk is one disk: a run whose folders are on
several needs the same promises from each.

A state is named by a moment (after how many changes the power went) and a policy (what was kept of what wasn't synced).
"""

from __future__ import annotations

import enum
import functools
import os
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

RECORD = struct.Struct("=4I3Q")


class Kind(enum.IntEnum):
    """What changed; the numbers are those of `shim.c`."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    RENAME = 4
    UNLINK = 5
    MKDIR = 6
    RMDIR = 7
    LINK = 8
    SYNC = 9
    SYNC_FOLDER = 10
    MAP = 11


@dataclass(frozen=True, slots=True)
class Change:
    """One call of the recording."""

    kind: Kind
    pid: int
    first: str
    second: str
    inode: int
    offset: int
    data: bytes


@dataclass(slots=True, eq=False)
class File:
    """A file: what it began with, what was written (moment, offset, bytes; None: cut to that size), what was synced."""

    data: bytes = b""
    name: str = ""
    writes: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    syncs: list[tuple[int, bytes]] = field(default_factory=list)
    mapped: bool = False  # whether it may be written through a mapping, which isn't seen until it is synced
    times_ns: list[int] = field(
        default_factory=lambda: [0, 0]
    )  # when it was modified: before the recording, when it was renamed


class Content(bytes):
    """The bytes of a file that a power cut left, and its time of modification; 0 if that is of no interest."""

    time_ns = 0


@dataclass(slots=True, eq=False)
class Folder:
    """A folder: the entries it began with, how they changed (moment, name, its file or folder or None), its syncs."""

    entries: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[tuple[int, dict[str, File | Folder | None]]] = field(default_factory=list)
    syncs: list[int] = field(default_factory=list)


Tree = dict[str, "bytes | Tree"]
Policy = Callable[[str, int, int], float]
"""(what, moment, number of a change) -> how much of a change that wasn't synced is kept: 0 none, 1 all, else a part.
`what` is "name", "data" or "size" (the length of data that isn't kept)."""


def only_synced(what: str, moment: int, number: int) -> float:
    """What POSIX promises, and nothing more."""
    return 0.0


def everything(what: str, moment: int, number: int) -> float:
    """What a kill leaves: the system has everything that was written."""
    return 1.0


def names_first(what: str, moment: int, number: int) -> float:
    """A journal of names alone: each rename and creation is there, data only if it was synced."""
    return float(what == "name")


def names_and_sizes_first(what: str, moment: int, number: int) -> float:
    """The same, with lengths: a file has its size and zeros (delayed allocation)."""
    return float(what != "data")


def data_first(what: str, moment: int, number: int) -> float:
    """All data, and only the names that were synced."""
    return float(what != "name")


def sampled(seed: int) -> Policy:
    """Any part of what wasn't synced, by a seed, differently after each moment.

    Of the names all up to some moment or any of them, of the data any writes or parts of them; or all but one write.
    """

    @functools.cache
    def style(moment: int) -> tuple[bool, float, bool, float, int]:
        chance = random.Random(f"{seed} {moment}")
        lost = moment - int(chance.expovariate(1 / 20)) if chance.random() < 1 / 3 else 0
        return chance.random() < 0.5, chance.choice((0.2, 0.5, 0.8)), chance.random() < 0.5, chance.random(), lost

    def kept(what: str, moment: int, number: int) -> float:
        ordered, likely, tears, kept_until, lost = style(moment)
        if lost:
            return float(what != "data" or number != lost)
        if what == "name" and ordered:
            return float(number <= kept_until * moment)
        draw = random.Random(f"{seed} {moment} {what} {number}")
        if draw.random() >= likely:
            return 0.0
        return draw.random() if tears and what == "data" else 1.0

    return kept


FIXED: dict[str, Policy] = {
    policy.__name__: policy for policy in (only_synced, names_first, names_and_sizes_first, data_first)
}


class Disk:
    """The history of a folder: how it was when the recording began, and every change since."""

    def __init__(self, folder: Path) -> None:
        """Take the folder as it is: everything in it counts as synced."""
        self._inodes: dict[int, File | Folder] = {}
        self.root = self._scan(folder)
        self.changes: list[Change] = []
        self.unseen: list[str] = []  # files that were synced with bytes that no recorded write gave them
        self.exposed: list[int] = []  # moments of writes to a file that has its final name
        self.early_renames: list[str] = []  # of files that weren't synced since they were written

    def _scan(self, folder: Path) -> Folder:
        found = Folder()
        self._inodes[folder.stat().st_ino] = found
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                found.entries[path.name] = self._scan(path)
                continue
            entry = self._inodes.setdefault(
                path.stat().st_ino, File(path.read_bytes(), path.name, times_ns=[path.stat().st_mtime_ns] * 2)
            )  # hard links are one file
            found.entries[path.name] = entry
        return found

    def replay(self, log: Path) -> None:
        """Read a recording and take its changes over."""
        for change in _records(log.read_bytes()):
            self.changes.append(change)
            self._take(len(self.changes), change)

    def _take(self, moment: int, change: Change) -> None:
        kind = change.kind
        if kind in (Kind.CREATE, Kind.MKDIR):  # the number of a removed file may be used again
            entry = self._inodes[change.inode] = Folder() if kind == Kind.MKDIR else File()
            self._put(moment, change.first, entry)
        elif kind == Kind.LINK:
            self._put(moment, change.first, self._inodes[change.inode])
        elif kind in (Kind.UNLINK, Kind.RMDIR):
            self._put(moment, change.first, None)
        elif kind == Kind.RENAME:
            self._rename(moment, change)
        elif kind == Kind.SYNC_FOLDER:
            self._folder(change.inode).syncs.append(moment)
        elif kind == Kind.SYNC:
            self._sync(moment, change)
        elif kind == Kind.MAP:
            self._file(change.inode).mapped = True
        else:
            file, written = self._file(change.inode), change.data if kind == Kind.WRITE else None
            file.writes.append((moment, change.offset, written))
            if not file.name.startswith("."):
                self.exposed.append(moment)

    def _sync(self, moment: int, change: Change) -> None:
        file = self._file(change.inode)
        if not file.mapped and _bytes(file, moment, everything) != change.data:
            self.unseen.append(file.name)
        file.syncs.append((moment, change.data))
        if change.first:
            self._notice_rename(moment, change.first, file)

    def _put(self, moment: int, path: str, entry: File | Folder | None) -> None:
        folder, name = self._place(path)
        folder.changes.append((moment, {name: entry}))
        if isinstance(entry, File):
            entry.name = name

    def _rename(self, moment: int, change: Change) -> None:
        (source, old), (target, new) = self._place(change.first), self._place(change.second)
        entry = _now(source)[old]
        if isinstance(entry, File):
            entry.name, entry.times_ns[1] = new, change.offset
        if isinstance(entry, File) and entry.writes and entry.writes[-1][0] > (entry.syncs or [(0, b"")])[-1][0]:
            self.early_renames.append(change.second[1:])
        if source is target:
            source.changes.append((moment, {old: None, new: entry}))
        else:
            source.changes.append((moment, {old: None}))
            target.changes.append((moment, {new: entry}))

    def _notice_rename(self, moment: int, path: str, file: File) -> None:
        """Take over the name of a synced file, if a system call that the shim doesn't see has renamed it."""
        folder, name = self._place(path)
        if _now(folder).get(name) is not file:
            old = {name: None for name, entry in _now(folder).items() if entry is file}
            folder.changes.append((moment, {**old, name: file}))

    def _file(self, inode: int) -> File:
        found = self._inodes.setdefault(inode, File())  # a file without a name (O_TMPFILE), which a power cut deletes
        assert isinstance(found, File)
        return found

    def _folder(self, inode: int) -> Folder:
        found = self._inodes[inode]
        assert isinstance(found, Folder)
        return found

    def _place(self, path: str) -> tuple[Folder, str]:
        """Return the folder that has this path's last component now, and that component."""
        *parents, name = path.strip("/").split("/")
        folder = self.root
        for parent in parents:
            found = _now(folder)[parent]
            assert isinstance(found, Folder), path
            folder = found
        return folder, name

    def state(self, moment: int, policy: Policy) -> Tree:
        """Return what a power cut after `moment` changes leaves, if `policy` says what is kept of the rest."""
        return _tree(self.root, moment, policy)

    def last_moment(self) -> int:
        return len(self.changes)

    def moments(self) -> list[int]:
        """Return the moments after which a name has changed or something was synced: all that differ in what is there."""
        return [
            n for n, change in enumerate(self.changes, 1) if change.kind not in (Kind.WRITE, Kind.TRUNCATE, Kind.MAP)
        ]


def _records(log: bytes) -> Iterator[Change]:
    at = 0
    while at < len(log):
        kind, pid, n_first, n_second, inode, offset, n_data = RECORD.unpack_from(log, at)
        at += RECORD.size
        first, second = log[at : at + n_first].decode(), log[at + n_first : at + n_first + n_second].decode()
        at += n_first + n_second
        yield Change(Kind(kind), pid, first, second, inode, offset, log[at : at + n_data])
        at += n_data


def _tree(folder: Folder, moment: int, policy: Policy) -> Tree:
    synced = max((each for each in folder.syncs if each <= moment), default=0)
    kept = _after(
        folder, lambda number: number <= synced or (number <= moment and policy("name", moment, number) >= 0.5)
    )
    return {
        name: _tree(entry, moment, policy) if isinstance(entry, Folder) else _bytes(entry, moment, policy)
        for name, entry in sorted(kept.items())
    }


def _bytes(file: File, moment: int, policy: Policy) -> bytes:
    synced, data = max(((n, data) for n, data in file.syncs if n <= moment), default=(0, file.data), key=lambda s: s[0])
    content = bytearray(data)
    for number, offset, written in file.writes:
        if not synced < number <= moment:
            continue
        kept = policy("data", moment, number)
        if written is None:
            if kept >= 0.5:
                del content[offset:]
                content.extend(bytes(offset - len(content)))
            continue
        n_kept = int(kept * len(written))
        if kept or policy("size", moment, number):
            n_lengthened = len(written) if policy("size", moment, number) else n_kept
            content.extend(bytes(max(0, offset + n_lengthened - len(content))))
        content[offset : offset + n_kept] = written[:n_kept]
    found = Content(content)
    found.time_ns = file.times_ns[any(number <= moment for number, *_ in file.writes)]
    return found


def _now(folder: Folder) -> dict[str, File | Folder]:
    return _after(folder, lambda number: True)


def _after(folder: Folder, happened: Callable[[int], bool]) -> dict[str, File | Folder]:
    """Return the entries of a folder after those changes that happened."""
    entries = dict(folder.entries)
    for number, change in folder.changes:
        if happened(number):
            entries.update(change)  # type: ignore[arg-type]
    return {name: entry for name, entry in entries.items() if entry is not None}


def write_tree(tree: Tree, folder: Path) -> Path:
    """Write a state as a folder, with the files' times where they are known."""
    folder.mkdir(parents=True)
    for name, entry in tree.items():
        if isinstance(entry, bytes):
            (folder / name).write_bytes(entry)
            if time_ns := getattr(entry, "time_ns", 0):
                os.utime(folder / name, ns=(time_ns, time_ns))
        else:
            write_tree(entry, folder / name)
    return folder


def read_tree(folder: Path) -> Tree:
    """Return a folder as a tree."""
    return {
        entry.name: read_tree(Path(entry.path)) if entry.is_dir() else Path(entry.path).read_bytes()
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name)
    }


def files_of(tree: Tree, prefix: str = "") -> dict[str, bytes]:
    """Return path -> bytes of every file of a tree."""
    found: dict[str, bytes] = {}
    for name, entry in tree.items():
        if isinstance(entry, bytes):
            found[prefix + name] = entry
        else:
            found |= files_of(entry, f"{prefix}{name}/")
    return found
