"""What Reddit's dumps of submissions and comments share: one JSON object per line. Over the years these fields changed:

    created_utc     a string in many months; a float in some exports
    score           null in some
    retrieved_on    absent in many months; `retrieved_utc` from 2020-05 to 2022-06; since 2023-11 the score was read a
                    second time, at `_meta.retrieved_2nd_on`

Reddit's JSON escapes `&`, `<` and `>` as HTML, in URLs and in bodies; it is unescaped exactly once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar, Generic, TypeVar

import msgspec

from webtext.crawl.streams.lines import Unreadable, read_lines

SITE = "https://www.reddit.com"

NO_POST_ID = Unreadable("no_post_id", "neither id nor name")

Number = int | float | str | None


class Meta(msgspec.Struct):
    """Fields that the publishers of later dumps added."""

    retrieved_2nd_on: Number = None


class Row(msgspec.Struct):
    """The fields needed for every kind of post, out of 36 to 152."""

    id: str | None = None
    name: str | None = None
    subreddit: str | None = None
    score: Number = None
    created_utc: Number = None
    retrieved_on: Number = None
    retrieved_utc: Number = None
    over_18: bool | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")

    kind: ClassVar[str] = "t3_"
    """The prefix of the full names of such posts."""

    @property
    def post_id(self) -> str:
        """The id without the prefix of its kind; empty if the row has none."""
        return self.id or (self.name or "").removeprefix(self.kind)

    def retrieved(self) -> int | None:
        """Return when the score was read, in UTC seconds; None if unknown."""
        later = self.meta.retrieved_2nd_on if self.meta else None
        return whole_number(later or self.retrieved_on or self.retrieved_utc, "retrieved_on")


AnyRow = TypeVar("AnyRow", bound=msgspec.Struct)


class RowReader(Generic[AnyRow]):
    """Decodes lines into rows of one type."""

    def __init__(self, row_type: type[AnyRow]) -> None:
        self._type = row_type
        self._decode = msgspec.json.Decoder(row_type).decode
        self._fields = tuple(field.encode_name for field in msgspec.structs.fields(row_type))

    def row(self, line: bytes) -> AnyRow | Unreadable:
        """Return the row in a line, or Unreadable."""
        try:
            return self._row(line)
        except msgspec.ValidationError as error:
            return Unreadable("wrong_type", str(error))
        except (ValueError, RecursionError) as error:
            return Unreadable("invalid_json", f"{type(error).__name__}: {error}"[:200])

    def _row(self, line: bytes) -> AnyRow:
        try:
            return self._decode(line)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # A lone surrogate in any field (half an emoji in a title) is valid JSON that the fast decoder rejects.
            value = json.loads(line)
            if isinstance(value, dict):
                value = {key: _encodable(value[key]) for key in self._fields if key in value}
            return msgspec.convert(value, self._type)


class LineSource:
    """Base of the link sources whose records are lines."""

    def records(self, file: BinaryIO) -> Iterator[tuple[int, bytes | Unreadable]]:
        """Yield lines with their positions."""
        return read_lines(file)


def on_site(url: str) -> str:
    """Return the URL; a path is made absolute, since it names a page of Reddit."""
    return SITE + url if url.startswith("/") and not url.startswith("//") else url


def _encodable(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def unescaped(text: str) -> str:
    """Return the text with Reddit's HTML escapes undone once.

    Reddit escapes only `&`, `<` and `>`; `html.unescape` would also turn the parameter `&copy=1` into `©=1`.

    >>> unescaped("http://a.com/?x&amp;y&amp;amp;&copy=1")
    'http://a.com/?x&y&amp;&copy=1'
    """
    return _ESCAPED.sub(lambda match: _UNESCAPED[match[1]], text) if "&" in text else text


_ESCAPED = re.compile("&(amp|lt|gt);")
_UNESCAPED = {"amp": "&", "lt": "<", "gt": ">"}


def whole_number(value: Number, field: str) -> int | None:
    """Return the value as a whole number of 64 bits; floats are rounded down.

    Raises msgspec.ValidationError, which names the field, for anything else.
    """
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise msgspec.ValidationError(f"{field} is {value[:40]!r}, not a number")
        value = float(value) if "." in value else int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise msgspec.ValidationError(f"{field} is {value}, not a number")
        value = math.floor(value)
    if value is not None and not -(2**63) <= value < 2**63:
        raise msgspec.ValidationError(f"{field} does not fit in 64 bits")
    return value


_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]*)?")
