"""The documents to pack: a part of a corpus, or input files in their order, as many as make a part of some size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webtext.base.errors import InputError
from webtext.base.inputs.files import (
    DOCUMENT_SUFFIXES,
    DOCUMENTS,
    InputFile,
    Refused,
    find_inputs,
    groups_of,
    hash_files,
    lost,
    short_names,
)
from webtext.base.inputs.identity import record_id, record_split
from webtext.base.inputs.records import records
from webtext.base.parts.partset import FILE, PartSet, SetName, SourcePart
from webtext.base.parts.stage import PartContext, PartTask
from webtext.base.run import Run
from webtext.shards.format import SPLITS
from webtext.shards.settings import FileSettings
from webtext.shards.writing.token_part import BATCH_ROWS

MAX_ID_CHARACTERS = 4096
PART_BYTES = 32 << 20  # of files on disk: many small files don't make as many parts, a larger one is a part of its own


@dataclass(frozen=True, slots=True)
class Document:
    """One document: `text`, or why it has none, and its row in a corpus part or its record in a file."""

    id: str
    split: str
    text: str | Refused
    source_part: str
    row: int


def find_parts(inputs: Sequence[str], settings: FileSettings, run: Run) -> tuple[list[PartSet], list[PartTask]]:
    """Return the part set that `inputs` name, if it isn't files, and a task for each part, whose payload has documents.

    Workers read every file for its SHA-256. Raises InputError if a part set is given together with anything else.
    """
    encoding = settings.encoding
    sets, files = find_inputs(inputs, DOCUMENTS, DOCUMENT_SUFFIXES, may_be_empty=True, encoding=encoding)
    if sets and len(inputs) > 1:
        raise InputError(
            f"{len(inputs)} inputs, of which {len(sets)} are part sets", "name one part set of documents, or files only"
        )
    for corpus in sets:
        return sets, [replace(task, payload=CorpusPart(*task.payload)) for task in PartTask.for_each(corpus)]
    files = list({file.location: file for file in files}.values())
    versions = [file.version for file in files]
    named = zip(short_names([file.location for file in files]), hash_files(files, run), strict=True)
    found = zip(files, (SourcePart(FILE, name, sha256) for name, sha256 in named), versions, strict=True)
    groups = groups_of(found, lambda each: each[0].folder.size(each[0].name), PART_BYTES)
    tasks = [
        PartTask(index=index, sources=tuple(source for _, source, _ in group), payload=FilePart(tuple(group), settings))
        for index, group in enumerate(groups)
    ]
    return [], tasks


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """A part of a part set, by its place among the parts."""

    corpus: SetName
    place: int

    def documents(self, _: PartContext) -> Iterator[tuple[int, Document]]:
        """Yield (row, document) in order. Raises InputError for one of an unknown split."""
        corpus = self.corpus.open()
        part, row = corpus.part(self.place), 0
        for batch in corpus.batches(part, columns=["id", "text", "split"], batch_size=BATCH_ROWS):
            for found in batch.to_pylist():
                if found["split"] not in SPLITS:
                    raise InputError(
                        f"document {found['id']} in '{corpus.folder.location(part.name)}' has split '{found['split']}'",
                        f"expected {' or '.join(SPLITS)}",
                    )
                yield row, Document(source_part=part.name, row=row, **found)
                row += 1


@dataclass(frozen=True, slots=True)
class FilePart:
    """Consecutive files, each with its name and SHA-256, and its version before that was computed; how they are read."""

    files: tuple[tuple[InputFile, SourcePart, str], ...]
    settings: FileSettings

    def documents(self, context: PartContext) -> Iterator[tuple[int, Document]]:
        """Yield (position, document) in order. Raises InputError if a file has changed since it was found.

        A position is the file's number and the record's: so it stays when an earlier file is set aside.
        """
        field, separator = self.settings.text_field, (self.settings.separator or "").replace("\\n", "\n")
        for number, (file, source, version) in enumerate(self.files):
            found = records(file, ("id", "split", field), field, separator)
            for row, record in enumerate(context.attempt.reading(number, found, lost)):
                yield number << 32 | row, _document(record, source, row, self.settings)
            file.check_unchanged(version, source.record_digest)


def _document(record: dict[str, Any] | Refused, source: SourcePart, row: int, settings: FileSettings) -> Document:
    """Return the document of a record; a bad record has the name of its place instead of an id."""
    if not isinstance(record, Refused):
        identifier = record_id(record.get("id"), source.record_digest, row)
        split = record_split(record.get("split"), identifier, settings.validation_ratio)
        if len(identifier) > MAX_ID_CHARACTERS:
            record = Refused("id_too_long", f"an id of {len(identifier):,} characters")
        elif isinstance(split, Refused):
            record = split
        else:
            return Document(identifier, split, record[settings.text_field], source.part, row)
    return Document(f"{source.part}:{row}", "", record, source.part, row)
