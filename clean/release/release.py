"""A release is a corpus without its texts: ids, URLs, capture locations and digests, from which others can rebuild it.

    DIR/release/       row for row the corpus without texts, titles and authors; its recipe contains those of documents
                       and corpus
    DIR/links/         the links that led to the documents, for `crawl fetch`
    DIR/recipe.toml    the settings, for `clean run --config`

`compare_release` counts how many texts of a release a rebuilt corpus contains.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import MANIFEST, PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import RELEASE
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.journal import Failed
from webtext.clean.release.links import write_links

CODE_VERSION = 1
KIND = "release"
RECIPE = "recipe.toml"
KEY_DIGITS = 16
"""Hex digits of a digest that are compared: for 10^7 texts and 10^7 others, a false match has a chance of 1 in 10^5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How a release's documents compare with another build: documents = same_text + other_text + missing."""

    documents: int
    same_text: int  # some document of the build has this text
    other_text: int  # no document of the build has this text, but one has its URL
    missing: int
    new_texts: int  # documents of the build whose text is not in the release
    same_recipe: bool

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def write_release(build: str, out: str, run: Run) -> PartSet:
    """Write the release of the folder `build` to `out` and return it. Raises InputError if there is no corpus."""
    corpus = PartSet.open(Folder(build).location("corpus"), "corpus")
    name = SetName.of(corpus)
    write_links(build, corpus, Folder(out).location("links"), run)
    recipes = _recipes(build, corpus)
    released = run_parts(
        _release_part,
        [
            PartTask(index=part.index, sources=(corpus.source(i),), payload=(name, i))
            for i, part in enumerate(corpus.parts)
        ],
        recipe=Recipe(stage="clean.release", code_version=CODE_VERSION, settings=recipes),
        outputs={KIND: (Folder(out).location(KIND), KIND)},
        parents=[corpus],
        run=run,
        label="clean.release",
    )[KIND]
    if not run.dry_run:
        _write_recipe(Folder(out), recipes)
    return released


def compare_release(release: str, build: str) -> Comparison:
    """Count how many texts of the release in the folder `release` are in the corpus in the folder `build`.

    Texts are compared by digest, URLs as written. Memory: a few numbers per document.
    """
    published = PartSet.open(Folder(release).location(KIND), KIND)
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


def _write_recipe(folder: Folder, recipes: dict[str, Any]) -> None:
    """Write the settings as the sections of a config file; equal recipes produce equal bytes."""
    documents = recipes.get("documents", {})
    sections = {"extract": documents["settings"]} if documents.get("stage") == "clean.extract" else {}
    sections |= {name: each for name, each in recipes["corpus"]["settings"].items() if isinstance(each, dict)}
    lines = ["# The settings of this corpus: webtext clean run PAGES --out DIR --config recipe.toml"]
    for name, settings in sections.items():
        lines += ["", f"[clean.{name}]", *(f"{key} = {_toml(value)}" for key, value in sorted(settings.items()))]
    folder.write_bytes(RECIPE, ("\n".join(lines) + "\n").encode())


def _toml(value: Any) -> str:
    """Return a setting's value in TOML: for every type of setting but None, JSON is TOML."""
    return '"none"' if value is None else json.dumps(value, ensure_ascii=False)


def _release_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker."""
    name, part = task.payload
    batches = name.open().batches(part, RELEASE.names)
    for _, rows in context.apply_to_batches(lambda batch: batch.select(RELEASE.names), batches):
        if not isinstance(rows, Failed):  # counted already
            context.main.counts.keep(rows.num_rows)
            context.main.write_table(pa.Table.from_batches([rows]))


def _keys(opened: PartSet) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return a number for each row's text, and one for its URL (0 without a URL)."""
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
