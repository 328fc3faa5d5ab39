"""Samples of links by a keyed hash of link_id: equal on every machine; a smaller sample is a subset of a larger one."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from webtext.base.errors import ConfigError

SAMPLE_KEY = b"webtext sample 1"  # differs from SPLIT_KEY, so that a sample has its share of validation links
_KEYED = hashlib.blake2b(key=SAMPLE_KEY, digest_size=8)
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?) ?%")


@dataclass(frozen=True, slots=True)
class Sample:
    """A share of the links in percent, more than 0 and at most 100.

    >>> 0.1 < 1 and all(Sample(1.0).holds(each) for each in map(str, range(10_000)) if Sample(0.1).holds(each))
    True
    """

    percent: float

    @classmethod
    def parse(cls, text: str, name: str) -> Sample:
        """Parse a text such as '0.1%'; raises ConfigError with the setting's name if it is not a percentage."""
        match = _PERCENT.fullmatch(text.strip())
        if match is None:
            hint = " (a percent sign is missing)" if re.fullmatch(r"[0-9.]+", text.strip()) else ""
            raise ConfigError(f"{name} = {text!r}: not a percentage{hint}", "write it as 0.1% or 5%")
        percent = float(match[1])
        if not 0 < percent <= 100:
            raise ConfigError(f"{name} = {text!r}: expected more than 0% and at most 100%")
        return cls(percent)

    def holds(self, link_id: str) -> bool:
        return _place(link_id) < self.percent / 100 * 2**64

    def __str__(self) -> str:
        return f"{self.percent:.9f}".rstrip("0").rstrip(".") + "%"


def smallest_with_a_link(link_ids: Iterable[str]) -> Sample:
    """Return the smallest sample that contains one of these links, rounded up to three digits."""
    needed = (min(map(_place, link_ids), default=2**64) + 1) / 2**64 * 100
    step = 10.0 ** (math.floor(math.log10(needed)) - 2)
    return Sample(min(100.0, math.ceil(needed / step) * step))


def _place(link_id: str) -> int:
    keyed = _KEYED.copy()
    keyed.update(link_id.encode())
    return int.from_bytes(keyed.digest(), "big")
