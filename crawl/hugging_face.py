"""A column of a Hugging Face dataset, streamed by `datasets`: `huggingface:NAME[:CONFIG]:COLUMN[@REVISION]`.

NAME is a dataset on the Hub or a local folder of data files. COLUMN holds the URLs; score, time and the rest are found by
their names (`COLUMNS` of crawl/lists.py). All splits are read, in the dataset's order. What was read is known for good: a
Hub dataset by its commit, a folder by its files' contents. Only this module imports `datasets`, when one is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from webtext.base.digest import file_sha256
from webtext.base.errors import ConfigError, InputError, missing_extra
from webtext.base.recipe import sha256_json
from webtext.crawl.lists import Defaults, Row, RowSource, find_columns
from webtext.crawl.submission import Unreadable

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
    def parse(cls, text: str, folder: str | None = None) -> Reference:
        """The parts of a reference, to a dataset in `folder` if it is local; without one, the name may be a path.

        >>> Reference.parse("huggingface:somebody/links:2017:url@0c1d")
        Reference(name='somebody/links', config='2017', column='url', revision='0c1d', folder=None)
        """
        start, _, end = text.removeprefix(PREFIX).rpartition(":")
        name, *middle = start.split(":")
        column, _, revision = end.partition("@")
        if len(middle) > 1 or not all((name, column, *middle)):
            raise ConfigError(
                f"'{text}' names no column of a dataset", f"write {PREFIX}NAME[:CONFIG]:COLUMN[@REVISION]"
            )
        if folder is None and Path(name).is_dir():
            path = Path(name).resolve()
            folder, name = str(path.parent), path.name
        return cls(name, middle[0] if middle else None, column, revision or None, folder)

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return PREFIX + ":".join(filter(None, (self.name, self.config, self.column))) + revision

    @property
    def path(self) -> str:
        """What `datasets` knows it by."""
        return f"{self.folder}/{self.name}" if self.folder else self.name


def pinned(text: str) -> Reference:
    """The reference with the revision that holds now. InputError when there is no such dataset or column."""
    reference = Reference.parse(text)
    splits, files = _open(reference)
    for split, rows in splits.items():
        names = _column_names(rows)
        if reference.column not in names:
            raise InputError(
                f"'{text}': split '{split}' has no column '{reference.column}': its columns are {', '.join(names)}",
                "name the column that holds the URLs",
            )
    return replace(reference, revision=_revision(reference, files))


class HuggingFaceColumn(RowSource):
    """The link source of datasets; the file that stands for one holds its pinned reference."""

    def __init__(self, defaults: Defaults, folder: str | None) -> None:
        super().__init__(defaults)
        self._folder = folder or None

    def records(self, file: BinaryIO) -> Iterator[tuple[int, Row | Unreadable]]:
        """Rows of all splits, numbered through."""
        reference = Reference.parse(file.read().decode(), self._folder)
        position = 0
        for rows in _open(reference)[0].values():
            columns = find_columns(_column_names(rows)) | {"url": reference.column}
            for row in rows.select_columns(sorted(set(columns.values()))):
                yield position, (position, {ours: row.get(theirs) for ours, theirs in columns.items()})
                position += 1


def _column_names(rows: Any) -> list[str]:
    return list(rows.column_names or next(iter(rows), {}))


def _open(reference: Reference) -> tuple[dict[str, Any], list[str]]:
    """The splits, streaming, and the paths or URLs of all data files."""
    try:
        import datasets
    except ImportError:
        raise missing_extra("datasets", "build") from None
    revision = None if reference.folder else reference.revision
    try:
        builder = datasets.load_dataset_builder(reference.path, reference.config, revision=revision)
        files = [file for split in (builder.config.data_files or {}).values() for file in split]
        return dict(builder.as_streaming_dataset()), files
    except Exception as error:  # of many kinds, by what is missing: network, dataset, configuration, files
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise InputError(
            f"the dataset '{reference.path}' cannot be opened: {cause}",
            "check its name (a folder's path, or one on the Hub), its configuration and the network",
        ) from None


def _revision(reference: Reference, files: list[str]) -> str:
    if not reference.folder:
        commit = _COMMIT.search(files[0]) if files else None
        if not commit:
            raise InputError(f"'{reference}' does not tell its commit", "download the dataset and name its folder")
        return commit[1]
    digests = []
    for file in sorted(files):
        with open(file, "rb") as opened:
            digests.append((Path(file).relative_to(reference.path).as_posix(), file_sha256(opened)))
    return sha256_json(digests)


_COMMIT = re.compile(r"^hf://[^@]+@([0-9a-f]{40})/")
