"""The frontier: the links to be fetched, as one queue per host, on disk.

Links come in the order of their ids, which mixes all hosts. If they were queued in memory as they come, a few hosts
with many links would fill it and block all others. So all links are first written to a scratch file and sorted by host.
A host's queue is a range of an array, read link by link. Each host's best links come first, and the longest queue
starts first, because it decides when the crawl ends.

Memory: about 36 bytes per link during sorting, then 16 bytes per host. The links themselves are on disk.
"""

from __future__ import annotations

import functools
import hashlib
import os
import struct
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from webtext.base.storage import no_space_is_an_error
from webtext.base.web.urls import host_of, registrable_domain
from webtext.crawl.fetch.page_source import Queue
from webtext.crawl.pages.pages_set import Link

BUFFER_BYTES = 1 << 20
ROWS_AT_A_TIME = 1 << 16
PLACES_AT_A_TIME = 16  # positions of a host's links to read at once: 192 bytes per active host


class Frontier:
    """Links by host, in a scratch file made at `path` and unlinked at once, so that it never outlives the process."""

    def __init__(self, links: Iterable[Link], path: Path) -> None:
        self._file = open(path, "w+b", buffering=BUFFER_BYTES)  # noqa: SIM115 - closed by close()
        path.unlink()
        self._links = msgspec.msgpack.Decoder(Link)
        hosts, disfavours, lengths = array("Q"), array("q"), array("I")
        encode = msgspec.msgpack.Encoder().encode
        with no_space_is_an_error(str(path)):
            for link in links:
                encoded = encode(link)
                self._file.write(encoded)
                hosts.append(host_key(link.url))
                disfavours.append(-link.karma)
                lengths.append(len(encoded))
        self._n_links = len(hosts)
        self._places_at = self._file.tell()
        order = np.lexsort((np.frombuffer(disfavours, np.int64), np.frombuffer(hosts, np.uint64)))
        del disfavours
        self._starts, self._sizes = _groups(np.frombuffer(hosts, np.uint64), order)
        del hosts
        with no_space_is_an_error(str(path)):
            self._write_places(np.frombuffer(lengths, np.uint32), order)

    def __enter__(self) -> Frontier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """The number of links."""
        return self._n_links

    def close(self) -> None:
        """Close the file, which frees its disk space."""
        self._file.close()

    def queues(self) -> Iterator[Queue]:
        """Yield each host's queue, highest karma first, starting with the host that has the most links."""
        for host in np.argsort(-self._sizes, kind="stable"):
            yield functools.partial(self._queue, int(self._starts[host]), int(self._sizes[host]))

    def _write_places(self, lengths: npt.NDArray[np.uint32], order: npt.NDArray[np.int64]) -> None:
        """Append the position of each link to the file, in the order in which the links will be read."""
        offsets = np.cumsum(lengths, dtype=np.uint64)
        for first in range(0, len(order), ROWS_AT_A_TIME):
            rows = order[first : first + ROWS_AT_A_TIME]
            places = np.empty(len(rows), _PLACE)
            places["offset"], places["length"] = offsets[rows] - lengths[rows], lengths[rows]
            self._file.write(places.tobytes())
        self._file.flush()

    def _queue(self, first: int, n_links: int) -> Iterator[Link]:
        handle = self._file.fileno()
        for some in range(first, first + n_links, PLACES_AT_A_TIME):
            n_some = min(PLACES_AT_A_TIME, first + n_links - some)
            places = os.pread(handle, n_some * _PLACE.itemsize, self._places_at + some * _PLACE.itemsize)
            for offset, length in _PLACE_FIELDS.iter_unpack(places):
                yield self._links.decode(os.pread(handle, length, offset))


_PLACE = np.dtype([("offset", "<u8"), ("length", "<u4")])
_PLACE_FIELDS = struct.Struct("<QI")


def _groups(
    hosts: npt.NDArray[np.uint64], order: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each host's links start in sorted order, and how many each host has."""
    hosts = hosts[order]
    starts = np.flatnonzero(np.concatenate([[len(hosts) > 0], hosts[1:] != hosts[:-1]]))
    return starts, np.diff(np.append(starts, len(hosts)))


def in_share(url: str, share: tuple[int, int]) -> bool:
    """Whether a link is in share (k, n), k from 1 to n.

    A registrable domain is always in one share, so only one machine asks its hosts and, mostly, their addresses.

    >>> sum(in_share("http://a.example.org/", (k, 8)) for k in range(1, 9))
    1
    """
    part, n_parts = share
    return n_parts == 1 or _hash(registrable_domain(url)) % n_parts == part - 1


def host_key(url: str) -> int:
    """Return a 64-bit key of a URL's host. Two of 10 million hosts share a key, and a queue, with probability 3e-6."""
    return _hash(host_of(url))


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
