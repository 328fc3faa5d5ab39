"""The corpora of `train compare --karma`: views of one build, as if its crawl had asked for more votes.

A view has the training documents whose karma (the highest score of a post) reaches its threshold, and the held-out
documents that reach the lowest threshold, so all models are measured on the same ones. It is a token set, whose documents
are copied in their order. Duplicates were removed from all documents together; as the one with most karma is kept, a view
has what a crawl with its threshold would have kept, unless near-duplicates formed other clusters without the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from webtext.base.console import counted
from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.lineage import parents_of
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.shards import TokenShards
from webtext.shards.format import shard_place
from webtext.shards.writing.token_part import TokenPartWriter, Vocabulary
from webtext.train.data.sources import open_sources
from webtext.train.experiments.corpora import Corpus, open_corpus

CODE_VERSION = 1
TOO_LITTLE_KARMA, UNKNOWN_KARMA = "too_little_karma", "unknown_karma"


def karma_views(builds: Sequence[str], thresholds: str, out: str, tokenizer: str | None, run: Run) -> list[Corpus]:
    """Return a corpus for each threshold (`1,3,10`), packed in out/views unless it is there already.

    ConfigError for thresholds that don't rise from 1 or more, and for several builds. InputError for a build without
    karma or whose crawl asked for more, and for a threshold that no document reaches or that changes nothing.
    """
    wanted = [int(each) if each.strip().isdecimal() else 0 for each in thresholds.split(",")]
    if len(wanted) < 2 or wanted != sorted(set(wanted)) or wanted[0] < 1:
        raise ConfigError(f"--karma {thresholds}", "give two or more numbers that rise from 1 or more, e.g. 1,3,10")
    if len(builds) != 1:
        raise ConfigError(f"--karma with {counted(len(builds), 'corpus', 'corpora')}", "name one build")
    build = open_corpus(builds[0], tokenizer)
    name, tokens = build.source.name, build.source.train.set
    corpus = next((each for each in parents_of(tokens) if each.kind in ("corpus", "documents")), None)
    if corpus is None:
        raise InputError(f"'{name}' has no corpus that it was packed from, so karma is unknown", "name a build")
    now = {(part.name, part.record_digest) for part in corpus.parts}
    if any((part.sources[0].part, part.sources[0].record_digest) not in now for part in tokens.parts):
        raise InputError(f"'{corpus.folder.url}' changed since '{name}' was packed from it", "pack it again")
    _check_crawl(corpus, wanted[0])
    views: list[Corpus] = []
    for least in wanted:
        reached, label = {"train": least, "validation": wanted[0]}, f"karma {least}"
        settings = tokens.recipe["settings"] | {"min_karma": reached}
        payload = SetName.of(tokens), SetName.of(corpus), reached
        tasks = [
            PartTask(index=each.index, sources=(tokens.source(each), *each.sources), payload=payload)
            for each in tokens.parts
        ]
        place = Folder(out).location(f"views/karma-{least}")
        recipe = Recipe(stage="train.compare", code_version=CODE_VERSION, settings=settings)
        run_parts(
            _copy_part, tasks, recipe=recipe, outputs={"tokens": (place, "tokens")}, parents=[tokens, corpus], run=run,
            label=label,
        )  # fmt: skip
        views.append(Corpus(label, open_sources(place)[0], build.tokenizer, least))
        n, *before = (view.source.train.n_documents for view in reversed(views))
        if n in (0, *before):
            found = f"{counted(n, 'training document')} of '{name}' reach karma {least:,}"
            same = "leave it out: the threshold before it has the same ones"
            raise InputError(found, same if n else "name a build of links with votes")
    return views


def _check_crawl(corpus: PartSet, lowest: int) -> None:
    """Raise InputError if the crawl or [clean.votes] asked for more than `lowest`, or counted only some posts."""
    made_by = [corpus]
    for each in made_by:
        made_by += parents_of(each)
    rules: list[dict[str, Any]] = [each.recipe["settings"].get("votes", {}) for each in made_by]
    if any(rule.get("before") or rule.get("communities") for rule in rules):
        raise InputError(
            f"'{corpus.folder.url}' counts only some posts ([clean.votes] before, communities)",
            "make a build for each threshold ([clean.votes] min_karma), and compare the builds",
        )
    rules += [each.recipe["settings"] for each in made_by if each.kind == "links"]
    least = max(rule.get("min_karma") or 0 for rule in rules)
    if lowest < least:
        raise InputError(
            f"'{corpus.folder.url}' was made with min_karma {least}: links below it were never crawled, or were dropped",
            f"begin --karma with {least} or more, or make a build with a lower [crawl.links] min_karma",
        )


def _copy_part(context: PartContext, task: PartTask) -> None:
    tokens_name, corpus_name, reached = task.payload  # karma that the documents of a split reach
    tokens, corpus, writer = tokens_name.open(), corpus_name.open(), context.output("tokens")
    packed_from = next(each for each in tokens.parts if each.index == task.index).sources[0].part
    documents = next(each for each in corpus.parts if each.name == packed_from)
    karma = np.asarray(corpus.table(documents, ["karma"])["karma"].to_numpy(), np.float64)  # NaN if unknown
    facts: dict[str, Any] = tokens.recipe["settings"]
    vocabulary = Vocabulary(facts["vocab_size"], facts["eot_id"], facts["tokenizer_hash"])
    with TokenPartWriter(writer, vocabulary, facts.get("shard_tokens", sys.maxsize)) as packed:
        for split, least in reached.items():
            shards = TokenShards(tokens_name.url, split)
            for i, name in enumerate(shards.names):
                if (shard_place(name) or ())[:2] != (split, task.index):
                    continue
                for number in range(shards.headers[i].n_documents):
                    found = shards.document_of(i, number)
                    if not karma[found.row] >= least:
                        writer.counts.drop(UNKNOWN_KARMA if np.isnan(karma[found.row]) else TOO_LITTLE_KARMA)
                        continue
                    packed.add(split, found.tokens[1:], id=found.id, source_part=found.source_part, row=found.row)
                context.note_progress()
