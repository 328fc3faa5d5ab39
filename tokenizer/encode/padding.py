"""Padding: a batch of texts as one rectangular array of ids, truncated and padded, with a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from webtext.base.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Side = Literal["right", "left"]


def rectangle(
    tokens: NDArray[Any],
    offsets: NDArray[np.int64],
    pad_id: int,
    last_id: int | None,
    *,
    max_length: int | None,
    padding: Literal["longest", "max_length"],
    multiple_of: int,
    side: Side,
    truncation_side: Side,
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return ids [text, position] and the uint8 mask (1 for ids of the text, 0 for padding), as HF tokenizers pads.

    The ids of text i are `tokens[offsets[i]:offsets[i+1]]`. `last_id` ends every row and is never cut off; the text is
    cut instead. Raises ConfigError for invalid options.
    """
    if padding not in ("longest", "max_length"):
        raise ConfigError(f"padding is {padding!r}", "expected 'longest' or 'max_length'")
    for name, value in (("side", side), ("truncation_side", truncation_side)):
        if value not in ("right", "left"):
            raise ConfigError(f"{name} is {value!r}", "expected 'right' or 'left'")
    if padding == "max_length" and max_length is None:
        raise ConfigError("padding='max_length' without max_length", "pass max_length")
    if max_length is not None and not (hasattr(max_length, "__index__") and max_length >= 0):
        raise ConfigError(f"max_length is {max_length!r}", "expected 0 or more ids")
    if not hasattr(multiple_of, "__index__") or multiple_of < 1:
        raise ConfigError(f"pad_to_multiple_of is {multiple_of!r}", "expected 1 or more")
    if last_id is not None and max_length == 0:
        raise ConfigError("max_length is 0, with add_eot", "expected 1 or more")
    import numpy as np

    n_last = 0 if last_id is None else 1
    lengths = np.diff(offsets)
    kept = lengths if max_length is None else np.minimum(lengths, max_length - n_last)
    width = max_length if padding == "max_length" else int(kept.max(initial=-n_last)) + n_last
    assert width is not None
    width = -(-width // multiple_of) * multiple_of

    column = np.arange(width)
    begins = (width - n_last - kept if side == "left" else np.zeros_like(kept))[:, None]
    ends = begins + kept[:, None]
    ids = np.full((len(lengths), width), pad_id, tokens.dtype)
    dropped = lengths - kept
    first = offsets[:-1] + (dropped if truncation_side == "left" else 0)
    is_kept = np.zeros(len(tokens) + 1, np.int8)  # +1 at the start of each row's ids in `tokens`, -1 at the end
    np.add.at(is_kept, first, 1)
    np.add.at(is_kept, first + kept, -1)
    ids[(column >= begins) & (column < ends)] = tokens[np.cumsum(is_kept[:-1], dtype=np.int8).astype(np.bool_)]
    if last_id is not None:
        ids[np.arange(len(lengths)), ends[:, 0]] = last_id
    return ids, ((column >= begins) & (column < ends + n_last)).astype(np.uint8)
