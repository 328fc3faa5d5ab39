"""Checks for texts stored in one buffer, and for the caller's array that receives their ids.

They guarantee that nothing is read outside the buffer and nothing is written outside the array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webtext.base.errors import ConfigError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
    if array.dtype.kind == "u":
        array = np.minimum(array.astype(np.uint64), np.iinfo(np.int64).max)
    bounds = np.ascontiguousarray(array, np.int64)
    falls = np.flatnonzero(bounds[1:] < bounds[:-1])
    if len(falls):
        place = int(falls[0]) + 1
        raise InputError(f"offset {place} is {bounds[place]}, the one before {bounds[place - 1]}", expected)
    for place in (0, len(bounds) - 1):
        if not 0 <= bounds[place] <= n_bytes:
            place = int(np.argmax((bounds < 0) | (bounds > n_bytes)))
            raise InputError(f"offset {place} is {bounds[place]}", expected)
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
