"""The heartbeat: the record that a worker is processing, noted in memory that outlives the worker.

A worker that segfaults can't report anything, but the eight bytes that it wrote before the record are still there.
The engine reads them to charge a death to one record instead of the entire part (`base/workers/local_engine.py`).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from webtext.base.storage import stopping_error

T = TypeVar("T")
R = TypeVar("R")

KILLED_WORKER = "killed_worker"
"""Reason of a record that was set aside because it kills workers."""
RAISED = "raised"
"""Reason of a record for which the function raised an error."""

# One aligned 64-bit cell each, so that no reader sees half a write.
_POSITION, _STEPS, _OUT_OF_MEMORY, _RECORDS = range(4)
_NOWHERE = -1  # records have positions from 0, batches have -2 and below
FIRST_FILE = 1 << 62  # files that are read have positions from here
HEARTBEAT_BYTES = 4 * 8


class Heartbeat:
    """The shared memory, written by one worker and read by the engine during and after that worker's life."""

    def __init__(self, file_descriptor: int) -> None:
        os.ftruncate(file_descriptor, HEARTBEAT_BYTES)
        self._cells = memoryview(mmap.mmap(file_descriptor, HEARTBEAT_BYTES)).cast("q")

    @property
    def position(self) -> int | None:
        """Position of the record that was begun and not finished; None if there is none."""
        position = self._cells[_POSITION]
        return None if position == _NOWHERE else position

    @property
    def steps(self) -> int:
        """How often the position was written; unchanged while a record is being processed."""
        return self._cells[_STEPS]

    @property
    def out_of_memory(self) -> bool:
        """Whether the worker exited because an allocation failed."""
        return bool(self._cells[_OUT_OF_MEMORY])

    @property
    def records(self) -> int:
        """How many records of the task are finished."""
        return self._cells[_RECORDS]

    def reset(self) -> None:
        """Begin a task, outside any record."""
        self._cells[_OUT_OF_MEMORY] = self._cells[_RECORDS] = 0
        self.note(None)

    def note(self, position: int | None) -> None:
        """Write the position of the record that begins; None means outside any record."""
        self._cells[_POSITION] = _NOWHERE if position is None else position
        self._cells[_STEPS] += 1

    def count(self, n_records: int) -> None:
        """Count finished records."""
        self._cells[_RECORDS] += n_records

    def note_out_of_memory(self) -> None:
        """Record that the worker is about to exit because it is out of memory."""
        self._cells[_OUT_OF_MEMORY] = 1


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of a record that couldn't be processed."""

    reason: str
    cause: str

    @classmethod
    def of(cls, error: Exception) -> Failed:
        """Return the result of a record for which a function raised `error`.

        Re-raises errors that aren't the record's fault (`stopping_error`), and MemoryError, which the engine handles.
        """
        if isinstance(error, MemoryError) or stopping_error(error):
            raise error
        return cls(RAISED, f"{type(error).__name__}: {error}"[:200])


class Rows(Protocol):
    """The interface that `apply_to_batches` needs: an Arrow record batch or table."""

    @property
    def num_rows(self) -> int: ...
    def slice(self, offset: int, length: int) -> Any: ...


B = TypeVar("B", bound=Rows)


class Attempt:
    """One attempt at a task, as its function sees it: the records to leave out, and where to note the current record.

    `set_aside` maps each record that is known to kill its worker to the cause. If `only` is a position, this attempt
    retries that record alone, and the function's output is discarded.
    """

    def __init__(
        self, page: Heartbeat | None = None, *, set_aside: Mapping[int, str] | None = None, only: int | None = None
    ) -> None:
        self._page = page
        self.set_aside: Mapping[int, str] = set_aside or {}
        self.only = only
        self._outside: int | None = None

    def reading(self, number: int, records: Iterable[T], lost: Callable[[str], T]) -> Iterator[T]:
        """Yield the records of the task's file `number`; a worker's death between two of them is charged to the file.

        So a file whose reading kills workers, even while it is opened, is a record that can be set aside: of such a file
        only `lost(cause)` is yielded.
        """
        position = FIRST_FILE + number
        if position in self.set_aside:
            yield lost(self.set_aside[position])
        elif self.only is None or self.only < FIRST_FILE or self.only == position:
            self._outside = position
            self.idle()
            yield from records
            self._outside = None
            self.idle()

    def watch(self, records: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
        """Yield each (position, record) after noting its position; between two records none is noted.

        Records that were set aside are skipped; with `only`, all other records are skipped. Positions are unique in a
        task.
        """
        for position, record in records:
            if position in self.set_aside or (self.only is not None and position != self.only):
                continue
            self.note(position)
            yield position, record
            # Not in a `finally`: an exception that ends the task leaves the position of the record that raised it.
            self.idle(1)
            if self.only is not None:
                return

    def apply_to_batches(self, function: Callable[[B], R], batches: Iterable[B]) -> Iterator[tuple[B, R | Failed]]:
        """Run `function` on batches of rows; yield (rows, result) in order, and (one row, Failed) for each failed row.

        A batch is noted as one record, under a number below -1; a row's position is its index over all batches. If the
        worker died in a batch or the function raised, the batch is processed row by row, so that only the rows that
        fail alone are lost. The results must not depend on how rows are split into batches.
        """
        start = 0
        for batch in batches:
            rows, whole = range(start, start + batch.num_rows), -2 - start
            start = rows.stop
            if self.only is not None and self.only != whole and self.only not in rows:
                continue
            by_row = self.only is not None or whole in self.set_aside
            at = rows.start
            for stop in [*sorted(position for position in self.set_aside if position in rows), rows.stop]:
                step = 1 if by_row else max(1, stop - at)
                for first in range(at, stop, step):
                    if self.only in (None, whole, first):
                        yield from self._apply(function, batch.slice(first - rows.start, step), first, whole)
                if stop < rows.stop:
                    yield batch.slice(stop - rows.start, 1), Failed(KILLED_WORKER, self.set_aside[stop])
                at = stop + 1

    def _apply(self, function: Callable[[B], R], rows: B, first: int, whole: int) -> Iterator[tuple[B, R | Failed]]:
        self.note(whole if rows.num_rows > 1 else first)
        try:
            result: R | Failed = function(rows)
        except Exception as error:
            result = Failed.of(error)
        is_apart = isinstance(result, Failed) and rows.num_rows > 1
        self.idle(0 if is_apart else rows.num_rows)
        if is_apart:
            for i in range(rows.num_rows):
                yield from self._apply(function, rows.slice(i, 1), first + i, whole)
        else:
            yield rows, result

    def note(self, position: int) -> None:
        """From now on, charge a death to the record at `position`."""
        if self._page:
            self._page.note(position)

    def idle(self, n_records: int = 0) -> None:
        """From now on, charge a death to the file or the part: no record is being processed, `n_records` are finished."""
        if self._page:
            self._page.note(self._outside)
            self._page.count(n_records)
