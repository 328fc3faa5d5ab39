"""A batch of texts as one rectangle of ids: cut to a length, filled up with a padding id, and told apart by a mask."""

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
    """How long the rows of a batch are and at which end they are cut and filled; the words are HF tokenizers'."""

    max_length: int | None = None
    padding: Literal["longest", "max_length"] = "longest"
    multiple_of: int = 1
    side: Side = "right"
    truncation_side: Side = "right"

    def __post_init__(self) -> None:
        """Refuse what is no shape."""
        if self.padding not in ("longest", "max_length"):
            raise ConfigError(f"padding is {self.padding!r}", "expected 'longest' or 'max_length'")
        for name in ("side", "truncation_side"):
            if getattr(self, name) not in ("right", "left"):
                raise ConfigError(f"{name} is {getattr(self, name)!r}", "expected 'right' or 'left'")
        if self.padding == "max_length" and self.max_length is None:
            raise ConfigError("padding='max_length' without max_length", "give max_length")
        if self.max_length is not None and not (hasattr(self.max_length, "__index__") and self.max_length >= 0):
            raise ConfigError(f"max_length is {self.max_length!r}", "expected 0 or more ids")
        if not hasattr(self.multiple_of, "__index__") or self.multiple_of < 1:
            raise ConfigError(f"pad_to_multiple_of is {self.multiple_of!r}", "expected 1 or more")


def rectangle(
    tokens: NDArray[Any], offsets: NDArray[np.int64], shape: Shape, pad_id: int, last_id: int | None
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Rows of ids and the mask (1 for an id of the text, 0 for padding) of the texts `tokens[offsets[i]:offsets[i+1]]`.

    `last_id` ends every row and is never cut off: the text gives way.
    """
    import numpy as np

    n_last = 0 if last_id is None else 1
    lengths = np.diff(offsets)
    kept = lengths if shape.max_length is None else np.minimum(lengths, shape.max_length - n_last)
    if n_last and shape.max_length == 0:
        raise ConfigError("max_length is 0, with add_eot", "give room for one id")
    width = shape.max_length if shape.padding == "max_length" else int(kept.max(initial=-n_last)) + n_last
    assert width is not None
    width = -(-width // shape.multiple_of) * shape.multiple_of

    column = np.arange(width)
    begins = (width - n_last - kept if shape.side == "left" else np.zeros_like(kept))[:, None]
    ends = begins + kept[:, None]
    ids = np.full((len(lengths), width), pad_id, tokens.dtype)
    dropped = lengths - kept
    first = offsets[:-1] + (dropped if shape.truncation_side == "left" else 0)
    is_kept = np.zeros(len(tokens) + 1, np.int8)  # +1 where a row's ids begin in `tokens`, -1 after them
    np.add.at(is_kept, first, 1)
    np.add.at(is_kept, first + kept, -1)
    ids[(column >= begins) & (column < ends)] = tokens[np.cumsum(is_kept[:-1], dtype=np.int8).astype(np.bool_)]
    if last_id is not None:
        ids[np.arange(len(lengths)), ends[:, 0]] = last_id
    return ids, ((column >= begins) & (column < ends + n_last)).astype(np.uint8)
