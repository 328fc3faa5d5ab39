"""A column of a Hugging Face dataset by name: `huggingface:NAME[:CONFIG]:COLUMN[@REVISION]`, streamed by `datasets`.

NAME is a dataset on the Hub or a local folder of data files. What was read is known for good: a Hub dataset by its commit,
a folder by its files' contents. Only this module imports `datasets`, and only when a dataset is named.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from webtext.base.errors import ConfigError, InputError, missing_extra
from webtext.base.recipe import sha256_json

PREFIX = "huggingface:"


@dataclass(frozen=True, slots=True)
class Reference:
    """What `huggingface:...` names. `str()` writes it so that `parse` reads it, but for where a local folder lies."""

    name: str
    config: str | None
    column: str
    revision: str | None = None
    folder: str | None = None  # of a local dataset: where it lies; its name and its files' contents make it what it is

    @classmethod
    def parse(cls, text: str, folder: str | None = None, column: str = "") -> Reference:
        """The parts of a reference, to a dataset in `folder` if it is local; without one, the name may be a path.

        `column` is the one that is meant where only a name is given.

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
            raise ConfigError(f"'{text}' names no column of a dataset", f"write {PREFIX}NAME{form}[@REVISION]")
        if folder is None and Path(name).is_dir():
            path = Path(name).resolve()
            folder, name = str(path.parent), path.name
        return cls(name, middle[0] if middle else None, named, revision or None, folder)

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return PREFIX + ":".join(filter(None, (self.name, self.config, self.column))) + revision

    @property
    def path(self) -> str:
        """What `datasets` knows it by."""
        return f"{self.folder}/{self.name}" if self.folder else self.name


def pinned(text: str, column: str = "") -> Reference:
    """The reference with the revision that holds now. InputError when there is no such dataset or column."""
    reference = Reference.parse(text, column=column)
    splits, files = open_dataset(reference)
    for split, rows in splits.items():
        names = column_names(rows)
        if reference.column not in names:
            raise InputError(
                f"'{text}': split '{split}' has no column '{reference.column}': its columns are {', '.join(names)}",
                f"name the column that is meant: {PREFIX}{reference.name}:COLUMN",
            )
    return replace(reference, revision=_revision(reference, files))


def open_dataset(reference: Reference) -> tuple[dict[str, Any], list[str]]:
    """The splits as streaming datasets, in the dataset's order, and the paths or URLs of all data files."""
    try:
        import datasets
    except ImportError:
        raise missing_extra("datasets", "build") from None
    revision = None if reference.folder else reference.revision
    try:
        builder = datasets.load_dataset_builder(reference.path, reference.config, revision=revision)
        files = [file for split in (builder.config.data_files or {}).values() for file in split]
        return {str(name): rows for name, rows in builder.as_streaming_dataset().items()}, files
    except Exception as error:  # of many kinds, by what is missing: network, dataset, configuration, files
        raise InputError(
            f"the dataset '{reference.path}' cannot be opened: {one_line(error)}",
            "check its name (a folder's path, or one on the Hub), its configuration and the network",
        ) from None


def column_names(rows: Any) -> list[str]:
    """The columns of a split; where only its rows tell, those of the first."""
    return list(rows.column_names or next(iter(rows), {}))


def one_line(error: Exception) -> str:
    """An error of `datasets` in short."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _split_revision(text: str) -> tuple[str, str]:
    """The text before the last `@` and the revision after it; a local folder may be called so too."""
    start, _, revision = text.rpartition("@")
    return (text, "") if not start or ":" in revision or Path(text).is_dir() else (start, revision)


def _revision(reference: Reference, files: list[str]) -> str:
    if not reference.folder:
        commit = _COMMIT.search(files[0]) if files else None
        if not commit:
            raise InputError(f"'{reference}' does not tell its commit", "download the dataset and name its folder")
        return commit[1]
    digests = []
    for file in sorted(files):
        with open(file, "rb") as opened:
            _check_expansion(opened, file)
            opened.seek(0)
            digests.append(
                (Path(file).relative_to(reference.path).as_posix(), hashlib.file_digest(opened, "sha256").hexdigest())
            )
    return sha256_json(digests)


def _check_expansion(opened: BinaryIO, file: str) -> None:
    """InputError for a Parquet file that decodes to far more than its size: `datasets` decodes a row group at once."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    from webtext.base.untrusted_parquet import Expands, parquet_batches

    if file.endswith(".parquet"):
        with contextlib.suppress(OSError, ArrowException):  # damage: whoever reads the shard names it
            try:
                parquet_batches(opened, read_schema(opened).names)
            except Expands as error:
                raise InputError(f"'{file}' decodes to too much: {error}", "leave this file out") from None


_COMMIT = re.compile(r"^hf://[^@]+@([0-9a-f]{40})/")
