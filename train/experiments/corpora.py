"""The corpora of a comparison: a build or a token set each, its tokenizer, and the budget that makes their runs equal.

One tokenizer: every run trains on as many tokens. Several: tokens of one are not tokens of another, so the first corpus' tokens
are turned into bytes of text, and every run trains on as many bytes; values are bits per byte, whatever the tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from webtext.base.errors import ConfigError, InputError
from webtext.base.storage import Folder
from webtext.shards import TokenShards
from webtext.tokenizer import Tokenizer
from webtext.train.experiments.settings import CompareSettings
from webtext.train.schedule import sequences_before, total_tokens
from webtext.train.settings import TrainSettings
from webtext.train.sources import open_sources, source_uses

SAMPLE_TOKENS = 10_000_000
"""Of the first training tokens, by which bytes a token are told."""


@dataclass(frozen=True)
class Corpus:
    """One corpus under the name that messages and folders have for it."""

    name: str
    tokens: str
    tokenizer_path: str

    @property
    def slug(self) -> str:
        """Its name as a folder's."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("-.") or "corpus"

    @cached_property
    def train(self) -> TokenShards:
        """Its training documents."""
        return TokenShards(self.tokens, "train")

    @cached_property
    def held_out(self) -> TokenShards:
        """The documents that it holds out."""
        return TokenShards(self.tokens, "validation")

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer at its path."""
        return Tokenizer.load(self.tokenizer_path)

    @cached_property
    def bytes_per_token(self) -> float:
        """Bytes of text a training token, by the first SAMPLE_TOKENS; end-of-texts count as tokens without bytes."""
        from webtext.train.evaluate.perplexity import token_bytes

        tokens = self.train.read(0, min(SAMPLE_TOKENS, self.train.n_tokens))
        return float(token_bytes(self.tokenizer)[tokens].mean())


@dataclass(frozen=True, slots=True)
class Budget:
    """What one corpus' runs do: their settings but for the seed, tokens, and passes over the corpus."""

    settings: TrainSettings
    tokens: int
    passes: float


def open_corpora(arguments: Sequence[str], tokenizer: str | None = None) -> list[Corpus]:
    """The corpora that `NAME=PATH` or `PATH` name: builds (tokens/, tokenizer/) or token sets.

    `tokenizer` names the tokenizer of all; without it a build's own is taken, of a token set that of the build it lies in.
    """
    if len(arguments) < 2:
        raise ConfigError(
            f"{len(arguments)} corpora are named", "name two or more: webtext train compare build-a build-b …"
        )
    corpora = [_open(argument, tokenizer) for argument in arguments]
    slugs = [corpus.slug for corpus in corpora]
    for i, corpus in enumerate(corpora):
        if corpus.slug in slugs[:i]:
            raise ConfigError(f"two corpora have the name '{corpus.name}'", "tell them apart: one=PATH other=PATH")
    for corpus in corpora:
        corpus.train.check_tokenizer(corpus.tokenizer)
        if not corpus.train.n_tokens:
            raise InputError(f"'{corpus.tokens}' has no training tokens", "build the corpus, and pack it")
    return corpora


def share_tokenizer(corpora: Sequence[Corpus]) -> bool:
    """Whether one tokenizer packed them all, so that equal tokens are equal text."""
    return len({corpus.tokenizer.hash for corpus in corpora}) == 1


def budgets(corpora: Sequence[Corpus], settings: TrainSettings, compare: CompareSettings) -> list[Budget]:
    """What the runs of each corpus do. ConfigError where a corpus is too small for more than `max_passes` over it."""
    for name in ("weights", "stop_at_step", "sample_interval"):
        if getattr(settings, name):
            raise ConfigError(f"{name} is {getattr(settings, name)}", "leave it out: a comparison has no use for it")
    n_tokens = compare.tokens or total_tokens(settings)
    n_bytes = n_tokens * corpora[0].bytes_per_token
    made = []
    for corpus in corpora:
        same = corpus.tokenizer.hash == corpora[0].tokenizer.hash
        mine = with_tokens(settings, n_tokens if same else round(n_bytes / corpus.bytes_per_token))
        (use,) = source_uses(open_sources(corpus.tokens), mine, total_tokens(mine))
        made.append(Budget(mine, total_tokens(mine), use.passes))
    most = max(made, key=lambda budget: budget.passes)
    if most.passes > compare.max_passes:
        corpus = corpora[made.index(most)]
        fits = _whole_steps(settings, most.tokens / most.passes * compare.max_passes)
        if corpus.tokenizer.hash != corpora[0].tokenizer.hash:  # --tokens are the first corpus'
            fits = int(fits * corpus.bytes_per_token / corpora[0].bytes_per_token)
        less = f"give --tokens {fits} or less" if fits > 0 else "it holds no whole step: give a smaller --batch-size"
        raise ConfigError(
            f"{most.tokens:,} tokens are {most.passes:.2f} passes over '{corpus.name}', which has {corpus.train.n_tokens:,}",
            "text that is seen again is worth less than new text, so corpora would be compared by their sizes",
            f"{less}, or allow it: --max-passes {np.ceil(most.passes):.0f}",
        )
    return made


def with_tokens(settings: TrainSettings, n_tokens: int) -> TrainSettings:
    """The settings with so many steps that they take at least `n_tokens`.

    Warm-up and ramp are as they are told. ConfigError where the budget ends before them.
    """
    in_ramp, per_step = _tokens_in_ramp(settings), settings.batch_size * settings.context
    steps = settings.batch_ramp_steps + -(-(n_tokens - in_ramp) // per_step)
    if steps <= max(settings.warmup_steps, settings.batch_ramp_steps):
        raise ConfigError(
            f"{n_tokens:,} tokens are {max(0, steps):,} steps of {per_step:,}, and the warm-up is {settings.warmup_steps:,}",
            "give more --tokens, fewer --warmup-steps, or a smaller --batch-size",
        )
    return replace(settings, steps=steps)


def _whole_steps(settings: TrainSettings, n_tokens: float) -> int:
    """The tokens of as many steps as `n_tokens` hold: no more than that, and nothing that `with_tokens` rounds up."""
    in_ramp, per_step = _tokens_in_ramp(settings), settings.batch_size * settings.context
    return in_ramp + int((n_tokens - in_ramp) // per_step) * per_step


def _tokens_in_ramp(settings: TrainSettings) -> int:
    return sequences_before(settings, settings.batch_ramp_steps) * settings.context


def _open(argument: str, tokenizer: str | None) -> Corpus:
    name, equals, path = argument.partition("=")
    if not equals or Folder(argument).exists("."):
        name = path = argument
    folder = Folder(path)
    is_set = folder.exists("manifest.json")
    if not is_set and not folder.exists("tokens/manifest.json"):
        raise InputError(
            f"'{path}' is no build and no token set", "expected tokens/manifest.json or manifest.json in it"
        )
    build = path.rstrip("/").rpartition("/")[0] or "." if is_set else path
    place = tokenizer or Folder(build).location("tokenizer/tokenizer.json")
    if tokenizer is None and not Folder(build).exists("tokenizer/tokenizer.json"):
        raise ConfigError(f"'{path}' lies beside no tokenizer/tokenizer.json", "add --tokenizer FILE")
    return Corpus(name.rstrip("/"), path if is_set else folder.location("tokens"), place)
