"""Folders on disk or at any fsspec URL (`s3://...`), with atomic publishing.

On disk a file is written under a temporary name, fsynced and renamed. An object store has no rename: there one put
publishes one complete object, and a part set's entry files mark which objects count (`base/parts/partset.py`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from webtext.base.errors import InputError, MachineError, WebtextError
from webtext.base.object_store import ObjectStore, entity_tag

T = TypeVar("T")

TEMPORARY_SUFFIX = ".tmp"
MAX_COMMAND_CHARACTERS = 300  # of the process that has locked a folder
MAX_WHOLE_BYTES = 256 << 20  # of a local file that is read at once; a manifest of some thousand parts has a tenth of it


class Folder:
    """One folder, given by a local path or a URL; nothing is created until something is written."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        name = os.fspath(url).removeprefix("file://")
        if re.fullmatch("([^/]+:/{2,})?", name):  # such as 's3://', before a variable that is unset
            raise InputError(f"the name of a file or folder is empty: '{url}'", "name one; '.' is the current folder")
        self.url = name.rstrip("/") or "/"
        self.is_local = "://" not in self.url
        if self.is_local:
            self._path = Path(self.url)
            self._remote: Any = None
        else:
            self._path = Path()
            self._remote = ObjectStore(self.url)

    def __reduce__(self) -> tuple[type[Folder], tuple[str]]:
        return type(self), (self.url,)

    def __repr__(self) -> str:
        return f"Folder({self.url!r})"

    @classmethod
    def split(cls, path: str) -> tuple[Folder, str]:
        """Split a path or URL into its folder and its last component."""
        parent, slash, name = path.removeprefix("file://").rstrip("/").rpartition("/")
        return cls(parent or slash or "."), name

    def child(self, name: str) -> Folder:
        return Folder(self.location(name))

    def location(self, name: str = "") -> str:
        return f"{self.url.rstrip('/')}/{name}" if name else self.url

    def local_path(self, name: str = "") -> Path:
        """Return the path of `name` on this machine; raises InputError if the folder is remote."""
        if not self.is_local:
            remedy = "name a folder on a local disk, and copy what you need from or to the store"
            raise InputError(f"'{self.location(name)}' is not on this machine", remedy)
        return self._path / name if name else self._path

    def exists(self, name: str) -> bool:
        if self.is_local:
            return (self._path / name).exists()
        return bool(self._remote.exists(self.location(name)))

    def is_file(self, name: str) -> bool:
        return os.path.isfile(self._path / name) if self.is_local else bool(self._remote.isfile(self.location(name)))

    def size(self, name: str) -> int:
        """Return the size of file `name`; raises InputError for a device or a pipe, which may never end."""
        return self.status(name)[0]

    def version(self, name: str) -> str:
        """Return a string that changes with file `name`: its modification time on disk, its entity tag in a store."""
        return self.status(name)[1]

    def status(self, name: str) -> tuple[int, str]:
        """Return `size` and `version` of file `name`."""
        if self.is_local:
            status = (self._path / name).stat()
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"'{self.location(name)}' is not a regular file", "put a file in its place")
            return status.st_size, str(status.st_mtime_ns)
        about = self._remote.info(self.location(name))
        return int(about["size"]), entity_tag(about)

    def names(self, suffix: str = "") -> list[str]:
        """Return the sorted names of this folder's files that end in `suffix`; empty if the folder doesn't exist."""
        return sorted(name for name in self.files() if name.endswith(suffix))

    def files(self) -> dict[str, int]:
        """Return name -> size of this folder's finished files, from one listing; empty if there is no such folder."""
        found: dict[str, int] = {}
        if self.is_local:
            for entry in os.scandir(self._path) if self._path.is_dir() else ():
                with contextlib.suppress(FileNotFoundError):  # just renamed or removed
                    if entry.is_file():
                        found[entry.name] = entry.stat().st_size
        else:
            with contextlib.suppress(FileNotFoundError):
                rows = self._remote.ls(self.url, detail=True)
                found = {row["name"].rpartition("/")[2]: row["size"] for row in rows if row["type"] == "file"}
        return {name: size for name, size in found.items() if not name.endswith(TEMPORARY_SUFFIX)}

    def check_output(self, marks: Sequence[str]) -> None:
        """Raise InputError for a folder that isn't empty and in which no name matches one of `marks`, its writer's own.

        Hidden files and logs (*.log) don't count. The name of a folder in it ends in "/". A store isn't asked.
        """
        if not (self.is_local and self._path.is_dir()):
            return
        found = (each.name + "/" * each.is_dir() for each in os.scandir(self._path))
        others = [name for name in found if not re.search(r"^\.|\.log$", name)]
        if others and not any(fnmatch.fnmatchcase(name, mark) for name in others for mark in marks):
            raise InputError(
                f"'{self.url}' contains '{min(others)}', and nothing that this command writes",
                "choose another --out: an empty folder, or one that this command wrote",
            )

    def names_within(self) -> list[str]:
        """Return the sorted paths of this folder's files, also in folders inside it; a linked folder is read once."""
        if self.is_local:
            return sorted(_files_within(self._path))
        prefix = self.url.partition("://")[2] + "/"
        found = (name.lstrip("/").removeprefix(prefix) for name in self._remote.find(self.url))
        return sorted(name for name in found if ".." not in name.split("/"))

    def open(self, name: str) -> BinaryIO:
        """Open file `name` for reading; the file is seekable."""
        try:
            if self.is_local:
                return open(self._path / name, "rb")
            return cast(BinaryIO, self._remote.reader(self.location(name)))
        except FileNotFoundError:
            raise InputError(f"no file '{self.location(name)}'", "check the path") from None
        except (IsADirectoryError, PermissionError) as error:
            raise InputError(
                f"'{self.location(name)}' cannot be read: {os.strerror(error.errno or errno.EIO)}",
                "name a file that you may read",
            ) from None

    def read_bytes(self, name: str) -> bytes:
        """Return all bytes of file `name`, in one request if remote; a local file above MAX_WHOLE_BYTES is rejected."""
        if self.is_local:
            with contextlib.suppress(OSError):  # `open` below reports what is wrong
                if self.size(name) > MAX_WHOLE_BYTES:
                    raise InputError(
                        f"'{self.location(name)}' has {self.size(name):,} bytes; the limit for files read at once is "
                        f"{MAX_WHOLE_BYTES:,}",
                        "check whether it is the right file",
                    )
            with self.open(name) as file:
                return file.read()
        return cast(bytes, self._remote.read(self.location(name)))

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Return bytes start … stop-1 of file `name`, in one request if remote; InputError if the file is shorter."""
        if self.is_local:
            with self.open(name) as file:
                file.seek(start)
                data = file.read(stop - start)
        else:
            data = self._remote.read(self.location(name), start=start, end=stop)
        if len(data) != stop - start:
            raise InputError(
                f"'{self.location(name)}' returned {len(data):,} bytes, not {stop - start:,}, from offset {start:,} on",
                "either the file has become shorter, or its server doesn't support range requests",
            )
        return data

    def read_object(self, name: str, remedy: str = "make it again") -> dict[str, Any]:
        """Return the JSON object in file `name`; raises InputError with the remedy if there is none."""
        return self.read_json(name, dict[str, Any], remedy)

    def read_json(self, name: str, of: type[T], remedy: str = "make it again") -> T:
        """Return the JSON in file `name` as a type; like `decode_json`."""
        return decode_json(self.read_bytes(name), of, self.location(name), remedy)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Publish `data` under `name`, completely or not at all. A local file with these bytes isn't touched."""
        if not self.is_local:
            self._remote.put(data, self.location(name))
            return
        if self.exists(name) and self.size(name) == len(data) and self.read_bytes(name) == data:
            return
        with self.scratch(name) as path, no_space_is_an_error(self.location(name), len(data)):
            path.write_bytes(data)

    def write_object(self, name: str, value: Any) -> None:
        """Publish `pretty_json(value)` under `name`, like `write_bytes`."""
        self.write_bytes(name, pretty_json(value))

    @contextlib.contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """Yield a local path to write to; on a clean exit it is fsynced and published as `name`, otherwise removed."""
        with no_space_is_an_error(self.location(name)):
            path = self.scratch_path(name)
            try:
                yield path
                self.publish(path, name)
            finally:
                path.unlink(missing_ok=True)

    def scratch_path(self, name: str) -> Path:
        """Return a temporary path for a future file `name`, on this folder's disk, so that publishing renames it.

        Each call returns another one: on storage that machines share, process ids say little.
        """
        with no_space_is_an_error(self.location(name)):
            if not self.is_local:
                return Path(temporary_folder()) / f"webtext-{os.urandom(16).hex()}{TEMPORARY_SUFFIX}"
            target = self._path / name
            make_folder(target.parent)
            return target.with_name(f".{target.name}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}")

    def publish(self, path: Path, name: str) -> None:
        """Move the finished local file `path` to `name`; it appears complete, and synced."""
        with no_space_is_an_error(self.location(name)):
            if self.is_local:
                _publish_local(path, self._path / name)
            else:
                self._remote.put_file(str(path), self.location(name))
                path.unlink()

    def held(self, shared: bool = False) -> contextlib.AbstractContextManager[None]:
        """Hold the right to write this folder, alone or with others that share it; InputError names a process that has it.

        Locks end with their process. A store has none: there, the user runs one command per folder.
        """
        if not self.is_local:
            return contextlib.nullcontext()
        try:
            self.url.encode()
        except UnicodeEncodeError:
            raise InputError(f"the folder's name {self.url!r} is not valid UTF-8", "choose another --out") from None
        with no_space_is_an_error(self.url):
            make_folder(self._path)
        return _lock(self._path, shared)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there, so that a power cut doesn't bring it back."""
        if self.is_local:
            path = self._path / name
            if path.exists():  # on a read-only file system, removing a missing file is an error, too
                path.unlink(missing_ok=True)
                sync_folder(path.parent)
        else:
            self._remote.delete(self.location(name))

    def remove_all(self) -> None:
        if self.is_local:
            shutil.rmtree(self._path, ignore_errors=True)
        elif self._remote.exists(self.url):
            self._remote.rm(self.url, recursive=True)

    def remove_leftovers(self, name: str = "") -> None:
        """Remove the temporary files of `name`, or of all files, that killed runs left; remote puts leave none."""
        if self.is_local and self._path.is_dir():
            for path in self._path.glob(f".{glob.escape(name)}*{TEMPORARY_SUFFIX}"):
                path.unlink(missing_ok=True)


def check_version(found: Any, read: int, location: str) -> None:
    """Raise InputError unless `found`, the format that the file at `location` states, is a format that this version reads."""
    if found != read:
        remedy = "use the version of webtext that wrote it"
        raise InputError(f"'{location}' has format {found}; this version reads {read}", remedy)


def pretty_json(value: Any) -> bytes:
    """Encode as JSON for people and for hashes: sorted keys, one value per line; equal values give equal bytes."""
    return (strict_json(value, indent=1, sort_keys=True) + "\n").encode()


def strict_json(value: Any, **options: Any) -> str:
    """Encode as JSON, which has neither NaN nor infinities: they become null."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None), **options)


def make_folder(path: Path) -> None:
    """Create a folder and its parents where missing, so that a power cut doesn't lose them with all that they contain."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder permanent: syncing a file doesn't sync its name."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def temporary_folder() -> str:
    """Return the folder for temporary files, by Python's rules."""
    import tempfile  # takes as long to import as the rest of this module

    return tempfile.gettempdir()


def _files_within(folder: Path) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        raise InputError(f"'{error.filename}' cannot be read: {error.strerror}", "name a readable file or folder")

    seen = {os.path.realpath(folder)}
    for root, folders, names in os.walk(folder, onerror=unreadable, followlinks=True):
        real = {os.path.realpath(os.path.join(root, each)): each for each in sorted(folders, reverse=True)}
        folders[:] = [each for place, each in real.items() if place not in seen]
        seen.update(real)
        for path in (Path(root, name) for name in names):
            if path.is_file() and path.suffix != TEMPORARY_SUFFIX:
                yield path.relative_to(folder).as_posix()


def decode_json(data: bytes, of: type[T], location: str, remedy: str) -> T:
    """Return the JSON in `data`, which was read from `location`, as a type: a dict, dataclass or msgspec.Struct.

    Raises InputError, which names the field and ends with the remedy, for a value that isn't of that type.
    """
    import msgspec  # of an extra; the tokenizer reads no such file

    try:
        return msgspec.json.decode(data, type=of)
    except (ValueError, RecursionError) as error:
        place = re.search(r"\(byte (\d+)\)", str(error))
        near = f" near {data[max(0, int(place[1]) - 20) : int(place[1]) + 4]!r}" if place else ""
        raise InputError(f"'{location}' is damaged: {error}{near}", remedy) from None


_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR}
_NOT_WRITABLE |= {errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG}


@contextlib.contextmanager
def no_space_is_an_error(location: str, n_bytes: int | None = None) -> Iterator[None]:
    """Turn 'no space left', 'file too large' and 'not allowed to write' into short errors that name `location`.

    `n_bytes` is the size of the write, if known.
    """
    try:
        yield
    except OSError as error:
        if full := disk_error(error, location, n_bytes):
            raise full from None
        if error.errno in _NOT_WRITABLE:
            raise MachineError(
                f"cannot write '{location}': {os.strerror(error.errno)}", "choose another --out"
            ) from None
        raise


def disk_error(error: BaseException, location: str, n_bytes: int | None = None) -> MachineError | None:
    """Return the error for a full disk, a quota or a file-size limit at `location`; None for any other error."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EFBIG:
        return MachineError(
            f"'{location}' exceeds the limit on file sizes: {os.strerror(number)}",
            "raise the limit (ulimit -f), or choose another --out",
        )
    if number not in (errno.ENOSPC, errno.EDQUOT) and not _FULL.search(str(error)):
        return None
    path = Path(temporary_folder() if "://" in location else location).absolute()
    place = next(each for each in (path, *path.parents) if each.exists())
    mount = next(each for each in (place, *place.parents) if each.is_mount())
    disk = os.statvfs(place)
    asked = "" if n_bytes is None else f"{n_bytes:,} bytes were needed, "
    inodes = ", no inode is free" if disk.f_files and not disk.f_favail else ""
    return MachineError(
        f"no space left while writing '{location}'",
        f"on the file system at '{mount}', {asked}{disk.f_bavail * disk.f_frsize:,} bytes are free{inodes}",
        "free some space and rerun the same command to resume",
    )


_FULL = re.compile(r"^\d+ requested and \d+ written|No space left on device|database or disk is full")
"""Matches messages without an errno: numpy's and SQLite's, and the system's text inside errors of other libraries."""


def file_sha256(file: BinaryIO, block_bytes: int = 1 << 20) -> str:
    """Return the SHA-256 (hex) of a file's bytes from its current position on."""
    digest = hashlib.sha256()
    while block := file.read(block_bytes):
        digest.update(block)
    return digest.hexdigest()


def write_array(file: BinaryIO, array: Any) -> None:
    """Append a contiguous numpy array. Its own `tofile` reports neither errno nor path when the disk is full."""
    with no_space_is_an_error(file.name, array.nbytes):
        file.write(array)


def stopping_error(error: BaseException, writes: str | None = None) -> WebtextError | None:
    """Return the error if every other part and record would hit it as well; None if it concerns only this one.

    Such errors are a bad input or setting, or a machine that lacks something: an extra, or disk space. If the system
    names no file, as it doesn't for a write, a full disk's error names `writes`.
    """
    if isinstance(error, WebtextError):
        return error if error.exit_code in (2, 3) or isinstance(error, MachineError) else None
    return disk_error(error, str(error.filename or writes or os.getcwd())) if isinstance(error, OSError) else None


def _publish_local(temporary: Path, target: Path) -> None:
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, target)
    sync_folder(target.parent)


@contextlib.contextmanager
def _lock(folder: Path, shared: bool) -> Iterator[None]:
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
