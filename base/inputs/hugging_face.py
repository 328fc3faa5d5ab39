"""Columns of Hugging Face datasets, named by `huggingface:NAME[:CONFIG]:COLUMN[@REVISION]` and streamed by `datasets`.

NAME is a dataset on the Hub or a local folder of data files. What was read is pinned: a Hub dataset by its commit, a
folder by its files' contents. Only this module imports `datasets`, and only when a dataset is named.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from webtext.base.errors import ConfigError, InputError, missing_extra, one_line
from webtext.base.parts.recipe import sha256_json
from webtext.base.storage import file_sha256

PREFIX = "huggingface:"


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed `huggingface:...` reference. `str()` is the inverse of `parse`, except that it omits a local path."""

    name: str
    config: str | None
    column: str
    revision: str | None = None
    folder: str | None = None  # path of a local dataset's parent folder; its name and its files' contents identify it

    @classmethod
    def parse(cls, text: str, folder: str | None = None, column: str = "") -> Reference:
        """Parse a reference. A local dataset is in `folder`; without `folder`, the name itself may be a local path.

        `column` is the default if the reference contains only a name.

        >>> Reference.parse("huggingface:somebody/links:2017:url@0c1d")
        Reference(name='somebody/links', config='2017', column='url', revision='0c1d', folder=None)
        >>> str(Reference.parse("huggingface:somebody/texts@0c1d", column="text"))
        'huggingface:somebody/texts:text@0c1d'
        """
        start, revision = _split_revision(text.removeprefix(PREFIX))
        name, *middle = start.split(":")
        named = middle.pop() if middle else column
        if len(middle) > 1 or not all((name, named, *middle)):
            form = "[[:CONFIG]:COLUMN]" if column else "[:CONFIG]:COLUMN"
            raise ConfigError(f"'{text}' doesn't name a column of a dataset", f"write {PREFIX}NAME{form}[@REVISION]")
        if folder is None and Path(name).is_dir():
            path = Path(name).resolve()
            folder, name = str(path.parent), path.name
        return cls(name, middle[0] if middle else None, named, revision or None, folder)

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return PREFIX + ":".join(filter(None, (self.name, self.config, self.column))) + revision

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}" if self.folder else self.name


def pin_revision(text: str, column: str = "") -> Reference:
    """Return the reference with its current revision; raises InputError if the dataset or the column doesn't exist."""
    reference = Reference.parse(text, column=column)
    splits, files = open_dataset(reference)
    for split, rows in splits.items():
        names = column_names(rows)
        if reference.column not in names:
            raise InputError(
                f"'{text}': split '{split}' has no column '{reference.column}': its columns are {', '.join(names)}",
                f"name one of these columns: {PREFIX}{reference.name}:COLUMN",
            )
    return replace(reference, revision=_revision(reference, files))


def open_dataset(reference: Reference) -> tuple[dict[str, Any], list[str]]:
    """Return the splits as streaming datasets, in the dataset's order, and the paths or URLs of all data files."""
    try:
        import datasets
    except ImportError:
        raise missing_extra("datasets", "build") from None
    revision = None if reference.folder else reference.revision
    try:
        builder = datasets.load_dataset_builder(reference.path, reference.config, revision=revision)
        files = [file for split in (builder.config.data_files or {}).values() for file in split]
        return {str(name): rows for name, rows in builder.as_streaming_dataset().items()}, files
    except Exception as error:  # the type depends on what is missing: network, dataset, configuration, files
        raise InputError(
            f"the dataset '{reference.path}' cannot be opened: {type(error).__name__}: {one_line(error)}",
            "check its name (the path of a folder, or a name on the Hub), its configuration and the network",
        ) from None


def column_names(rows: Any) -> list[str]:
    """Return the columns of a split; if its metadata doesn't list them, the columns of its first row."""
    return list(rows.column_names or next(iter(rows), {}))


def _split_revision(text: str) -> tuple[str, str]:
    """Split at the last `@` into name and revision; a local folder's name may contain an `@` of its own."""
    start, _, revision = text.rpartition("@")
    return (text, "") if not start or ":" in revision or Path(text).is_dir() else (start, revision)


def _revision(reference: Reference, files: list[str]) -> str:
    if not reference.folder:
        commit = _COMMIT.search(files[0]) if files else None
        if not commit:
            raise InputError(f"the commit of '{reference}' is unknown", "download the dataset and name its folder")
        return commit[1]
    digests = []
    for file in sorted(files):
        with open(file, "rb") as opened:
            _check_expansion(opened, file)
            opened.seek(0)
            digests.append((Path(file).relative_to(reference.path).as_posix(), file_sha256(opened)))
    return sha256_json(digests)


def _check_expansion(opened: BinaryIO, file: str) -> None:
    """Raise InputError if a Parquet file decodes to far more than its size: `datasets` decodes a row group at once."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    from webtext.base.parts.untrusted_parquet import Expands, parquet_batches

    if file.endswith(".parquet"):
        with contextlib.suppress(OSError, ArrowException):  # damage: reported by whatever reads the shard
            try:
                parquet_batches(opened, read_schema(opened).names)
            except Expands as error:
                raise InputError(f"'{file}' decodes to too many bytes: {error}", "leave this file out") from None


_COMMIT = re.compile(r"^hf://[^@]+@([0-9a-f]{40})/")
