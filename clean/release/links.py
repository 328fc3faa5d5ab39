"""The links of a release: a links set with which `crawl fetch` fetches the corpus again.

It contains the links of the build's links set that led to a document of the corpus, unchanged. For a document without
such a link (imported, or from another crawler's WARC) it contains one made from its URL, karma, date and split. The
recipe has the settings of the build's links, because they decide where a redirect may lead; without links, it may lead
anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import MANIFEST, PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.web.urls import canonical_url, registrable_domain
from webtext.clean.text.arrays import Keys, link_key, link_keys

CODE_VERSION = 1
ANYWHERE = {"keep_links_back": True, "keep_wikipedia": True}


@dataclass(frozen=True, slots=True)
class LinksTask:
    """One part of the build's links, or with `of_corpus` of the corpus."""

    corpus: SetName
    links: SetName | None
    part: int
    of_corpus: bool


def write_links(build: str, corpus: PartSet, out: str, run: Run) -> PartSet:
    """Write the links set `out` of the corpus in the folder `build`. Memory: 16 bytes per link of the corpus."""
    links = (
        PartSet.open(Folder(build).location("links"), "links") if Folder(build).exists(f"links/{MANIFEST}") else None
    )
    name, links_name = SetName.of(corpus), SetName.of(links) if links is not None else None
    tasks = []
    for part in range(len(links.parts) if links is not None else 0):
        assert links is not None
        tasks.append((links.source(part), LinksTask(name, links_name, part, of_corpus=False)))
    for part in range(len(corpus.parts)):
        if links_name is None or next(_unlinked(name, links_name, part), None) is not None:
            tasks.append((corpus.source(part), LinksTask(name, links_name, part, of_corpus=True)))
    settings: Mapping[str, Any] = links.recipe["settings"] if links is not None else ANYWHERE
    return run_parts(
        _links_part,
        [
            PartTask(index=i, sources=(source,), payload=task, depends=corpus.hash)
            for i, (source, task) in enumerate(tasks)
        ],
        recipe=Recipe(stage="clean.release", code_version=CODE_VERSION, settings=settings),
        outputs={"links": (out, "links")},
        parents=[corpus] if links is None else [corpus, links],
        run=run,
        label="clean.release: links",
    )["links"]


def _links_part(context: PartContext, task: PartTask) -> None:
    """Runs in the worker."""
    work: LinksTask = task.payload
    if work.of_corpus:
        context.main.write(
            list({row["link_id"]: row for row in _unlinked(work.corpus, work.links, work.part)}.values())
        )
        return
    assert work.links is not None
    for batch in work.links.open().batches(work.part):
        mine = np.isin(link_keys(batch["link_id"]), _links_of(work.corpus))
        context.main.write_table(pa.Table.from_batches([batch.filter(pa.array(mine))]))


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
def _links_of(corpus: SetName) -> Keys:
    """Return the keys of the links that led to documents, sorted."""
    opened = corpus.open()
    found = [np.empty(0, np.uint64)]
    for part in opened.parts:
        found += [link_keys(batch["link_ids"].flatten()) for batch in opened.batches(part, ["link_ids"])]
    return np.unique(np.concatenate(found))


@functools.lru_cache(maxsize=1)
def _known_links(corpus: SetName, links: SetName) -> Keys:
    """Return the keys of the links that led to documents and are in the links set, sorted."""
    opened, wanted = links.open(), _links_of(corpus)
    found = [np.empty(0, np.uint64)]
    for part in opened.parts:
        found.append(np.intersect1d(link_keys(opened.table(part, ["link_id"])["link_id"]), wanted))
    return np.unique(np.concatenate(found))
