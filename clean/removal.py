"""Documents whose voters took their votes back: what a removal list says, applied before any rule.

`webtext crawl refresh` writes removal lists: part sets of kind `removals`, one row for each link that lost posts
(`base/schemas.py`). A document goes when all links that led to it are removed: no post of theirs is left. A document that
was imported has no links, so its URL is looked up as one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.partset import PartSet
from webtext.base.schemas import link_id
from webtext.base.urls import canonical_url
from webtext.clean.inputs import SetName
from webtext.clean.removal_settings import RemovalSettings

STAGE = "remove"
REMOVED_BY_USER = "removed_by_user"
COLUMNS = ("link_ids", "url")


@dataclass(frozen=True, slots=True)
class Removals:
    """Removal lists, as tasks name them."""

    sets: tuple[SetName, ...]

    @classmethod
    def of(cls, settings: RemovalSettings) -> Removals | None:
        """The lists of the settings, in an order that is theirs; None when there are none."""
        sets = {SetName.of(PartSet.open(location, "removals")) for location in settings.remove}
        return cls(tuple(sorted(sets, key=lambda each: each.hash))) if sets else None

    def about(self) -> list[str]:
        """What a recipe says of the lists: their hashes."""
        return [each.hash for each in self.sets]

    def removed(self, documents: pa.Table | pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Mask of the documents that go; COLUMNS are looked at."""
        links, urls = documents["link_ids"], documents["url"]
        lengths = pc.list_value_length(links).to_numpy(zero_copy_only=False)
        gone = pc.is_in(pc.list_flatten(links), value_set=_removed_links(self.sets)).to_numpy(zero_copy_only=False)
        n_gone = np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights=gone, minlength=len(lengths))
        mask = (lengths > 0) & (n_gone == lengths)
        for row in np.flatnonzero(lengths == 0):
            mask[row] = self._is_removed(urls[int(row)].as_py())
        return np.asarray(mask, bool)

    def _is_removed(self, url: str | None) -> bool:
        canonical = canonical_url(url) if url else None
        return canonical is not None and link_id(canonical) in _removed_ids(self.sets)


@functools.lru_cache(maxsize=2)
def _removed_links(sets: tuple[SetName, ...]) -> pa.Array:
    """The ids of the links that no post is left of; 36 bytes of memory each."""
    found = [table.filter(pc.equal(table["posts_left"], 0))["link_id"] for table in _tables(sets)]
    return pa.chunked_array(found, pa.string()).combine_chunks()


@functools.lru_cache(maxsize=2)
def _removed_ids(sets: tuple[SetName, ...]) -> frozenset[str]:
    """The same as a set, for documents without links."""
    return frozenset(_removed_links(sets).to_pylist())


def _tables(sets: Sequence[SetName]) -> list[pa.Table]:
    opened = [name.open() for name in sets]
    return [each.table(part, ["link_id", "posts_left"]) for each in opened for part in each.parts]
