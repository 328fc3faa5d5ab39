"""A build in Python: each of its part sets as a pyarrow dataset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from webtext.app.chain import SETS, BuildLayout
from webtext.base.parts.partset import PartSet
from webtext.base.parts.schemas import SCHEMAS

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset


class Build:
    """A build's `links`, `pages`, `documents`, `signals`, `corpus`, `dropped` and `tokens` as pyarrow datasets.

    Each Parquet file is compared with the manifest by SHA-256 when its set is asked for; InputError if one was altered, or
    the set hasn't been made. Later reads load only the columns and row groups that they need. A set in a store is read into
    memory.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self._layout = folder, BuildLayout.existing(folder)

    def __repr__(self) -> str:
        return f"<Build: '{self.folder}'>"

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *SETS]

    def __getattr__(self, name: str) -> Dataset:
        if name not in SETS:
            raise AttributeError(f"a build has no '{name}', but {', '.join(SETS)}")
        from pyarrow.dataset import dataset

        opened = PartSet.open(getattr(self._layout, name), name)
        if not opened.folder.is_local:
            return dataset([opened.table(part) for part in opened.parts] or SCHEMAS[name].empty_table())
        for part in opened.parts:
            opened.table(part, [])  # compares the file with the manifest; WARC files beside it aren't read
        files = [str(opened.folder.local_path(part.name)) for part in opened.parts]
        return dataset(files, schema=None if files else SCHEMAS[name])


def open(folder: str) -> Build:
    """Open the build in a folder or at an fsspec URL; InputError if there is none.

    For example::

        corpus = webtext.open("build").corpus
        corpus.to_table(["url", "karma"]).to_pandas()
        duckdb.sql("SELECT url, karma FROM corpus ORDER BY karma DESC LIMIT 5")
    """
    return Build(folder)
