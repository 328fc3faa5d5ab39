"""A set of links in memory, at 8 bytes per link: 45 M links (as many as WebText started from) take 360 MB."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from webtext.base.parts.identifiers import link_id

_HEX_DIGITS = 16  # 64 of the 128 bits: with 45 M links, one look-up in 4e11 is wrong


class LinkTable:
    """A set of link_ids, stored by their first 64 bits."""

    def __init__(self, link_ids: Iterable[str]) -> None:
        self._keys: npt.NDArray[np.uint64] = np.unique(self.keys(link_ids))
        self._added: set[int] = set()

    @staticmethod
    def keys(link_ids: Iterable[str]) -> npt.NDArray[np.uint64]:
        """Return the table's key of each link: the first 64 bits of its link_id, as uint64."""
        return np.fromiter((_key(identifier) for identifier in link_ids), dtype=np.uint64)

    @classmethod
    def of_keys(cls, keys: npt.NDArray[np.uint64]) -> LinkTable:
        """Make a table from the keys of links."""
        table = cls(())
        table._keys = np.unique(keys)
        return table

    def __len__(self) -> int:
        return len(self._keys) + len(self._added)

    def __contains__(self, identifier: str) -> bool:
        if not len(self):
            return False
        key = _key(identifier)
        place = int(np.searchsorted(self._keys, np.uint64(key)))
        return (place < len(self._keys) and int(self._keys[place]) == key) or key in self._added

    def has_url(self, url: str) -> bool:
        """Whether the canonical URL is in the table."""
        return link_id(url) in self

    def add_url(self, url: str) -> None:
        """Add one canonical URL."""
        identifier = link_id(url)
        if identifier not in self:
            self._added.add(_key(identifier))

    def missing_from(self, other: LinkTable) -> int:
        """Return how many of these links `other` lacks. Links added by `add_url` are not considered."""
        return len(np.setdiff1d(self._keys, other._keys, assume_unique=True))


def _key(identifier: str) -> int:
    return int(identifier[:_HEX_DIGITS], 16)
