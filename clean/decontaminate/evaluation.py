"""Evaluation sets: files of examples, and the n-grams of these examples.

Each record of a Parquet, JSON or CSV file is an example. Any other file is one running text and a single example, like the
test sets of Radford et al.'s Table 6. A set that can't be read completely raises InputError, because a gap would hide
overlap with the corpus.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import realpath

import numpy as np
import numpy.typing as npt

from webtext.base.errors import ConfigError, InputError
from webtext.base.inputs.files import DOCUMENT_SUFFIXES, InputFile, Refused, find_inputs, short_names
from webtext.base.inputs.records import records
from webtext.base.parts.outcomes import UNSETTLED
from webtext.base.parts.partset import MANIFEST
from webtext.base.storage import Folder
from webtext.clean import _ngrams

FIELD = "text"
SUFFIXES = (*DOCUMENT_SUFFIXES, ".tokens")
"""Suffixes of the files taken from a folder; a file that is named itself may have any suffix."""


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """One evaluation set: its file, the field with the text, its name in reports, and the file's hash and version."""

    name: str
    file: InputFile
    field: str
    sha256: str
    version: str

    def about(self) -> dict[str, str]:
        """Return the set's entry in a recipe."""
        return {"name": self.name, "field": self.field, "sha256": self.sha256}

    def examples(self) -> Iterator[bytes]:
        """Yield the texts in UTF-8, in the file's order. Empty texts are included; empty lines of JSONL are skipped."""
        self.file.check_unchanged(self.version, self.sha256)
        for number, row in enumerate(records(self.file, (self.field,), self.field), 1):
            if isinstance(row, Refused):
                if row.reason in UNSETTLED:
                    raise InputError(row.cause, UNSETTLED[row.reason])
                raise InputError(
                    f"'{self.file.location}', example {number}: {row.cause}",
                    f"correct that example, or name another field: {self.file.name}#FIELD",
                )
            yield row[self.field].encode(errors="replace")


def evaluation_sets(against: Sequence[str]) -> tuple[EvaluationSet, ...]:
    """Return the sets that `against` names (each FILE or FILE#FIELD; a file, folder or pattern), sorted by name.

    A set has the name of its file, with as many folders before it as needed to be unique. A file that is named twice is
    one set. Raises ConfigError if `against` is empty.
    """
    if not against:
        raise ConfigError("no evaluation set given", "name one or more: --against FILE")
    found: dict[tuple[str, str], InputFile] = {}
    for given in against:
        place, _, field = given.partition("#")
        if Folder(place).exists(MANIFEST):
            raise InputError(f"'{place}' is a part set, not an evaluation set", f"name its files: '{place}/*.parquet'")
        for file in find_inputs([place], "evaluation", SUFFIXES)[1]:
            found.setdefault((realpath(file.location), field or FIELD), file)
    names = short_names([each.location + f"#{field}" * (field != FIELD) for (_, field), each in found.items()])
    sets = [
        EvaluationSet(name, file, field, version=file.version, sha256=file.sha256())
        for name, ((_, field), file) in zip(names, found.items(), strict=True)
    ]
    return tuple(sorted(sets, key=lambda each: (each.name, each.sha256)))


class Examples:
    """The n-grams of all examples of all sets, numbered, and the examples in which they occur."""

    def __init__(self, sets: Sequence[EvaluationSet], n: int) -> None:
        self.names = [each.name for each in sets]
        self.table = _ngrams.Table(n)
        added, set_of = [], []
        for number, each in enumerate(sets):
            for text in each.examples():
                added.append(self.table.add(text))
                set_of.append(number)
        self.ends = np.cumsum([0, *map(len, added)])
        """The n-grams of example i are numbers[ends[i]:ends[i + 1]]."""
        self.numbers: npt.NDArray[np.int64] = np.concatenate([np.empty(0, np.int64), *added])
        self.set_of = np.array(set_of, np.int64)
        """The number of each example's set."""

    @functools.cached_property
    def in_sets(self) -> npt.NDArray[np.bool_]:
        """Bool [sets, n-grams]: the sets in which each n-gram occurs."""
        held = np.zeros((len(self.names), len(self.table)), bool)
        held[np.repeat(self.set_of, np.diff(self.ends)), self.numbers] = True
        return held

    def place_of(self, ngram: int) -> str:
        """Return the example in which an n-gram first occurs as NAME:NUMBER, counted from 1 within its set."""
        example = int(np.searchsorted(self.ends, self._firsts[ngram], side="right")) - 1
        owner = int(self.set_of[example])
        return f"{self.names[owner]}:{example - int(np.searchsorted(self.set_of, owner)) + 1}"

    @functools.cached_property
    def _firsts(self) -> npt.NDArray[np.int64]:
        """The index into `numbers` of each n-gram's first occurrence."""
        return np.unique(self.numbers, return_index=True)[1]


@functools.lru_cache(maxsize=2)
def examples_of(sets: tuple[EvaluationSet, ...], n: int) -> Examples:
    """Return the n-grams of the sets' examples; cached, so that a process reads the sets only once."""
    return Examples(sets, n)
