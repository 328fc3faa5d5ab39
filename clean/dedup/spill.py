"""Arrays larger than memory: records in files by key range, and columns in memory-mapped files.

This is an external sort in two steps: `Spill.add` appends each record to the file of its key range; then every file is
small enough to be sorted in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from webtext.base.errors import RunFailed
from webtext.base.storage import no_space_is_an_error

RECORDS_PER_FILE = 1 << 18
"""Expected records per file, which are sorted in memory."""

Array = npt.NDArray[Any]


class Spill:
    """Records of one dtype in files by key range. Keys are hashes or numbers that are spread evenly over the ranges."""

    def __init__(self, folder: Path, n_expected: int, dtype: npt.DTypeLike) -> None:
        self._folder = folder
        self._dtype = np.dtype(dtype)
        self._written: dict[int, Any] = {}  # the running SHA-256 of each file
        self.n_files = max(1, -(-n_expected // RECORDS_PER_FILE))
        folder.mkdir(parents=True)

    def add(self, ranges: Array, records: Array) -> None:
        """Append each record to the file of its range, a number below `n_files`."""
        narrow = np.uint16 if self.n_files <= 1 << 16 else np.uint32  # numpy sorts uint16 by radix
        for number, places in grouped(ranges.astype(narrow)):
            with open(self._folder / str(number), "ab") as file:
                file.write(data := records[places].tobytes())
            self._written.setdefault(number, hashlib.sha256()).update(data)

    def files(self) -> Iterator[Array]:
        """Yield the records of each range, mapped, in the order of ranges; raises RunFailed if a file was changed.

        Each file is unlinked before its records are yielded, so its space is free when they are released.
        """
        for number, digest in sorted(self._written.items()):
            path = self._folder / str(number)
            with changed_is_an_error(path):
                records = np.memmap(path, self._dtype, "r")
                if hashlib.sha256(records.data).digest() != digest.digest():
                    raise ValueError
                path.unlink()
            yield records
        self._folder.rmdir()


@contextlib.contextmanager
def changed_is_an_error(path: Path) -> Iterator[None]:
    """Turn ValueError (other bytes than were written) and a missing file into an error that names the scratch file."""
    try:
        yield
    except (ValueError, FileNotFoundError):
        raise RunFailed(
            f"the scratch file '{path}' was changed or removed while it was in use",
            "keep other programs out of its folder, and rerun the same command to make it again",
        ) from None


def range_of_hash(keys: npt.NDArray[np.uint64], n_ranges: int) -> npt.NDArray[np.uint64]:
    """Return the range of each 64-bit hash, when all hashes are divided into `n_ranges` (< 2^32) equal ranges."""
    return (keys >> np.uint64(32)) * np.uint64(n_ranges) >> np.uint64(32)


def mapped(path: Path, dtype: npt.DTypeLike, size: int) -> Array:
    """Create a file, replacing an old one, and map it as a writable array of zeros. The kernel may evict its pages."""
    if not size:
        return np.empty(0, dtype)
    with open(path, "wb") as file:
        n_bytes = size * np.dtype(dtype).itemsize
        if hasattr(os, "posix_fallocate"):  # detect a full disk here: a write to mapped memory would kill the process
            with no_space_is_an_error(str(path), n_bytes):
                os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            file.truncate(n_bytes)
    return np.memmap(path, dtype, "r+", shape=(size,))


def release(*arrays: Array) -> None:
    """Release the memory of mapped arrays; their values stay in the files and are read again when accessed."""
    for array in arrays:
        if isinstance(array.base, mmap.mmap):
            array.base.madvise(mmap.MADV_DONTNEED)


def blocks(start: int, stop: int, size: int = 1 << 16) -> Iterator[slice]:
    """Yield slices of at most `size` that cover start..stop."""
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


def grouped(keys: Array) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each distinct key, ascending, and the positions where it occurs.

    >>> [(key, places.tolist()) for key, places in grouped(np.array([7, 5, 7]))]
    [(5, [1]), (7, [0, 2])]
    """
    order = np.argsort(keys, kind="stable")
    starts, sizes = runs(keys[order])
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        places = order[start : start + size]
        yield int(keys[places[0]]), places


def runs(keys: Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each run of equal keys starts, and its length."""
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.zeros(0, np.int64)
    return starts, np.diff(np.append(starts, len(keys)))
