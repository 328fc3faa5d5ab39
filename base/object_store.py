"""An object store at an fsspec URL (`s3://...`), for `Folder`.

The libraries below retry after passing failures: botocore each request, s3fs also truncated bodies.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Callable
from typing import Any, TypeVar

from webtext.base.errors import InputError, NetworkError, missing_extra, one_line

READ_BYTES = 8 << 20  # of one request for a file in a store that is read from start to end

T = TypeVar("T")


def entity_tag(row: dict[str, Any]) -> str:
    """Return the entity tag of an object; where a store has none, its time."""
    return str(next((row[key] for key in ("ETag", "etag", "mtime", "created") if row.get(key)), ""))


class ObjectStore:
    """A remote file system, whose failures are NetworkErrors with the address."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._system = _file_system(url.split("://", 1)[0], os.getpid(), os.environ.get("AWS_ENDPOINT_URL", ""))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._system, name)
        return lambda *arguments, **options: self._ask(lambda: method(*arguments, **options))

    def put_file(self, path: str, location: str) -> None:
        self._into_bucket(lambda: self._system.put_file(path, location))

    def put(self, data: bytes, location: str) -> None:
        self._into_bucket(lambda: self._system.pipe_file(location, data))

    def _into_bucket(self, put: Callable[[], T]) -> T:
        try:
            return self._ask(put)
        except FileNotFoundError:
            raise InputError(f"no bucket for '{self._url}'", "create it, or choose another --out") from None

    def read(self, location: str, **options: int) -> bytes:
        """Return the bytes of an object, or those from `start` to `end`. Raises InputError if it does not exist."""
        if hasattr(self._system, "call_s3") and not options:
            options = {"max_concurrency": 1}  # without asking for the size first
        try:
            return bytes(self._ask(lambda: self._system.cat_file(location, **options)))
        except FileNotFoundError:
            raise InputError(f"no file '{location}'", "check the path") from None

    def reader(self, location: str) -> Any:
        """Open an object for reading; if its server doesn't serve ranges, as a stream."""
        file = self._ask(lambda: self._system.open(location, "rb", cache_type="none"))
        size = getattr(file, "size", None)
        return io.BufferedReader(_Ranges(self, location, size), READ_BYTES) if size else file

    def delete(self, location: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.rm_file(location)

    def _ask(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except FileNotFoundError:
            raise
        except Exception as error:
            raise NetworkError(
                f"'{self._url}' doesn't respond: {type(error).__name__}: {one_line(error)}",
                "check the address, the credentials and the network, then rerun the same command",
            ) from None


class _Ranges(io.RawIOBase):
    """A remote file, read in ranges."""

    def __init__(self, store: ObjectStore, location: str, size: int) -> None:
        self._store, self._location, self._size, self._at = store, location, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._size)
        if stop <= self._at:
            return 0
        data = self._store.cat_file(self._location, start=self._at, end=stop)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


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
    system.retries = 2  # of s3fs, twice within each other, and around botocore's
    return system
