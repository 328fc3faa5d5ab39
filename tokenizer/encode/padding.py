"""Padding: a batch of texts as one rectangular array of ids, truncated and padded, with a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from webtext.base.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Side = Literal["right", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Length of a batch's rows, and the sides at which they are cut and padded; fields as in HF tokenizers."""

    max_length: int | None = None
    padding: Literal["longest", "max_length"] = "longest"
    multiple_of: int = 1
    side: Side = "right"
    truncation_side: Side = "right"

    def __post_init__(self) -> None:
        """Raise ConfigError for invalid values."""
        if self.padding not in ("longest", "max_length"):
            raise ConfigError(f"padding is {self.padding!r}", "expected 'longest' or 'max_length'")
        for name in ("side", "truncation_side"):
            if getattr(self, name) not in ("right", "left"):
                raise ConfigError(f"{name} is {getattr(self, name)!r}", "expected 'right' or 'left'")
        if self.padding == "max_length" and self.max_length is None:
            raise ConfigError("padding='max_length' without max_length", "pass max_length")
        if self.max_length is not None and not (hasattr(self.max_length, "__index__") and self.max_length >= 0):
            raise ConfigError(f"max_length is {self.max_length!r}", "expected 0 or more ids")
        if not hasattr(self.multiple_of, "__index__") or self.multiple_of < 1:
            raise ConfigError(f"pad_to_multiple_of is {self.multiple_of!r}", "expected 1 or more")


def rectangle(
    tokens: NDArray[Any], offsets: NDArray[np.int64], shape: Shape, pad_id: int, last_id: int | None
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return ids [text, position] and the uint8 mask (1 for ids of the text, 0 for padding).

    The ids of text i are `tokens[offsets[i]:offsets[i+1]]`.
    `last_id` ends every row and is never cut off; the text is cut instead.
    """
    import numpy as np

    n_last = 0 if last_id is None else 1
    lengths = np.diff(offsets)
    kept = lengths if shape.max_length is None else np.minimum(lengths, shape.max_length - n_last)
    if n_last and shape.max_length == 0:
        raise ConfigError("max_length is 0, with add_eot", "expected 1 or more")
    width = shape.max_length if shape.padding == "max_length" else int(kept.max(initial=-n_last)) + n_last
    assert width is not None
    width = -(-width // shape.multiple_of) * shape.multiple_of

    column = np.arange(width)
    begins = (width - n_last - kept if shape.side == "left" else np.zeros_like(kept))[:, None]
    ends = begins + kept[:, None]
    ids = np.full((len(lengths), width), pad_id, tokens.dtype)
    dropped = lengths - kept
    first = offsets[:-1] + (dropped if shape.truncation_side == "left" else 0)
    is_kept = np.zeros(len(tokens) + 1, np.int8)  # +1 at the start of each row's ids in `tokens`, -1 at the end
    np.add.at(is_kept, first, 1)
    np.add.at(is_kept, first + kept, -1)
    ids[(column >= begins) & (column < ends)] = tokens[np.cumsum(is_kept[:-1], dtype=np.int8).astype(np.bool_)]
    if last_id is not None:
        ids[np.arange(len(lengths)), ends[:, 0]] = last_id
    return ids, ((column >= begins) & (column < ends + n_last)).astype(np.uint8)
