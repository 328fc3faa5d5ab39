"""An object store at an fsspec URL (`s3://...`), for `Folder` and for leases.

Calls that fail in passing are repeated here and nowhere else.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from webtext.base.errors import InputError, NetworkError, missing_extra
from webtext.base.stores import leases

READ_BYTES = 8 << 20  # of one request for a file in a store that is read from start to end
PAUSES_SECONDS = (0.5, 1.0, 2.0)  # before a call to a store is repeated; botocore repeats each of its requests itself

T = TypeVar("T")


def entity_tag(row: dict[str, Any]) -> str:
    """Return the entity tag of an object; where a store has none, its time."""
    return str(next((row[key] for key in ("ETag", "etag", "mtime", "created") if row.get(key)), ""))


class ObjectStore:
    """A remote file system. A call that fails in passing is repeated; then it is a NetworkError with the address."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._system = _file_system(url.split("://", 1)[0], os.getpid(), os.environ.get("AWS_ENDPOINT_URL", ""))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._system, name)
        return lambda *arguments, **options: self.patiently(lambda: method(*arguments, **options))

    def put_file(self, path: str, location: str) -> None:
        self._into_bucket(lambda: self._system.put_file(path, location))

    def put(self, data: bytes, location: str) -> None:
        self._into_bucket(lambda: self._system.pipe_file(location, data))

    def _into_bucket(self, put: Callable[[], T]) -> T:
        try:
            return self.patiently(put)
        except FileNotFoundError:
            raise InputError(f"no bucket for '{self._url}'", "create it, or choose another --out") from None

    def read(self, location: str) -> bytes:
        options = {"max_concurrency": 1} if self._is_s3 else {}  # without asking for the size first
        return bytes(self.patiently(lambda: self._system.cat_file(location, **options)))

    def reader(self, location: str) -> Any:
        """Open an object for reading. A server that doesn't serve ranges gives a stream, which can't be repeated."""
        file = self.patiently(lambda: self._system.open(location, "rb", cache_type="none"))
        return io.BufferedReader(_Ranges(self, file), READ_BYTES) if getattr(file, "size", None) else file

    def delete(self, location: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.rm_file(location)

    def names(self, location: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return [row["name"].rpartition("/")[2] for row in self.ls(location, detail=True) if row["type"] == "file"]
        return []

    def locking(self) -> ObjectStore:
        """Return itself; InputError if this kind of store has no conditional writes here."""
        if not self._is_s3:
            remedy = "write to a folder on disk or at s3://, and copy it"
            raise InputError(f"'{self._url}' can't be locked, so another run might write there, too", remedy)
        return self

    def put_if(self, location: str, data: bytes, tag: str) -> str:
        """See `leases.Store`."""
        bucket, key, _ = self._system.split_path(location)
        condition = {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}

        def put() -> str:
            try:
                return str(self._system.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition)["ETag"])
            except OSError as error:
                code = getattr(error.__cause__, "response", {}).get("Error", {}).get("Code")
                if code in ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"):
                    return ""
                raise

        return self._into_bucket(put)

    def look(self, location: str) -> leases.Found | None:
        """See `leases.Store`."""
        from email.utils import parsedate_to_datetime  # loads datetime, without which the tokenizer starts faster

        bucket, key, _ = self._system.split_path(location)
        try:
            head = self.call_s3("head_object", Bucket=bucket, Key=key)
            data = self.read(location)
        except FileNotFoundError:
            return None
        asked = parsedate_to_datetime(head["ResponseMetadata"]["HTTPHeaders"]["date"])
        return leases.Found(head["ETag"], (asked - head["LastModified"]).total_seconds(), data)

    @property
    def _is_s3(self) -> bool:
        return hasattr(self._system, "call_s3")

    def patiently(self, ask: Callable[[], T]) -> T:
        for pause in (*PAUSES_SECONDS, None):
            try:
                return ask()
            except FileNotFoundError:
                raise
            except Exception as error:
                if pause is None or not _passes(error):
                    raise NetworkError(
                        f"'{self._url}' doesn't respond: {type(error).__name__}: {' '.join(str(error).split())[:200]}",
                        "check the address, the credentials and the network, then rerun the same command",
                    ) from None
            time.sleep(pause)
        raise AssertionError("unreachable")


class _Ranges(io.RawIOBase):
    """An open remote file, read in ranges; a range that arrives cut is asked for again."""

    def __init__(self, store: ObjectStore, file: Any) -> None:
        self._store, self._file, self._at = store, file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._file.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._store.patiently(lambda: self._read(len(buffer)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _read(self, n_bytes: int) -> bytes:
        n_bytes = max(0, min(n_bytes, self._file.size - self._at))
        self._file.seek(self._at)
        data = bytes(self._file.read(n_bytes))
        if len(data) != n_bytes:
            raise ConnectionError(f"{len(data):,} of {n_bytes:,} bytes arrived")
        return data

    def close(self) -> None:
        self._file.close()
        super().close()


def _passes(error: Exception) -> bool:
    """Whether a failure may pass: a broken connection, a slow answer, a server's 429 or 5xx; not a refusal."""
    if isinstance(error, OSError):  # also the errors of s3fs, by their numbers
        return not isinstance(error, (PermissionError, FileExistsError)) and error.errno not in (
            errno.EINVAL,
            errno.ENOSYS,
            errno.EMSGSIZE,
            errno.ENOSPC,
            errno.ENAMETOOLONG,
        )
    status = getattr(error, "status", 500)  # of aiohttp's answers
    library = type(error).__module__.partition(".")[0]
    return (
        library in ("aiohttp", "botocore") and status in (429, *range(500, 600)) and "Cred" not in type(error).__name__
    )


@functools.lru_cache
def _file_system(protocol: str, process: int, endpoint: str) -> Any:
    """Return the file system of a protocol, one for all folders of a process, because a client of S3 costs 0.1 s."""
    import fsspec

    try:
        system = fsspec.filesystem(protocol, skip_instance_cache=True, use_listings_cache=False)
    except ImportError:
        raise missing_extra("s3fs" if protocol == "s3" else protocol, "s3" if protocol == "s3" else "all") from None
    except ValueError:
        raise InputError(f"unknown kind of address '{protocol}://'", "use a path, or an s3:// URL") from None
    system.retries = 1  # of s3fs, which would multiply those of `ObjectStore`
    return system
