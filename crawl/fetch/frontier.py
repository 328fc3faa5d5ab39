"""The frontier: the links to be fetched, as one queue per host, on disk.

Links come in the order of their ids, which mixes all hosts. If they were queued in memory as they come, a few hosts
with many links would fill it and block all others. So all links are first written to a scratch file, in Arrow's format,
and their row numbers are sorted by host, one range of hosts at a time. A link is decoded when its host's queue is read.
Each host's best links come first, and the longest queue starts first, because it decides when the crawl ends.

Memory: 12 bytes per host, and during sorting 60 bytes for each link of one range of hosts. The links are on disk.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.storage import no_space_is_an_error
from webtext.crawl.fetch.page_source import Queue
from webtext.crawl.pages.link_table import hosts_of, string_keys
from webtext.crawl.pages.visit import QueuedLink

RANGES = 64  # of hosts, by the first bits of their keys
PLACES_AT_A_TIME = 16  # row numbers of a host's links to read at once: 64 bytes per active host

_ROW = np.dtype([("host", "<u8"), ("disfavour", "<i8"), ("row", "<u4")])


class Frontier(contextlib.AbstractContextManager["Frontier"]):
    """Links by host, in scratch files made from `path` and unlinked at once, so that they never outlive the process.

    The columns of the batches are fields of `QueuedLink`.
    """

    def __init__(self, links: Iterable[pa.RecordBatch], path: Path) -> None:
        self._rows, by_range = open(path, "w+b"), open(f"{path}.rows", "w+b")  # noqa: SIM115 - closed by __exit__
        self._links: Any = None
        ends = [0]
        counts = []
        with by_range, open(f"{path}.links", "w+b") as file, no_space_is_an_error(str(path)):
            for each in (path, by_range.name, file.name):
                os.unlink(each)
            writer = None
            for batch in links:
                writer = writer or pa.ipc.new_file(file, batch.schema)
                writer.write_batch(batch)
                counts.append(_write_ranges(batch, ends[-1], by_range))
                ends.append(ends[-1] + batch.num_rows)
            if writer is not None:
                writer.close()
                file.flush()
                by_range.flush()
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._links = pa.ipc.open_file(pa.py_buffer(mapped))
            self._ends = np.array(ends[1:])
            self._sizes = np.concatenate([*self._sort(np.array(counts, np.int64).reshape(-1, RANGES), by_range)])

    def __exit__(self, *_: object) -> None:
        self._rows.close()
        self._links = None

    def queues(self) -> Iterator[Queue]:
        """Yield each host's queue, highest karma first, starting with the host that has the most links."""
        order = np.argsort(~self._sizes, kind="stable").astype(np.uint32)
        starts = (np.cumsum(self._sizes) - self._sizes).astype(np.uint32)
        for host in order:
            yield functools.partial(self._queue, int(starts[host]), int(self._sizes[host]))

    def _sort(self, counts: npt.NDArray[np.int64], by_range: BinaryIO) -> Iterator[npt.NDArray[np.uint32]]:
        """Write the row numbers of all links by host, and yield the number of links of each host."""
        firsts = np.cumsum(counts).reshape(counts.shape) - counts
        for number in range(RANGES):
            places = zip(*(_ROW.itemsize * each[:, number] for each in (counts, firsts)), strict=True)
            rows = np.frombuffer(b"".join([os.pread(by_range.fileno(), *place) for place in places]), _ROW)
            order = np.lexsort((rows["disfavour"], rows["host"]))
            self._rows.write(rows["row"][order].tobytes())
            hosts = rows["host"][order]
            starts = np.flatnonzero(np.append(np.ones(min(len(hosts), 1), np.bool_), hosts[1:] != hosts[:-1]))
            yield np.diff(np.append(starts, len(hosts))).astype(np.uint32)
        self._rows.flush()

    def _queue(self, first: int, n_links: int) -> Iterator[QueuedLink]:
        for some in range(first, first + n_links, PLACES_AT_A_TIME):
            n_some = min(PLACES_AT_A_TIME, first + n_links - some)
            for row in np.frombuffer(os.pread(self._rows.fileno(), 4 * n_some, 4 * some), np.uint32).tolist():
                number = int(np.searchsorted(self._ends, row, "right"))
                batch = self._links.get_batch(number)
                [fields] = batch.slice(row - int(self._ends[number]) + batch.num_rows, 1).to_pylist()
                yield QueuedLink(**fields)


def _write_ranges(batch: pa.RecordBatch, first: int, file: BinaryIO) -> npt.NDArray[np.int64]:
    """Append the host, karma and number of each row, by range; return the number of rows in each range."""
    rows = np.empty(batch.num_rows, _ROW)
    rows["host"] = string_keys(hosts_of(batch.column("url")))
    rows["disfavour"] = ~batch.column("karma").to_numpy()  # ascending where karma descends; -karma could overflow
    rows["row"] = np.arange(first, first + batch.num_rows)
    ranges = (rows["host"] >> np.uint64(58)).astype(np.uint8)  # 6 bits
    file.write(rows[np.argsort(ranges, kind="stable")].tobytes())
    return np.bincount(ranges, minlength=RANGES)
