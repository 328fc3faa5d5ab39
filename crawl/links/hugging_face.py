"""A column of a Hugging Face dataset as links; `base/hugging_face.py` documents the form of its name.

COLUMN contains the URLs. Score, time and the other values come from columns that are recognized by name (`COLUMNS` in
crawl/links/lists.py). All splits are read, in the dataset's order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from webtext.base.hugging_face import Reference, column_names, open_dataset
from webtext.base.parts.untrusted_parquet import BATCH_ROWS, rows_of
from webtext.crawl.links.lists import Defaults, Row, RowSource, find_columns, named_row
from webtext.crawl.streams.lines import Unreadable


class HuggingFaceColumn(RowSource):
    """The link source for datasets; its input file contains only the dataset's pinned reference."""

    def __init__(self, defaults: Defaults, folder: str | None) -> None:
        super().__init__(defaults)
        self._folder = folder or None

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        """Yield the rows of all splits, numbered consecutively."""
        reference = Reference.parse(file.read().decode(), self._folder)
        position = 0
        for rows in open_dataset(reference)[0].values():
            columns = find_columns(column_names(rows)) | {"url": reference.column}
            for batch in rows.select_columns(sorted(set(columns.values()))).with_format("arrow").iter(BATCH_ROWS):
                for row in rows_of(batch):
                    yield position, named_row(position, row, columns)
                    position += 1
