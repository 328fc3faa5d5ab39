"""Checks for arguments other than texts: numbers, paths, ids, and the buffers that the C++ cores read and write.

Errors name the argument and its value. The checks of buffers guarantee that nothing is read outside the data and
nothing is written outside the caller's array.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from webtext.base.errors import ConfigError, InputError
from webtext.base.errors import checked_int as checked_int  # also names of this module
from webtext.base.errors import shown as shown
from webtext.base.storage import Folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = Iterable[int] | NDArray[np.integer[Any]]

MAX_INT = 2**63 - 1
"""The largest integer that the C++ cores take."""

_DECODED = "HIlq"  # numpy's letters for uint16, uint32 and int64, which the decoder reads as they are
_EXPECTED = "give a list or a one-dimensional array of integers"


def split_path(path: Any) -> tuple[Folder, str]:
    """Split a path or URL into its folder and its last component. Raises ConfigError if it isn't a path."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise ConfigError(f"the path is {shown(path)}", "expected a str or a pathlib.Path: a file, folder or URL")
    return Folder.split(os.fspath(path))


def thread_count(threads: int | None) -> int:
    """Return `threads`, or the number of cores that this process may use if it is None. ConfigError below 1."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return checked_int("threads", threads, 1, 2**16, "1 to 65,536, or None for one per core")


def decodable(ids: Any) -> Sequence[int] | NDArray[Any]:
    """Convert ids to a type that the decoder accepts: an array of uint16, uint32 or int64, or else a list or a tuple.

    Raises InputError for values that can't be a sequence of ids. The decoder checks the items of a list.
    """
    if type(ids) is list:
        return ids
    if hasattr(ids, "__array__"):
        return _array(ids)
    if isinstance(ids, str | bytes | bytearray | memoryview) or not isinstance(ids, Iterable):
        raise InputError(f"ids are {shown(ids)}", _EXPECTED)
    return tuple(ids)


def no_id(ids: Iterable[Any]) -> InputError:
    """Return the error that names the first item that isn't an integer."""
    for index, id_ in enumerate(ids):
        if isinstance(id_, bool) or not hasattr(id_, "__index__"):
            return InputError(f"id {index} is {shown(id_)}", "expected an integer")
    return InputError(f"ids are {type(ids).__name__}", _EXPECTED)


def as_bytes(data: Any) -> NDArray[np.uint8]:
    """Return a contiguous buffer (bytes, bytearray, memoryview, mmap, array of one-byte items) as uint8, not copied."""
    import numpy as np

    if isinstance(data, str):
        raise InputError("data is a str", "pass its UTF-8, or use encode_flat")
    try:
        view = memoryview(data)
        if view.itemsize != 1 or view.ndim != 1 or not view.contiguous:
            kind = f"items of {view.itemsize} bytes in {view.ndim} dimensions"
            raise InputError(f"data has {kind}{'' if view.contiguous else ' with gaps'}", "expected a row of bytes")
        return np.frombuffer(view, np.uint8) if len(view) else np.empty(0, np.uint8)
    except (TypeError, ValueError) as error:
        raise InputError(f"data is {type(data).__name__}: {str(error):.80}", "expected a buffer of bytes") from None


def as_offsets(offsets: Any, n_bytes: int) -> NDArray[np.int64]:
    """Return offsets as int64. Raises InputError unless they are integers that never fall, within the buffer."""
    import numpy as np

    expected = f"expected integers that rise from 0 to at most {n_bytes:,}"
    try:
        array = np.asarray(offsets)
    except (TypeError, ValueError) as error:
        raise InputError(f"offsets are not an array: {str(error):.80}", expected) from None
    if array.ndim != 1 or not len(array):
        raise InputError(f"offsets have the shape {array.shape}", "expected one more offset than texts: at least [0]")
    if array.dtype.kind not in "iu":
        raise InputError(f"offsets are {array.dtype}", expected)
    bounds = _as_int64(array)
    falls = np.flatnonzero(bounds[1:] < bounds[:-1])
    if len(falls):
        place = int(falls[0]) + 1
        raise InputError(f"offset {place} is {bounds[place]}, the one before {bounds[place - 1]}", expected)
    outside = np.flatnonzero((bounds < 0) | (bounds > n_bytes))
    if len(outside):
        raise InputError(f"offset {outside[0]} is {bounds[outside[0]]}", expected)
    return bounds


def check_out(out: Any, is_wide: bool, *inputs: NDArray[Any]) -> None:
    """Raise ConfigError if ids can't be written to `out`, or if it shares memory with the inputs."""
    import numpy as np

    wanted = "uint32" if is_wide else "uint16 or uint32"
    expected = f"expected a contiguous, writable one-dimensional array of {wanted}"
    if not isinstance(out, np.ndarray):
        raise ConfigError(f"out is {type(out).__name__}", expected)
    if out.dtype not in ((np.uint32,) if is_wide else (np.uint16, np.uint32)) or not out.dtype.isnative:
        raise ConfigError(f"out is {out.dtype}", expected)
    if out.ndim != 1 or not out.flags.c_contiguous or not out.flags.aligned or not out.flags.writeable:
        kind = "read-only" if not out.flags.writeable else f"of shape {out.shape} and strides {out.strides}"
        raise ConfigError(f"out is {kind}", expected)
    if any(np.shares_memory(out, array) for array in inputs):
        raise ConfigError("out shares memory with data or offsets", "pass a separate array")


def _array(ids: Any) -> NDArray[Any]:
    """Convert an array, or an object that numpy can convert (such as a torch tensor on the CPU)."""
    import numpy as np

    try:
        array = np.asarray(ids)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"ids are {type(ids).__name__}, not an array: {str(error):.80}", _EXPECTED) from None
    if array.dtype.char in _DECODED and array.ndim == 1 and array.flags.c_contiguous and array.dtype.isnative:
        return array
    if array.ndim != 1:
        raise InputError(f"ids have the shape {array.shape}", "decode one row (one dimension) at a time")
    if array.dtype.kind not in "iu" and len(array):
        raise InputError(f"ids are {array.dtype}", _EXPECTED)
    return _as_int64(array)


def _as_int64(array: NDArray[Any]) -> NDArray[np.int64]:
    """Convert integers; larger ones than 63 bits become the largest, which is an error for every use."""
    import numpy as np

    if array.dtype.kind == "u":
        array = np.minimum(array.astype(np.uint64), np.iinfo(np.int64).max)
    return np.ascontiguousarray(array, np.int64)
