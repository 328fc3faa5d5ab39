"""A build in Python, `webtext.open("build")`: its part sets as tables, and why a record is or isn't in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from webtext.app.chain import Layout
from webtext.app.inspect.trace import TokenTrace, Trace, Tracer
from webtext.base.errors import InputError, MachineError
from webtext.base.parts.counts import Counts
from webtext.base.parts.partset import PartSet
from webtext.base.storage import Folder
from webtext.train.evaluate.curve import curve_page, read_curve
from webtext.train.metrics import read_metrics

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN_ROWS = 5
SHOWN_CHARACTERS = 200
_RUN = "name the folder of a training run"
_CELL = 'style="text-align:left;vertical-align:top"'


class Rows(ABC):
    """A table in a build. Each conversion returns the library's own type; `columns` are names, by default all.

    MachineError if the library isn't installed.
    """

    @abstractmethod
    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a pyarrow Table, in memory."""

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return a pandas DataFrame, in memory."""
        _library("pandas")
        return self.to_arrow(columns).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None) -> Any:
        """Return a Polars DataFrame, in memory."""
        return _library("polars").from_arrow(self.to_arrow(columns))

    def to_duckdb(self) -> Any:
        """Return a DuckDB relation, which `duckdb.sql` also finds by the name of its variable.

        A query reads only the columns and row groups of local files that it needs.
        """
        return _library("duckdb").from_arrow(self._scanned())

    def to_datasets(self, columns: Sequence[str] | None = None) -> Any:
        """Return a `datasets.Dataset`, in memory."""
        return _library("datasets").Dataset(self.to_arrow(columns))

    def _scanned(self) -> Any:
        return self.to_arrow()


class Records(Rows):
    """The records of a part set. Each file is checked against the manifest by SHA-256 before its first read."""

    def __init__(self, opened: PartSet) -> None:
        self.set = opened

    def __len__(self) -> int:
        return self.set.records

    def __repr__(self) -> str:
        return f"<{self.set.kind}: {len(self):,} records in '{self.set.folder.url}'>"

    @property
    def counts(self) -> Counts:
        """Records in, kept, dropped and failed, by reason."""
        return self.set.counts

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records in the order of the set; memory is bounded by a batch."""
        for part in self.set.parts:
            yield from self.set.batches(part, columns)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:  # noqa: D102
        import pyarrow as pa

        from webtext.base.parts.schemas import SCHEMAS

        names = SCHEMAS[self.set.kind].names if columns is None else list(columns)
        tables = [self.set.table(part, columns) for part in self.set.parts]
        tables = tables or [SCHEMAS[self.set.kind].empty_table()]
        return pa.concat_tables(tables, promote_options="default").select(names)

    def _scanned(self) -> Any:
        import pyarrow.dataset

        from webtext.base.parts.schemas import SCHEMAS

        if not self.set.folder.is_local:
            return self.to_arrow()
        self.set.verify()
        files = [str(self.set.folder.local_path(part.name)) for part in self.set.parts]
        return pyarrow.dataset.dataset(files, schema=SCHEMAS[self.set.kind])

    def _repr_html_(self) -> str:
        batch = next(self.batches(), None)
        rows = [] if batch is None else batch.slice(0, SHOWN_ROWS).to_pylist()
        head = [] if batch is None else batch.schema.names
        return f"<p>{escape(repr(self))}</p>{_table(head, [[_shown(row[name]) for name in head] for row in rows])}"


class History(Rows):
    """The rows of a run's metrics.jsonl: one for each step and each measurement, null where one has no such value."""

    def __init__(self, model: str) -> None:
        self._model = model

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:  # noqa: D102
        import pyarrow as pa

        rows = read_metrics(Folder(self._model), _RUN)
        names = dict.fromkeys(name for row in rows for name in row)
        table = pa.table({name: [row.get(name) for row in rows] for name in names})
        return table if columns is None else table.select(list(columns))

    def _repr_html_(self) -> str:
        page = escape(curve_page([read_curve(self._model)]))
        return f'<iframe srcdoc="{page}" sandbox title="loss" style="width:100%;height:40rem;border:0"></iframe>'


class TrainedModel:
    """The folder of a training run."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        return f"<TrainedModel: '{self.folder}'>"

    @property
    def history(self) -> History:
        """Losses, rates, gradients and throughput by step, also of a run in progress."""
        return History(self.folder)

    @property
    def evaluation(self) -> dict[str, Any]:
        """What `train eval` measured. InputError if it hasn't run."""
        return Folder(self.folder).read_object("evaluation.json", "measure the model first, with webtext train eval")

    def load(self) -> Any:
        """Return the newest checkpoint as a `webtext.GPT2`, in float32 on the CPU."""
        from webtext.train import load_model

        return load_model(self.folder)

    def _repr_html_(self) -> str:
        return self.history._repr_html_()


class Build:
    """The build in a folder, or at an fsspec URL. InputError if there is none; a set not made yet is one when asked for."""

    def __init__(self, folder: str) -> None:
        self.folder, self._layout = folder, Layout.existing(folder)

    def __repr__(self) -> str:
        return f"<Build: '{self.folder}'>"

    @cached_property
    def links(self) -> Records:
        """The links that people voted for, with their posts."""
        return self._records("links")

    @cached_property
    def pages(self) -> Records:
        """One row for every link, with its outcome."""
        return self._records("pages")

    @cached_property
    def documents(self) -> Records:
        """Everything that was extracted."""
        return self._records("documents")

    @cached_property
    def corpus(self) -> Records:
        """The documents that were kept."""
        return self._records("corpus")

    @cached_property
    def dropped(self) -> Records:
        """The documents that were dropped, each with its reason, value and threshold."""
        return self._records("dropped")

    @cached_property
    def tokens(self) -> Records:
        """Where each document's tokens are: shard, start and length. `webtext.TokenShards` reads the tokens."""
        return self._records("tokens")

    @property
    def model(self) -> TrainedModel:
        """The model that was trained on the tokens."""
        return TrainedModel(self._layout.model)

    def why(self, url_or_id: str) -> Trace:
        """Return how far a URL or a document came, and why no further. InputError if nothing has that id or URL."""
        return Tracer(self.folder).why(url_or_id)

    def trace(self, place: str) -> TokenTrace:
        """Return where a token comes from; `place` is SHARD:OFFSET, e.g. 'train-00000.tok:4096'."""
        return TokenTrace.at(self.folder, place)

    def _records(self, kind: str) -> Records:
        return Records(PartSet.open(getattr(self._layout, kind), kind))

    def _repr_html_(self) -> str:
        rows = []
        for kind in ("links", "pages", "documents", "corpus", "tokens"):
            try:
                counts = self._records(kind).counts
            except InputError:
                continue
            reasons = [f"{name} {n:,}" for name, n in (counts.dropped | counts.failed).items()]
            rows.append([kind, f"{counts.records_in:,}", f"{counts.kept:,}", ", ".join(reasons)])
        return f"<p>{escape(repr(self))}</p>{_table(['stage', 'in', 'kept', 'dropped or failed'], rows)}"


def open(folder: str) -> Build:
    """Open the build in a folder or at an fsspec URL.

    For example::

        build = webtext.open("build")
        build.corpus.to_duckdb().filter("karma > 100").order("karma desc").limit(5)
        build.why("http://example.com/")
        build.trace("train-00000.tok:4096")
    """
    return Build(folder)


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise MachineError(f"the package '{name}' is not installed", f"install it with: pip install {name}") from None


def _shown(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"<tr>{''.join(f'<th {_CELL}>{escape(name)}</th>' for name in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td {_CELL}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"
