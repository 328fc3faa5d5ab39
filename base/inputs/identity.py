"""The id and the split of an imported record: stated by the record, or made from its place in its file."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from webtext.base.inputs.files import Refused
from webtext.base.parts.identifiers import ID_HEX_DIGITS, VALIDATION_RATIO, split_of

TRAIN, HELD_OUT = "train", "validation"
_SURROGATES = re.compile("[\ud800-\udfff]")


def record_id(given: Any, place: str, row: int) -> str:
    """Return the `given` id if it is a string or a whole number, else a hash of the file's SHA-256 and the row number.

    So grouping files differently doesn't change an id.
    """
    named = unicode_string(given) if isinstance(given, str) else whole_number(given)
    return str(hashlib.sha256(f"{place}\n{row}".encode()).hexdigest()[:ID_HEX_DIGITS] if named in (None, "") else named)


def record_split(stated: Any, identifier: str, validation_ratio: float = VALIDATION_RATIO) -> str | Refused:
    """Return the split that a record states; if it states none, the split of its id."""
    if stated is not None and not isinstance(stated, str):
        return Refused("split_not_text", f"split is {stated!r}"[:200])
    return named_split(stated) if stated and stated.strip() else split_of(identifier, validation_ratio)


def named_split(split: str) -> str:
    """Return our name for a dataset's split: every split other than `train` is held out.

    >>> named_split(" Train "), named_split("test"), named_split("dev")
    ('train', 'validation', 'validation')
    """
    return TRAIN if split.strip().lower() == TRAIN else HELD_OUT


def unicode_string(value: Any) -> str | None:
    """Return the value if it is a string without lone surrogates, which JSON can contain but a column cannot."""
    return value if isinstance(value, str) and not has_surrogates(value) else None


def has_surrogates(text: str) -> bool:
    """Return whether the text contains surrogates, which UTF-8 cannot encode."""
    return _SURROGATES.search(text) is not None


def unix_seconds(number: int) -> int:
    """Return a UTC time in seconds; one after the year 5138 was given in milli-, micro- or nanoseconds.

    >>> unix_seconds(1_496_318_400), unix_seconds(1_496_318_400_123), unix_seconds(1_496_318_400_123_456_789)
    (1496318400, 1496318400, 1496318400)
    """
    while abs(number) >= 10**11:
        number //= 1000
    return number


def whole_number(value: Any) -> int | None:
    """Return the value as an integer if it is a whole number of 64 bits, else None; data frames make integers floats.

    >>> whole_number(5.0), whole_number(1.5), whole_number(1e300), whole_number(True)
    (5, None, None, None)
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else None
