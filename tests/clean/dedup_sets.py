"""Documents for tests of dedup, and part sets of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import part_sets

from webtext.base.console import Console
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.base.workers.attempt import Attempt
from webtext.clean.dedup.find import Duplicates
from webtext.clean.dedup.index import keep_index
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import sign_documents


def document(
    id_: str, text: str, karma: int | None = None, date: int | None = None, split: str = "train"
) -> dict[str, Any]:
    return part_sets.document(id_, text, split) | {"karma": karma, "date": date}


def write_set(folder: Any, documents: list[dict[str, Any]], n_parts: int = 1) -> PartSet:
    return part_sets.made_set(folder, "documents", [documents[index::n_parts] for index in range(n_parts)])


@dataclass(frozen=True)
class Rows:
    """Which rows of a part to compare."""

    passing: tuple[bool, ...]

    @property
    def digest(self) -> str:
        return str(self.passing)

    def mask(self) -> np.ndarray:
        return np.array(self.passing)


class InProcess:
    """An engine that runs tasks in this process, so that a test can change what they look up."""

    workers = 1

    def map(self, function: Any, tasks: Any, *, on_done: Any, **_: Any) -> list[Any]:
        for number, task in enumerate(tasks):
            on_done(number, function(Attempt(), task))
        return []


def in_process() -> Run:
    engine: Any = InProcess()
    return Run(engine, Console("quiet"))


def index_of(corpus: PartSet, url: Any, settings: DedupSettings, run: Run) -> PartSet:
    """The index of a corpus whose documents were all kept."""
    return keep_index(corpus, sign_documents(corpus, f"{url}-signatures", run), str(url), run)


def by_id(documents: PartSet, found: Duplicates) -> dict[str, tuple[str, str, float]]:
    """id -> (reason, duplicate_of, similarity) of each dropped document."""
    result = {}
    for part in range(len(documents.parts)):
        ids = documents.table(part, ["id"])["id"].to_pylist()
        for row in found.rows.open().table(part).to_pylist():
            result[ids[row["row"]]] = (row["reason"], row["duplicate_of"], row["similarity"])
    return result


def prose(seed: int, n_words: int = 400) -> list[str]:
    source = random.Random(seed)
    return [f"word{source.randrange(10**6)}" for _ in range(n_words)]


def edited(words: list[str], *places: int) -> str:
    """Each edit changes the 5 shingles over it, in both texts: J = (396 - 5 n) / (396 + 5 n) for 400 words."""
    return " ".join(f"other{at}" if at in places else word for at, word in enumerate(words))


def chain(seed: int) -> list[str]:
    """Texts A ~ B ~ C: six edits apart J = 366 / 426 = .86, so A and C, twelve apart, have J = 336 / 456 = .74."""
    words, first, second = prose(seed), range(10, 70, 10), range(70, 130, 10)
    return [edited(words), edited(words, *first), edited(words, *first, *second)]


def corpus(seed: int, n_families: int = 40) -> list[dict[str, Any]]:
    """Families of edited, truncated and copied texts, with ties in karma and date, in both splits."""
    source = random.Random(seed)
    documents = []
    for family in range(n_families):
        words = prose(seed * 1000 + family, source.choice([3, 40, 400]))
        for member in range(source.randrange(1, 7)):
            places = source.sample(range(len(words)), min(len(words), source.choice([0, 0, 1, 5, 12])))
            text = edited(words, *places)
            split = "validation" if source.random() < 0.3 else "train"
            karma = source.choice([None, 3, 4])
            documents.append(document(f"{family}-{member}", text, karma, source.choice([None, 1]), split))
    source.shuffle(documents)
    return documents
