"""The corpora of a comparison: builds, token sets, or views of one build by vote threshold; and the runs' shared budget.

A view is what a crawl that asks for more votes would give. It has the training documents whose karma (the highest score
of a post) reaches its threshold, and the held-out documents that reach the lowest one, so all models are measured on the
same ones. It is a token set, whose documents are copied in their order. Duplicates were removed from all documents
together; as the one with most karma is kept, a view lacks nothing, unless near-duplicates formed other clusters.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from webtext.base.config import options
from webtext.base.console import counted
from webtext.base.errors import ConfigError, InputError
from webtext.base.parts.partset import PartSet, SetName, parents_of
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.shards import TokenShards
from webtext.shards.format import shard_place
from webtext.shards.writing.token_part import TokenPartWriter, Vocabulary
from webtext.tokenizer import Tokenizer
from webtext.train.data.sources import Source, open_sources, source_uses
from webtext.train.experiments.trials import with_tokens
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings

CODE_VERSION = 1
TOO_LITTLE_KARMA, UNKNOWN_KARMA = "too_little_karma", "unknown_karma"


@dataclass(frozen=True, slots=True)
class Corpus:
    """A build or a token set, under its name in messages and folders; `karma` is the threshold of a view."""

    name: str
    source: Source
    tokenizer: str
    karma: int | None = None

    @property
    def slug(self) -> str:
        """The name as a folder name."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("-.") or "corpus"

    def passes(self, settings: TrainSettings) -> float:
        """Return how often a run with these settings reads the training documents."""
        return source_uses([self.source], settings, total_tokens(settings))[0].passes


def open_corpora(arguments: Sequence[str], tokenizer: str | None = None) -> list[Corpus]:
    """Open the corpora `NAME=PATH` or `PATH`: builds (with tokens/ and tokenizer/) or token sets.

    `tokenizer` packed all of them; without it, the first corpus's own did, for a token set that of the folder around it.
    ConfigError for fewer than two corpora or for equal names.
    """
    if len(arguments) < 2:
        named = f"{counted(len(arguments), 'corpus', 'corpora')} named, at least two are needed"
        raise ConfigError(named, "name two or more: webtext train compare build-a build-b …")
    corpora = [open_corpus(arguments[0], tokenizer)]
    corpora += [open_corpus(argument, corpora[0].tokenizer) for argument in arguments[1:]]
    for i, corpus in enumerate(corpora):
        if any(corpus.slug == other.slug for other in corpora[:i]):
            raise ConfigError(f"two corpora have the name '{corpus.name}'", "name them: one=PATH other=PATH")
    return corpora


def open_corpus(argument: str, tokenizer: str | None) -> Corpus:
    """Open one corpus. InputError if there is none, if it has no training tokens, or if another tokenizer packed it."""
    name, equals, path = argument.partition("=")
    if not equals or Folder(argument).exists("."):
        name = path = argument
    is_set = Folder(path).exists("manifest.json")
    if not is_set and not Folder(path).exists("tokens/manifest.json"):
        raise InputError(
            f"'{path}' is neither a build nor a token set", "expected tokens/manifest.json or manifest.json in it"
        )
    build = Folder(path.rstrip("/").rpartition("/")[0] or "." if is_set else path)
    if tokenizer is None and not build.exists("tokenizer/tokenizer.json"):
        raise ConfigError(f"'{path}' has no tokenizer/tokenizer.json next to it", "add --tokenizer FILE")
    (source,) = open_sources(path if is_set else Folder(path).location("tokens"))
    corpus = Corpus(name.rstrip("/"), source, tokenizer or build.location("tokenizer/tokenizer.json"))
    source.train.check_tokenizer(Tokenizer.load(corpus.tokenizer))
    if not source.train.n_tokens:
        raise InputError(f"'{source.name}' has no training tokens", "build the corpus, and pack it")
    return corpus


def shared_settings(corpora: Sequence[Corpus], settings: TrainSettings, n_tokens: int | None) -> TrainSettings:
    """Return the settings of all runs, except the seed: as many steps as have `n_tokens`.

    Without these, the steps are the settings' own, but no more than repeat no text of the smallest corpus. ConfigError if
    they end within the warm-up.
    """
    for name in ("weights", "stop_at_step"):
        if value := options(TrainSettings)[name].value(settings):
            raise ConfigError(f"{name} is {value}", "leave it out: a comparison does not support it")
    asked, per_step = total_tokens(settings), settings.batch_size * settings.context
    fits = min(int(asked / corpus.passes(settings) // per_step) * per_step for corpus in corpora)
    return with_tokens(settings, n_tokens or min(asked, fits))


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
