"""A release without text: who may not publish texts publishes their ids, addresses, capture places and digests instead.

`write_release` makes it of a build, with the recipes of its documents and its corpus; whoever builds again from the same
links or archives asks `compare_release` how many of the texts came out the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.partset import MANIFEST, PartSet
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import RELEASE, link_id
from webtext.base.stage import PartContext, PartTask, run_parts
from webtext.base.storage import Folder
from webtext.clean.inputs import SetName

CODE_VERSION = 1
KIND = "release"
KEY_DIGITS = 16
"""Hex digits of a digest that are compared: 10^7 texts against as many others match by chance once in 10^5 times."""


@dataclass(frozen=True, slots=True)
class ReleaseTask:
    """One part of the corpus."""

    corpus: SetName
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What became of a release's documents in another build: documents = same_text + other_text + missing."""

    documents: int
    same_text: int  # some document of the build has this very text
    other_text: int  # not so, but some document of the build has its URL
    missing: int
    new_texts: int  # documents of the build whose text the release does not have
    same_recipe: bool

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def write_release(build: str, out: str, run: Run) -> PartSet:
    """Write the corpus of the folder `build` to `out` without texts and titles, row for row.

    The recipe holds those of the corpus and of the documents, where the folder has these. Raises InputError when there
    is no corpus.
    """
    corpus = PartSet.open(Folder(build).location("corpus"), "corpus")
    name = SetName.of(corpus)
    return run_parts(
        _release_part,
        [
            PartTask(index=part.index, sources=(corpus.source(i),), payload=ReleaseTask(name, i))
            for i, part in enumerate(corpus.parts)
        ],
        recipe=Recipe(stage="clean.release", code_version=CODE_VERSION, settings=_recipes(build, corpus)),
        outputs={KIND: (out, KIND)},
        parents=[corpus],
        run=run,
        label="clean.release",
    )[KIND]


def compare_release(release: str, build: str) -> Comparison:
    """How many texts of the part set `release` the corpus in the folder `build` has too.

    Texts are compared by digest, addresses as they stand. Memory: a few numbers for each document.
    """
    published = PartSet.open(release, KIND)
    corpus = PartSet.open(Folder(build).location("corpus"), "corpus")
    texts, urls = _keys(corpus)
    published_texts, published_urls = _keys(published)
    same = np.isin(published_texts, texts)
    other = ~same & (published_urls != 0) & np.isin(published_urls, urls)
    return Comparison(
        documents=published.records,
        same_text=int(same.sum()),
        other_text=int(other.sum()),
        missing=published.records - int((same | other).sum()),
        new_texts=corpus.records - int(np.isin(texts, published_texts).sum()),
        same_recipe=published.recipe["settings"] == _recipes(build, corpus),
    )


def _recipes(build: str, corpus: PartSet) -> dict[str, Any]:
    recipes = {"corpus": corpus.recipe}
    folder = Folder(build).child("documents")
    if folder.exists(MANIFEST):
        documents = PartSet.open(folder.url, "documents")
        if documents.hash in {parent["hash"] for parent in corpus.manifest["parents"]}:
            recipes["documents"] = documents.recipe
    return recipes


def _release_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker."""
    corpus = task.payload.corpus.open()
    for batch in corpus.batches(task.payload.part, RELEASE.names):
        context.main.write_table(pa.Table.from_batches([batch]).select(RELEASE.names))


def _keys(opened: PartSet) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """A number for each row's text, and one for its URL: 0 where there is none."""
    texts = np.empty(opened.records, np.uint64)
    urls = np.empty(opened.records, np.uint64)
    for row, (digest, url) in enumerate(_rows(opened)):
        texts[row] = int(digest[:KEY_DIGITS], 16)
        urls[row] = 0 if url is None else int(link_id(url)[:KEY_DIGITS], 16)
    return texts, urls


def _rows(opened: PartSet) -> Iterator[tuple[str, str | None]]:
    for part in opened.parts:
        for batch in opened.batches(part, ["text_digest", "url"]):
            yield from zip(batch["text_digest"].to_pylist(), batch["url"].to_pylist(), strict=True)
