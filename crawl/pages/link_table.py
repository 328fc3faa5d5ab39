"""A set of links at 8 bytes per link, in a temporary file that is mapped into memory: 360 MB on disk for 45 M links.

Also the number of links per host, and the links over a cap on pages per host. All of it uses Arrow and NumPy on batches
of links. Counting takes memory for one row per host; a cap takes 36 bytes more for each link of a host that exceeds it.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.digest import Keys, link_keys
from webtext.base.parts.identifiers import link_id, link_key
from webtext.base.parts.partset import PartSet
from webtext.base.run import Parts
from webtext.base.sample import Sample, smallest_with_a_link
from webtext.base.web.urls import MAX_URL_BYTES, is_fetchable

_ADDED_AT_A_TIME = 1 << 16  # links in a Python set, at 70 bytes each, before they are sorted into the array


class LinkTable:
    """A set of link_ids, stored by their keys (`link_keys`)."""

    def __init__(self, keys: Iterable[Keys] = ()) -> None:
        self._keys: Keys = np.empty(0, np.uint64)
        self._added: set[int] = set()
        with tempfile.TemporaryFile() as file:  # the mapping outlives it; its pages are not the process's own memory
            for some in keys:
                file.write(some.tobytes())
            file.flush()
            if file.tell():
                self._keys = np.asarray(np.memmap(file, np.uint64, "r+"))
        self._keys.sort()

    def __len__(self) -> int:
        return len(self._keys) + len(self._added)

    def has(self, link_ids: pa.Array) -> npt.NDArray[np.bool_]:
        """Return for each link_id whether it is in the table. Links added by `add_url` are not considered."""
        return is_in(link_keys(link_ids), self._keys)

    def has_url(self, url: str) -> bool:
        key = link_key(link_id(url))
        place = int(np.searchsorted(self._keys, np.uint64(key)))
        return (place < len(self._keys) and int(self._keys[place]) == key) or key in self._added

    def add_url(self, url: str) -> None:
        if self.has_url(url):
            return
        self._added.add(link_key(link_id(url)))
        if len(self._added) >= _ADDED_AT_A_TIME:
            added = np.sort(np.fromiter(self._added, np.uint64))
            self._keys = np.insert(self._keys, np.searchsorted(self._keys, added), added)
            self._added.clear()

    def missing_from(self, other: LinkTable) -> int:
        """Return how many of these links `other` lacks. Links added by `add_url` are not considered."""
        blocks = range(0, len(self._keys), _FOLD_AT)
        return sum(int((~is_in(self._keys[first : first + _FOLD_AT], other._keys)).sum()) for first in blocks)


def is_in(keys: Keys, ascending: Keys) -> npt.NDArray[np.bool_]:
    """Return for each key whether it is among the sorted ones."""
    if not len(ascending):
        return np.zeros(len(keys), np.bool_)
    found: npt.NDArray[np.bool_] = ascending[np.minimum(ascending.searchsorted(keys), len(ascending) - 1)] == keys
    return found


def string_keys(strings: pa.Array) -> Keys:
    """Return a 64-bit key of each string, the same on every machine: its bytes times random numbers, modulo 2^64.

    Two of 10 million hosts have the same key with probability 4e-4 at most (multilinear hashing, Carter and Wegman
    1979); a queue then takes both.
    """
    if not len(strings):
        return np.empty(0, np.uint64)
    _, offsets, text = strings.buffers()
    at = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    data = np.frombuffer(text or b"", np.uint8)[at[0] : at[-1]]
    at = at - at[0]
    place = np.arange(len(data), dtype=np.int32) - np.repeat(at[:-1], np.diff(at))
    terms = _FACTORS.take(place, mode="wrap") * (data + np.uint64(1))
    keys: Keys = np.diff(np.append(np.uint64(0), np.cumsum(terms))[at])
    return keys


_PLAIN_URL = r"^https?://([a-z0-9]+\.)+[a-z]+(/([A-Za-z0-9_~-][A-Za-z0-9._~-]*)?)+(\?[A-Za-z0-9._~=&%+-]+)?\z"
"""An RE2 pattern of URLs that are canonical. Most URLs match; the others are checked one by one."""

_FACTORS = np.frombuffer(hashlib.shake_128(b"webtext").digest(8 * 256), "<u8")  # longer than any host name

_ROWS_AT_A_TIME = 2048  # as much as fits into the processor's cache: 16,384 take half as long again
_FOLD_AT = 1 << 20  # rows of partial counts to collect before adding them up


def hosts_of(urls: pa.Array) -> pa.Array:
    """Return the host of each canonical URL, without its port, or an empty string if a URL has no host.

    >>> hosts_of(pa.array(["http://a.example:8080/b", "http://[::1]:80/", "https://c.example/?d:1"])).to_pylist()
    ['a.example', '[::1]', 'c.example']
    """
    padded = pc.binary_join_element_wise(urls, "//", "")  # so that even an empty URL has a third element
    authorities = pc.list_element(pc.split_pattern(padded, "/", max_splits=3), 2)
    has_ports = pc.any(pc.match_substring(authorities, ":")).as_py()
    return pc.replace_substring_regex(authorities, ":[0-9]+$", "") if has_ports else authorities


def part_of(hosts: pa.Array, n_parts: int) -> Keys:
    """Return the part of each host, from 0, the same on every machine. The key's high bits depend on all bytes."""
    found: Keys = (string_keys(hosts) >> np.uint64(32)) % np.uint64(n_parts)
    return found


def are_fetchable(urls: pa.Array) -> npt.NDArray[np.bool_]:
    """Return `is_fetchable` of each URL.

    >>> are_fetchable(pa.array(["http://a.example/b?c", "http://a.example/\\u00e9", ""])).tolist()
    [True, False, False]
    """
    is_short = pc.less_equal(pc.binary_length(urls), MAX_URL_BYTES)
    is_plain = pc.and_(is_short, pc.match_substring_regex(urls, _PLAIN_URL))
    found: npt.NDArray[np.bool_] = is_plain.to_numpy(zero_copy_only=False).copy()
    found[~found] = [is_fetchable(url) for url in urls.filter(pc.invert(is_plain)).to_pylist()]
    return found


def count_hosts(links: PartSet) -> pa.Table:
    """Return a table (host, n) of links per host, largest first, then by name."""
    counts, n_hosts = _COUNTS.empty_table(), 0
    for batch in link_batches(links, ["url"]):
        hosts = pc.value_counts(hosts_of(batch["url"]))
        counts = pa.concat_tables([counts, pa.table(hosts.flatten(), schema=_COUNTS)])
        if counts.num_rows > max(_FOLD_AT, 2 * n_hosts):
            counts = _added_up(counts)
            n_hosts = counts.num_rows
    return _added_up(counts).sort_by([("n", "descending"), ("host", "ascending")])


def over_host_cap(links: PartSet, max_pages: int | None) -> LinkTable:
    """Return each host's links beyond its best `max_pages`, by karma (highest first), then by date (earliest first).

    Links that can't be fetched don't count. The table is empty if `max_pages` is None, which means no cap.
    """
    if max_pages is None:
        return LinkTable()
    counts = count_hosts(links)
    crowded = counts.filter(pc.greater(counts["n"], max_pages))["host"].combine_chunks()
    if not len(crowded):
        return LinkTable()
    chosen: list[list[np.ndarray]] = []
    for some in link_batches(links, ["url", "karma", "first_created", "link_id"]):
        batch = only(some, are_fetchable(some["url"]))
        place = pc.index_in(hosts_of(batch.column("url")), value_set=crowded)
        rows = batch.append_column("host", place).filter(pc.is_valid(place))
        found = [rows.column(name).to_numpy() for name in ("host", "karma", "first_created")]
        chosen.append([*found, link_keys(rows.column("link_id"))])
    host, karma, created, key = map(np.concatenate, zip(*chosen, strict=True))
    order = np.lexsort((key, created, ~karma, host))  # ~karma sorts descending and, unlike -karma, can't overflow
    host = host[order]
    rank = np.arange(len(host)) - np.searchsorted(host, host)
    return LinkTable([key[order[rank >= max_pages]]])


def only(batch: pa.RecordBatch, chosen: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the chosen rows, without a copy if all are."""
    return batch if chosen.all() else batch.filter(pa.array(chosen))


@dataclass(frozen=True, slots=True)
class ChosenLinks:
    """The links of a set that a run fetches: all, or its sample, and of these the links on hosts of its parts."""

    links: PartSet
    sample: Sample | None = None
    parts: Parts | None = None

    def batches(self, done: LinkTable | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the links that are not done, with the fields of `QueuedLink`."""
        names = ["link_id", "url", "karma", "split", "posts", "first_created"]
        for batch in link_batches(self.links, names):
            is_mine = np.ones(batch.num_rows, np.bool_)
            if done is not None:
                is_mine &= ~done.has(batch["link_id"])
            if self.parts is not None:
                is_mine &= part_of(hosts_of(batch["url"]), self.parts.of) == self.parts.number - 1
            if self.sample is not None:
                is_mine &= [self.sample.holds(link_id) for link_id in batch["link_id"].to_pylist()]
            yield only(batch.rename_columns([*names[:-1], "voted"]), is_mine)

    def count(self, done: LinkTable | None = None) -> int:
        return sum(batch.num_rows for batch in self.batches(done))

    def check(self, n_links: int) -> None:
        """Raise InputError if the sample keeps none of the links."""
        if self.sample is not None and self.links.records and not n_links:
            link_ids = (id_ for batch in link_batches(self.links, ["link_id"]) for id_ in batch["link_id"].to_pylist())
            enough = smallest_with_a_link(link_ids)
            raise InputError(
                f"a sample of {self.sample} keeps none of the {self.links.records:,} links in '{self.links.folder.url}'",
                f"it keeps about one in {math.ceil(100 / self.sample.percent):,}; {enough} is the smallest that keeps one",
            )


def link_batches(links: PartSet, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the columns of all parts."""
    for part in links.parts:
        yield from links.batches(part, columns, batch_size=_ROWS_AT_A_TIME)


_COUNTS = pa.schema([("host", pa.string()), ("n", pa.int64())])


def _added_up(counts: pa.Table) -> pa.Table:
    return counts.group_by("host").aggregate([("n", "sum")]).rename_columns(_COUNTS.names)
