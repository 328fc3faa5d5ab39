"""Imports records with a text as a documents set: files as `base/inputs/` reads them, and Hugging Face datasets.

A record keeps these fields if it has them: id, url, title, author, published, date (UTC seconds, a timestamp, or a
string in ISO 8601), karma, split, and posts in the form of a document's. Its text follows the same rule as a page's. A
record without an id gets one from its source (a file's SHA-256; a dataset's commit, split and shard) and its row
number, so grouping the files differently doesn't change it.
"""

from __future__ import annotations

import calendar
import functools
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from webtext.base.errors import InputError, one_line
from webtext.base.inputs.encodings import UTF_8, versions_for
from webtext.base.inputs.files import DOCUMENT_SUFFIXES, DOCUMENTS, InputFile, find_inputs, groups_of, hash_files, lost
from webtext.base.inputs.files import TEXT as TEXT_FILE
from webtext.base.inputs.hugging_face import PREFIX, Reference, open_dataset, pin_revision
from webtext.base.inputs.identity import (
    HELD_OUT,
    named_split,
    record_id,
    record_split,
    unicode_string,
    unix_seconds,
    whole_number,
)
from webtext.base.inputs.parquet import checked_row
from webtext.base.inputs.records import records
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.outcomes import check_kept, warn_of_failures
from webtext.base.parts.partset import FILE, PartSet, SourcePart
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import POST
from webtext.base.parts.stage import PartContext, PartTask
from webtext.base.parts.untrusted_parquet import rows_of
from webtext.base.run import Run
from webtext.base.web.urls import canonical_url, library_versions, registrable_domain
from webtext.base.workers.attempt import Failed
from webtext.clean.inputs.unique import UniqueTask, run_unique, unique_posts
from webtext.clean.language import detect_language
from webtext.clean.reasons import TOO_MANY_BYTES, Dropped, Refused
from webtext.clean.text.clean_text import clean_text, is_longer
from webtext.clean.text.scrub import scrub

CODE_VERSION = 6  # 6: "" is no URL; 5: line ends, encodings, times in smaller units
TEXT = "text"
KNOWN = ("id", "url", TEXT, "title", "author", "published", "date", "karma", "split", "posts")
DATASET = "huggingface"  # a kind of source in the manifest, beside FILE
TEXTS_BYTES = 32 << 20  # of text files on disk that make a part
DATASET_BATCH_ROWS = 16  # small, since each row may be large


@dataclass(frozen=True, slots=True)
class FilesOrigin:
    """One file of records, or some text files; each with the SHA-256 of its bytes.

    An origin is the input of one part: `sources` as the manifest names them, and the rows. `place` is a permanent
    name that makes ids with the row number.
    """

    files: tuple[tuple[InputFile, str], ...]
    place = ""  # rows have an id

    @property
    def sources(self) -> tuple[SourcePart, ...]:
        """The files' names and hashes."""
        return tuple(SourcePart(FILE, file.name, sha256) for file, sha256 in self.files)

    def rows(self) -> Iterator[dict[str, Any] | Refused]:
        """Yield the files' records."""
        for file, sha256 in self.files:
            for row, found in enumerate(records(file, KNOWN, TEXT)):
                yield found if isinstance(found, Refused) else found | {"id": record_id(found.get("id"), sha256, row)}

    def name(self, row: int) -> str:
        """Return the name of a row in the list of failures; a text file is one row."""
        return f"row {row}" if len(self.files) == 1 else self.files[row][0].name


@dataclass(frozen=True, slots=True)
class DatasetOrigin:
    """One shard of one split of a dataset. `split` applies to rows that don't state a split; None if ids decide."""

    reference: Reference
    split_name: str
    shard: int
    n_shards: int
    split: str | None

    @classmethod
    def all_of(cls, text: str) -> list[DatasetOrigin]:
        """Return every shard of every split of `huggingface:NAME[[:CONFIG]:COLUMN][@REVISION]`.

        COLUMN defaults to `text`. Every split but `train` is held out. If there is only `train`, `split_of` decides.
        """
        reference = pin_revision(text, TEXT)
        splits = open_dataset(reference)[0]
        holds_out = any(named_split(name) == HELD_OUT for name in splits)
        return [
            cls(reference, name, shard, rows.num_shards, named_split(name) if holds_out else None)
            for name, rows in splits.items()
            for shard in range(rows.num_shards)
        ]

    @property
    def sources(self) -> tuple[SourcePart, ...]:
        """The pinned reference and split, and the shard."""
        shard = f"{self.shard} of {self.n_shards} as {self.split}"
        return (SourcePart(DATASET, f"{self.reference} {self.split_name}", shard),)

    @property
    def place(self) -> str:
        """The pinned reference, split and shard."""
        return f"{self.reference} {self.split_name} {self.shard} of {self.n_shards}"

    def rows(self) -> Iterator[dict[str, Any] | Refused]:
        """Stream the rows of the shard. Raises InputError if they cannot be read."""
        rows = open_dataset(self.reference)[0][self.split_name].shard(self.n_shards, self.shard)
        columns = {name: name for name in rows.column_names or KNOWN if name in KNOWN} | {TEXT: self.reference.column}
        try:
            for batch in rows.with_format("arrow").iter(DATASET_BATCH_ROWS):
                names = [name for name, theirs in columns.items() if theirs in batch.column_names]
                found = batch.select([columns[name] for name in names]).rename_columns(names)
                for row in map(checked_row, rows_of(found)):
                    if isinstance(row, dict) and (self.split == HELD_OUT or row.get("split") in (None, "")):
                        row["split"] = self.split
                    yield row
        except MemoryError:
            raise  # the engine handles it
        except Exception as error:  # datasets raises many kinds, for the network and for files
            raise InputError(
                f"shard {self.shard} of '{self.reference}', split '{self.split_name}', cannot be read: "
                f"{type(error).__name__}: {one_line(error)}",
                "check the network and the files, then rerun the same command",
            ) from None

    def name(self, row: int) -> str:
        """Return the name of a row in the list of failures."""
        return f"row {row}"


Origin = FilesOrigin | DatasetOrigin


Row = tuple[int, dict[str, Any] | Refused]  # its number, and its values or why it has none


def find_documents(inputs: Sequence[str], run: Run, encoding: str = UTF_8) -> PartSet | list[Origin]:
    """Return the one part set of documents that `inputs` name, or the origins to import: files in order, then datasets.

    Raises InputError if a part set is given together with anything else.
    """
    datasets = [name for name in inputs if name.startswith(PREFIX)]
    others = [name for name in inputs if not name.startswith(PREFIX)]
    sets, files = list[PartSet](), list[InputFile]()
    if others or not datasets:
        sets, files = find_inputs(others, DOCUMENTS, DOCUMENT_SUFFIXES, may_be_empty=True, encoding=encoding)
    if len(sets) == 1 and not files and not datasets:
        return sets[0]
    if sets:
        raise InputError(
            f"{len(inputs)} inputs, of which {len(sets)} are part sets",
            "name one part set of documents, or files and datasets only",
        )
    groups = groups_of(zip(files, hash_files(files, run), strict=True), lambda each: _size(each[0]), TEXTS_BYTES)
    found: list[Origin] = [FilesOrigin(tuple(group)) for group in groups]
    for name in datasets:
        found += DatasetOrigin.all_of(name)
    return found


def _size(file: InputFile) -> int:
    return file.folder.size(file.name) if file.kind == TEXT_FILE else TEXTS_BYTES + 1


def import_documents(
    origins: Sequence[Origin], out: str, run: Run, *, scrubs: bool = False, encoding: str = UTF_8
) -> PartSet:
    """Write the documents set `out` from the origins, one part each, in order; warn of rows that failed."""
    made = run_unique(
        _import_part,
        [PartTask(index=i, sources=origin.sources, payload=(origin, scrubs)) for i, origin in enumerate(origins)],
        recipe=Recipe(
            stage="clean.import",
            code_version=CODE_VERSION,
            settings={"scrub": scrubs, "encoding": encoding},
            versions={"py3langid": importlib.metadata.version("py3langid")}
            | library_versions()
            | versions_for(encoding),
        ),
        out=out,
        parents=[],
        run=run,
    )
    warn_of_failures(made, run.console)
    check_kept(made)
    return made


def _import_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker."""
    unique: UniqueTask[tuple[Origin, bool]] = task.payload
    (origin, scrubs), writer, seen = unique.task, context.main, set(unique.taken)
    rows = enumerate(enumerate(context.attempt.reading(0, origin.rows(), lost)))
    make = functools.partial(_document, place=origin.place, scrubs=scrubs)
    for row, _, result in context.apply(make, rows, identify=lambda record: origin.name(record[0])):
        if isinstance(result, Refused):
            writer.fail(origin.name(row), result.reason, result.cause)
        elif isinstance(result, Dropped):
            writer.counts.drop(result.reason)
        elif isinstance(result, Failed):
            pass  # counted already
        elif result["id"] in seen:
            writer.fail(origin.name(row), "repeated_id", result["id"])
        else:
            seen.add(result["id"])
            writer.counts.keep()
            writer.write([result])


def _document(record: Row, place: str, scrubs: bool) -> dict[str, Any] | Dropped | Refused:
    row, values = record
    if isinstance(values, Refused):
        return values
    identifier = record_id(values.get("id"), place, row)
    text, url, karma = values.get(TEXT), unicode_string(values.get("url")) or None, values.get("karma")
    split = record_split(values.get("split"), identifier)
    if not isinstance(text, str):
        return Refused("no_text", f"text is {type(text).__name__}")
    if karma is not None and whole_number(karma) is None:
        return Refused("karma_not_integer", f"karma is {karma!r}"[:200])
    if isinstance(split, Refused):
        return split
    text = clean_text(text)
    if not text.strip():
        return Dropped("empty_text")
    stated, n_scrubbed = [clean_text(unicode_string(values.get(name)) or "") for name in ("title", "author")], None
    if scrubs:
        (text, *stated), counts = zip(*(scrub(each) for each in (text, *stated)), strict=True)
        n_scrubbed = sum(counts)
    if any(is_longer(value) for value in (text, *values.values()) if isinstance(value, str)):
        return Dropped(TOO_MANY_BYTES)
    canonical = canonical_url(url) if url else None
    language, score = detect_language(text) or (None, None)
    return {
        "id": identifier,
        "link_ids": [],
        "url": url,
        "text": text,
        "text_digest": text_digest(text),
        "title": stated[0] or None,
        "author": stated[1] or None,
        "published": _moment(values.get("published")),
        "date": _moment(values.get("date")),
        "domain": registrable_domain(canonical) if canonical else None,
        "language": language,
        "language_score": score,
        "karma": whole_number(karma),
        "split": split,
        "n_scrubbed": n_scrubbed,
        "posts": _posts(values.get("posts")),
    }


def _posts(value: Any) -> list[dict[str, Any]]:
    """Return the value's posts if it is a list of posts as defined in `base/parts/schemas.py`, else an empty list."""
    found: list[dict[str, Any]] = []
    for post in value if isinstance(value, list) else ():
        given = post if isinstance(post, dict) else {}
        found.append({field.name: _CONVERTED[field.type](given.get(field.name)) for field in POST})
        if any(found[-1][field.name] is None for field in POST if not field.nullable):
            return []
    return unique_posts(found)


_CONVERTED: Mapping[pa.DataType, Callable[[Any], Any]] = {pa.string(): unicode_string, pa.int64(): whole_number}


def _moment(value: Any) -> int | None:
    """Return the UTC seconds of a number (`unix_seconds`), a date or a string in ISO 8601, by default in UTC.

    >>> _moment("2017-06-01T12:00:00Z"), _moment("2017-06-01"), _moment(1496318400), _moment("last week")
    (1496318400, 1496275200, 1496318400, None)
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, date):
        try:
            return calendar.timegm(value.utctimetuple() if isinstance(value, datetime) else value.timetuple())
        except OverflowError:  # the first day of year 1, east of Greenwich
            return None
    number = whole_number(value)
    return None if number is None else unix_seconds(number)
