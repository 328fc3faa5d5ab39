"""Rows of Parquet files, which are untrusted: damage is reported, and no file can exhaust memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from webtext.base.errors import InputError
from webtext.base.inputs.files import InputFile, Refused
from webtext.base.parts.untrusted_parquet import Expands, open_parquet, parquet_batches, rows_of
from webtext.base.run import Run
from webtext.base.workers.attempt import Attempt

_TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())


def parquet_rows(file: InputFile, fields: Sequence[str], text: str) -> Iterator[dict[str, Any] | Refused]:
    """Yield each row's values of those `fields` that are columns, or why it has none.

    Raises InputError unless there is one column `text`, of strings, and BrokenFile if the file is damaged.
    """
    with file.folder.open(file.name) as opened:
        try:
            schema = open_parquet(opened).schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not UTF-8
            raise file.broken(f"not a readable Parquet file: {error}") from None
        file.check_column(text, schema.names)
        type_ = schema.field(text).type
        if (type_.value_type if pa.types.is_dictionary(type_) else type_) not in _TEXTS:
            raise InputError(f"the column '{text}' of '{file.location}' is of {type_}", "expected strings")
        try:
            for batch in parquet_batches(opened, [name for name in fields if name in schema.names]):
                yield from map(checked_row, rows_of(batch))
        except Expands as error:
            yield Refused("expands_too_much", str(error))
        except (OSError, pa.ArrowException) as error:
            raise file.broken(f"a damaged Parquet file: {error}") from None


def find_killers(files: Sequence[InputFile], run: Run) -> dict[InputFile, str]:
    """Return the files that kill a worker when they are opened, and the cause, so that this process doesn't open them."""
    found: dict[InputFile, str] = {}
    run.map(_open, files, "open files", unit="file", on_set_aside=lambda i, _, cause: found.update({files[i]: cause}))
    return found


def _open(attempt: Attempt, file: InputFile) -> None:
    for _, each in attempt.watch([(0, file)]):
        with each.folder.open(each.name) as opened, contextlib.suppress(OSError, ValueError, pa.ArrowException):
            parquet_batches(opened, [])


def checked_row(row: dict[str, Any] | Exception) -> dict[str, Any] | Refused:
    """Return a row of `rows_of`, or why it has no values."""
    if not isinstance(row, Exception):
        return row
    return Refused("not_utf8" if isinstance(row, UnicodeDecodeError) else "value_out_of_range", str(row))
