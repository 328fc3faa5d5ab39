"""A release is a corpus without its texts: ids, URLs, capture locations and digests, from which others can rebuild it.

    DIR/release/       row for row the corpus without texts, titles and authors; its recipe contains those of documents
                       and corpus
    DIR/links/         the links of the build that led to the documents, for `crawl fetch`; a document without such a link
                       (imported, or from another crawler's WARC) has one made from its URL, karma, date and split. The
                       recipe has the settings of the build's links, because they decide where a redirect may lead;
                       without links, it may lead anywhere.
    DIR/recipe.toml    the settings, for `clean run --config`

`compare_release` counts how many texts of a release a rebuilt corpus contains.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.parts.digest import Keys, link_keys
from webtext.base.parts.identifiers import link_id, link_key
from webtext.base.parts.partset import MANIFEST, PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.schemas import RELEASE
from webtext.base.parts.stage import PartContext, PartTask, SetWriter, make_set
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.web.urls import canonical_url, registrable_domain
from webtext.base.workers.attempt import Attempt, Failed
from webtext.clean.removals import collected_links

CODE_VERSION = 1
KIND = "release"
ANYWHERE = {"keep_links_back": True, "keep_wikipedia": True}
RECIPE = "recipe.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How a release's documents compare with another build: documents = same_text + other_text + missing."""

    documents: int
    same_text: int  # some document of the build has this text
    other_text: int  # no document of the build has this text, but one has its URL
    missing: int
    new_texts: int  # documents of the build whose text is not in the release
    same_recipe: bool


def write_release(build: str, out: str, run: Run) -> PartSet:
    """Write the release of the folder `build` to `out` and return it. Raises InputError if there is no corpus."""
    corpus = PartSet.open(Folder(build).location("corpus"), "corpus")
    recipes, folder, tasks = _recipes(build, corpus), Folder(out), PartTask.for_each(corpus)
    recipe = Recipe(stage="clean.release", code_version=CODE_VERSION, settings=recipes)
    for kind in (KIND, corpus.kind):  # first: else the links of another release, or of a build, would be written
        SetWriter(folder.location(kind), kind, recipe, [corpus]).check_place(run.replaces)
    write_links(build, corpus, folder.location("links"), run)
    released = make_set(_release_part, tasks, folder.location(KIND), KIND, recipe, [corpus], run)
    if not run.dry_run:
        _write_recipe(folder, recipes)
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
        lines += ["", f"[clean.{name}]"]
        for key, value in sorted(settings.items()):  # evaluation sets are files, whose places only their users know
            # for every type of setting but None, JSON is TOML
            toml = json.dumps("none" if value is None else value, ensure_ascii=False)
            lines.append(f"{'# ' if key == 'against' else ''}{key} = {toml}")
    folder.write_bytes(RECIPE, ("\n".join(lines) + "\n").encode())


def _release_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker."""
    name, part = task.payload
    batches = name.open().batches(part, RELEASE.names)
    for _, rows in context.apply_to_batches(lambda batch: batch.select(RELEASE.names), batches):
        if not isinstance(rows, Failed):  # counted already
            context.main.counts.keep(rows.num_rows)
            context.main.write_table(pa.Table.from_batches([rows]))


def _keys(opened: PartSet) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return a number for each row's text, and one for its URL (0 without a URL).

    With 64 bits of a digest, 10^7 texts and 10^7 others have a false match with a chance of 1 in 10^5.
    """
    batches = (batch for part in opened.parts for batch in opened.batches(part, ["text_digest", "url"]))
    rows = (row.values() for batch in batches for row in batch.to_pylist())
    keys = ((link_key(digest), 0 if url is None else link_key(link_id(url))) for digest, url in rows)
    found = np.fromiter(keys, "u8, u8", opened.records)
    return found["f0"], found["f1"]


def write_links(build: str, corpus: PartSet, out: str, run: Run) -> PartSet:
    """Write the links set `out` of the corpus in the folder `build`. Memory: 16 bytes per link of the corpus."""
    place = Folder(build).child("links")
    links = PartSet.open(place.url, "links") if place.exists(MANIFEST) else None
    name, links_name = SetName.of(corpus), SetName.of(links) if links is not None else None
    tasks: list[tuple[Any, Any]] = []
    if links is not None:
        tasks += [(links.source(part), (name, links_name, part, False)) for part in range(len(links.parts))]
    parts = [(name, links_name, part) for part in range(len(corpus.parts))]
    for part, needed in enumerate(run.map(_has_unlinked, parts, "clean.release: compare links")):
        if links_name is None or needed:
            tasks.append((corpus.source(part), (name, links_name, part, True)))
    settings: Mapping[str, Any] = links.recipe["settings"] if links is not None else ANYWHERE
    recipe = Recipe(stage="clean.release", code_version=CODE_VERSION, settings=settings)
    made = [
        PartTask(index=i, sources=(source,), payload=task, depends=corpus.hash)
        for i, (source, task) in enumerate(tasks)
    ]
    parents = [corpus] if links is None else [corpus, links]
    return make_set(_links_part, made, out, "links", recipe, parents, run, "clean.release: links")


def _links_part(context: PartContext, task: PartTask) -> None:
    """Make a part of the build's links, or with `of_corpus` of the corpus; runs in the worker."""
    corpus, links, part, of_corpus = task.payload
    if of_corpus:
        context.main.write(list({row["link_id"]: row for row in _unlinked(corpus, links, part)}.values()))
        return
    for batch in links.open().batches(part):
        mine = np.isin(link_keys(batch["link_id"]), _known_links(corpus, links))
        context.main.write_table(pa.Table.from_batches([batch.filter(pa.array(mine))]))


def _has_unlinked(_: Attempt, task: tuple[SetName, SetName | None, int]) -> bool:
    """Return whether a part has a document that no link of the set led to; in a worker."""
    return next(_unlinked(*task), None) is not None


def _unlinked(corpus: SetName, links: SetName | None, part: int) -> Iterator[dict[str, Any]]:
    """Yield a link for each document of a part that no link of the set led to; documents without a URL are skipped."""
    known = _known_links(corpus, links) if links is not None else np.empty(0, np.uint64)
    for batch in corpus.open().batches(part, ["link_ids", "url", "karma", "date", "split"]):
        for row in batch.to_pylist():
            url = canonical_url(row["url"]) if row["url"] else None
            if url is not None and not np.isin([link_key(each) for each in row["link_ids"]], known).any():
                yield {
                    "link_id": link_id(url),
                    "url": url,
                    "url_raw": row["url"],
                    "domain": registrable_domain(url),
                    "karma": row["karma"] or 0,
                    "karma_sum": row["karma"] or 0,
                    "first_created": row["date"] or 0,
                    "posts": [],
                    "split": row["split"],
                }


@functools.lru_cache(maxsize=1)
def _known_links(corpus: SetName, links: SetName) -> Keys:
    """Return the keys of the links that led to documents and are in the links set."""
    opened = corpus.open()
    return collected_links(links, opened, range(len(opened.parts)))
