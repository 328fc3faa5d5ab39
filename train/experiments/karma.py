"""The corpora of `train compare --karma`: views of one build, as if its crawl had asked for more votes.

A view has the training documents whose karma reaches its threshold, and the held-out documents that reach the lowest
threshold, so all models are measured on the same ones. It is a token set, whose documents are copied in their order.
Karma is the highest score of a document's posts. Duplicates were removed from all documents together; as the one with
most karma is kept, a view has what a crawl with its threshold would have kept, unless near-duplicates formed other
clusters without the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from webtext.base.console import counted
from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.lineage import parents_of, stale
from webtext.base.parts.partset import Part, PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.shards import TokenShards
from webtext.shards.format import shard_place
from webtext.shards.writing.token_part import TokenPartWriter, Vocabulary
from webtext.train.experiments.corpora import Corpus, open_corpus

CODE_VERSION = 1
TOO_LITTLE_KARMA = "too_little_karma"


@dataclass(frozen=True, slots=True)
class _View:
    tokens: SetName
    corpus: SetName
    least: dict[str, int]
    """Split -> karma that its documents reach."""


def karma_views(builds: Sequence[str], thresholds: str, out: str, tokenizer: str | None, run: Run) -> list[Corpus]:
    """Return a corpus for each threshold (`1,3,10`), packed in out/views unless it is there already.

    ConfigError for thresholds that don't rise from 1 or more, and for several builds. InputError for a build without
    karma or whose crawl asked for more, and for a threshold that no document reaches or that changes nothing.
    """
    wanted = _thresholds(thresholds)
    if len(builds) != 1:
        raise ConfigError(f"--karma with {counted(len(builds), 'corpus', 'corpora')}", "name one build")
    build = open_corpus(builds[0], tokenizer)
    tokens = build.train.set
    corpus = next((each for each in parents_of(tokens) if each.kind in ("corpus", "documents")), None)
    if corpus is None:
        raise InputError(f"'{build.tokens}' has no corpus that it was packed from, so karma is unknown", "name a build")
    for change in stale(tokens):
        raise InputError(str(change))
    _check_crawl(corpus, wanted[0])
    _check_documents(tokens, corpus, wanted, run)
    views = []
    for least in wanted:
        view = _View(SetName.of(tokens), SetName.of(corpus), {"train": least, "validation": wanted[0]})
        settings = tokens.recipe["settings"] | {"min_karma": view.least}
        recipe = Recipe(stage="train.compare", code_version=CODE_VERSION, settings=settings)
        tasks = [
            PartTask(index=each.index, sources=(tokens.source(each), *each.sources), payload=view)
            for each in tokens.parts
        ]
        place = Folder(out).location(f"views/karma-{least}")
        outputs, label = {"tokens": (place, "tokens")}, f"karma {least}"
        run_parts(_copy_part, tasks, recipe=recipe, outputs=outputs, parents=[tokens, corpus], run=run, label=label)
        views.append(Corpus(f"karma {least}", place, build.tokenizer_path, least))
    return views


def _thresholds(text: str) -> list[int]:
    try:
        wanted = [int(each) for each in text.split(",")]
    except ValueError:
        wanted = []
    if len(wanted) < 2 or wanted[0] < 1 or any(low >= high for low, high in zip(wanted, wanted[1:], strict=False)):
        raise ConfigError(f"--karma {text}", "give two or more numbers that rise from 1 or more, e.g. 1,3,10")
    return wanted


def _check_crawl(corpus: PartSet, lowest: int) -> None:
    """Raise InputError if the crawl or [clean.votes] asked for more than `lowest`, or counted only some posts."""
    made_by = [corpus, *_ancestors(corpus)]
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


def _ancestors(opened: PartSet) -> Iterator[PartSet]:
    for parent in parents_of(opened):
        yield parent
        yield from _ancestors(parent)


def _check_documents(tokens: PartSet, corpus: PartSet, wanted: Sequence[int], run: Run) -> None:
    """Print how many training documents each view has; InputError if that is none, or as many as another has."""
    parts = []
    for part in tokens.parts:
        rows = tokens.table(part, ["shard", "row"])
        rows = rows.filter(pc.starts_with(rows["shard"], "train"))
        parts.append(_karma(corpus, part)[rows["row"].to_numpy()])
    karma = np.concatenate(parts)
    before = len(karma) + 1
    for least in wanted:
        n = int((karma >= least).sum())
        if n in (0, before):
            same = "as with the threshold before it: leave it out" if n else "name a build of links with votes"
            found = f"{counted(n, 'training document')} of '{corpus.folder.url}' reach karma {least:,}"
            raise InputError(found, f"the highest karma is {np.nanmax(karma, initial=0):,.0f}", same)
        before = n
        run.console.say(f"karma {least:,}: {counted(n, 'training document')}")
    if n := int(np.isnan(karma).sum()):
        run.console.warn(f"{counted(n, 'training document')} of unknown karma are in no view")


def _karma(corpus: PartSet, part: Part) -> npt.NDArray[np.float64]:
    """Return the karma of each row of the corpus's part that a part of tokens was packed from; NaN if unknown."""
    source = next(each for each in corpus.parts if each.name == part.sources[0].part)
    return np.asarray(corpus.table(source, ["karma"])["karma"].to_numpy(), np.float64)


def _copy_part(context: PartContext, task: PartTask) -> None:
    view: _View = task.payload
    tokens, writer = view.tokens.open(), context.output("tokens")
    karma = _karma(view.corpus.open(), next(each for each in tokens.parts if each.index == task.index))
    facts: dict[str, Any] = tokens.recipe["settings"]
    vocabulary = Vocabulary(facts["vocab_size"], facts["eot_id"], facts["tokenizer_hash"])
    with TokenPartWriter(writer, vocabulary, facts.get("shard_tokens", sys.maxsize)) as packed:
        for split, least in view.least.items():
            shards = TokenShards(view.tokens.url, split)
            for i, name in enumerate(shards.names):
                if (shard_place(name) or ())[:2] != (split, task.index):
                    continue
                for number in range(shards.headers[i].n_documents):
                    found = shards.document_of(i, number)
                    if not karma[found.row] >= least:
                        writer.counts.drop(TOO_LITTLE_KARMA)
                        continue
                    packed.add(split, found.tokens[1:], id=found.id, source_part=found.source_part, row=found.row)
                context.note_progress()
