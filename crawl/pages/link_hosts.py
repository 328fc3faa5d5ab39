"""The number of links per host in a links set, and the links that exceed a cap on pages per host.

Counting uses Arrow and NumPy. Memory is one row per host; a cap takes 36 bytes more for each link of a host that
exceeds it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.parts.partset import PartSet
from webtext.crawl.pages.link_table import LinkTable

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
