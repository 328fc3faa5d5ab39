"""The corpora of a comparison, builds or token sets, and the budget that their runs share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from webtext.base.config import options
from webtext.base.console import counted
from webtext.base.errors import ConfigError, InputError
from webtext.base.storage import Folder
from webtext.tokenizer import Tokenizer
from webtext.train.data.sources import Source, open_sources, source_uses
from webtext.train.experiments.trials import with_tokens
from webtext.train.optimizer.schedule import total_tokens
from webtext.train.settings import TrainSettings


@dataclass(frozen=True, slots=True)
class Corpus:
    """A build or a token set, under its name in messages and folders."""

    name: str
    source: Source
    tokenizer: str

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
