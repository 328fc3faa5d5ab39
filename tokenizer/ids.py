"""Checks for ids to decode: integers in a list, another iterable, or an array of any library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from webtext.base.errors import InputError
from webtext.tokenizer.arguments import shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = Iterable[int] | NDArray[np.integer[Any]]

_DECODED = "HIlq"  # numpy's letters for uint16, uint32 and int64, which the decoder reads as they are
_EXPECTED = "give a list or a one-dimensional array of integers"


def decodable(ids: Any) -> Sequence[int] | NDArray[Any]:
    """Convert ids to what the decoder accepts: an array of uint16, uint32 or int64, or else a list or a tuple.

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
    if array.dtype.kind == "u":
        array = np.minimum(array.astype(np.uint64), np.iinfo(np.int64).max)
    return np.ascontiguousarray(array, np.int64)
