"""A set of links in memory, at 8 bytes per link: 45 M links (as many as WebText started from) take 360 MB.

Also the number of links per host, and the links that exceed a cap on pages per host. Counting uses Arrow and NumPy.
Memory is one row per host; a cap takes 36 bytes more for each link of a host that exceeds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet

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


_ROWS_AT_A_TIME = 65_536
_FOLD_AT = 1 << 20  # rows of partial counts to collect before adding them up


def hosts_of(urls: pa.Array) -> pa.Array:
    """Return the host of each canonical URL, without its port, or an empty string if a URL has no host.

    >>> hosts_of(pa.array(["http://a.example:8080/b", "http://[::1]:80/", "https://c.example/?d:1"])).to_pylist()
    ['a.example', '[::1]', 'c.example']
    """
    padded = pc.binary_join_element_wise(urls, "//", "")  # so that even an empty URL has a third element
    authorities = pc.list_element(pc.split_pattern(padded, "/", max_splits=3), 2)
    return pc.replace_substring_regex(authorities, ":[0-9]+$", "")


def count_hosts(links: PartSet) -> pa.Table:
    """Return a table (host, registrable domain, n) of links per host, largest first, then by name."""
    partial: list[pa.Table] = []
    for batch in _batches(links, ["url", "domain"]):
        ones = pa.array(np.ones(batch.num_rows, np.int64))
        hosts = pa.table({"host": hosts_of(batch.column("url")), "domain": batch.column("domain"), "n": ones})
        partial.append(_added_up([hosts]))
        if sum(table.num_rows for table in partial) > _FOLD_AT:
            partial = [_added_up(partial)]
    return _added_up(partial).sort_by([("n", "descending"), ("host", "ascending")])


def over_host_cap(links: PartSet, max_pages: int | None) -> LinkTable:
    """Return each host's links beyond its best `max_pages`, by karma (highest first), then by date (earliest first).

    The table is empty if `max_pages` is None, which means no cap.
    """
    if max_pages is None:
        return LinkTable(())
    counts = count_hosts(links)
    crowded = counts.filter(pc.greater(counts["n"], max_pages))["host"].combine_chunks()
    if not len(crowded):
        return LinkTable(())
    columns: list[list[np.ndarray]] = [[], [], [], []]
    for batch in _batches(links, ["url", "karma", "first_created", "link_id"]):
        place = pc.index_in(hosts_of(batch.column("url")), value_set=crowded)
        rows = batch.append_column("host", place).filter(pc.is_valid(place))
        keys = LinkTable.keys(rows.column("link_id").to_pylist())
        found = [rows.column(name).to_numpy() for name in ("host", "karma", "first_created")]
        for column, values in zip(columns, [*found, keys], strict=True):
            column.append(values)
    host, karma, created, key = (np.concatenate(column) for column in columns)
    order = np.lexsort((key, created, ~karma, host))  # ~karma sorts descending and, unlike -karma, can't overflow
    host = host[order]
    rank = np.arange(len(host)) - np.searchsorted(host, host)
    return LinkTable.of_keys(key[order[rank >= max_pages]])


def _batches(links: PartSet, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for part in links.parts:
        yield from links.batches(part, columns, batch_size=_ROWS_AT_A_TIME)


_COUNTS = pa.schema([("host", pa.string()), ("domain", pa.string()), ("n", pa.int64())])


def _added_up(partial: list[pa.Table]) -> pa.Table:
    added = pa.concat_tables([_COUNTS.empty_table(), *partial]).group_by(["host", "domain"]).aggregate([("n", "sum")])
    return added.select(["host", "domain", "n_sum"]).rename_columns(_COUNTS.names)
