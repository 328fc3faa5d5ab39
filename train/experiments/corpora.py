"""The corpora of a comparison: builds or token sets with their tokenizers, and the budgets that make their runs equal.

With one tokenizer every run trains on as many tokens. Tokens of different tokenizers can't be compared, so with several
the first corpus's tokens are converted into bytes of text, and every run trains on as many bytes. Results are bits per
byte in either case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from webtext.base.config import options
from webtext.base.console import counted
from webtext.base.errors import ConfigError, InputError
from webtext.base.storage import Folder
from webtext.shards import TokenShards
from webtext.tokenizer import Tokenizer
from webtext.train.data.sources import open_sources, source_uses
from webtext.train.experiments.settings import CompareSettings
from webtext.train.optimizer.schedule import sequences_before, total_tokens
from webtext.train.settings import TrainSettings

SAMPLE_TOKENS = 10_000_000
"""Number of first training tokens from which bytes per token are estimated."""


@dataclass(frozen=True)
class Corpus:
    """One corpus, under its name in messages and folders."""

    name: str
    tokens: str
    tokenizer_path: str
    karma: int | None = None
    """Threshold of a view (`karma.py`)."""

    @property
    def slug(self) -> str:
        """The name as a folder name."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("-.") or "corpus"

    @cached_property
    def train(self) -> TokenShards:
        """The training documents."""
        return TokenShards(self.tokens, "train")

    @cached_property
    def held_out(self) -> TokenShards:
        """The held-out documents."""
        return TokenShards(self.tokens, "validation")

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer at `tokenizer_path`."""
        return Tokenizer.load(self.tokenizer_path)

    @cached_property
    def bytes_per_token(self) -> float:
        """Bytes of text per training token, in the first SAMPLE_TOKENS; end-of-texts count as tokens without bytes."""
        from webtext.train.evaluate.perplexity import token_bytes

        tokens = self.train.read(0, min(SAMPLE_TOKENS, self.train.n_tokens))
        return float(token_bytes(self.tokenizer)[tokens].mean())


@dataclass(frozen=True, slots=True)
class Budget:
    """The settings of a corpus's runs (except the seed), their tokens, and their passes over the corpus."""

    settings: TrainSettings
    tokens: int
    passes: float


def open_corpora(arguments: Sequence[str], tokenizer: str | None = None) -> list[Corpus]:
    """Open the corpora `NAME=PATH` or `PATH`: builds (with tokens/ and tokenizer/) or token sets.

    `tokenizer` is the tokenizer of all. Without it each build's own is used, for a token set that of the folder around
    it. ConfigError for fewer than two corpora or for equal names.
    """
    if len(arguments) < 2:
        raise ConfigError(
            f"{counted(len(arguments), 'corpus', 'corpora')} named, at least two are needed",
            "name two or more: webtext train compare build-a build-b …",
        )
    corpora = [open_corpus(argument, tokenizer) for argument in arguments]
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
    tokens = path if is_set else Folder(path).location("tokens")
    corpus = Corpus(name.rstrip("/"), tokens, tokenizer or build.location("tokenizer/tokenizer.json"))
    corpus.train.check_tokenizer(corpus.tokenizer)
    if not corpus.train.n_tokens:
        raise InputError(f"'{corpus.tokens}' has no training tokens", "build the corpus, and pack it")
    return corpus


def share_tokenizer(corpora: Sequence[Corpus]) -> bool:
    """Return whether one tokenizer packed all corpora, so that equal tokens are equal text."""
    return len({corpus.tokenizer.hash for corpus in corpora}) == 1


def budgets(corpora: Sequence[Corpus], settings: TrainSettings, compare: CompareSettings) -> list[Budget]:
    """Return the budget of each corpus. ConfigError if a run would make more than `max_passes` over its corpus."""
    for name in ("weights", "stop_at_step", "sample_interval"):
        if value := options(TrainSettings)[name].value(settings):
            raise ConfigError(f"{name} is {value}", "leave it out: a comparison does not support it")
    n_tokens, first = compare.tokens or total_tokens(settings), corpora[0]
    ratios = [
        1.0 if each.tokenizer.hash == first.tokenizer.hash else each.bytes_per_token / first.bytes_per_token
        for each in corpora
    ]
    made = []
    for corpus, ratio in zip(corpora, ratios, strict=True):
        mine = with_tokens(settings, round(n_tokens / ratio))
        (use,) = source_uses(open_sources(corpus.tokens), mine, total_tokens(mine))
        made.append(Budget(mine, total_tokens(mine), use.passes))
    most, corpus, ratio = max(zip(made, corpora, ratios, strict=True), key=lambda each: each[0].passes)
    if most.passes > compare.max_passes:
        fits = int(_whole_steps(settings, most.tokens / most.passes * compare.max_passes) * ratio)
        less = f"give --tokens {fits} or less" if fits > 0 else "one step does not fit: give a smaller --batch-size"
        raise ConfigError(
            f"{most.tokens:,} tokens are {most.passes:.2f} passes over '{corpus.name}', which has {corpus.train.n_tokens:,}",
            "repeated text teaches less than new text, so the comparison would depend on the corpora's sizes",
            f"{less}, or allow it: --max-passes {math.ceil(most.passes)}",
        )
    return made


def with_tokens(settings: TrainSettings, n_tokens: float) -> TrainSettings:
    """Return the settings with the fewest steps that have at least `n_tokens`.

    Warm-up and ramp keep their steps. ConfigError if the budget ends before them.
    """
    in_ramp, per_step = _tokens_in_ramp(settings), settings.batch_size * settings.context
    steps = settings.schedule.batch_ramp_steps + math.ceil((n_tokens - in_ramp) / per_step - 1e-9)
    if steps <= max(settings.warmup_steps, settings.schedule.batch_ramp_steps):
        raise ConfigError(
            f"{n_tokens:,} tokens are {max(0, steps):,} steps of {per_step:,}, and the warm-up is {settings.warmup_steps:,}",
            "give more --tokens, fewer --warmup-steps, or a smaller --batch-size",
        )
    return replace(settings, steps=steps)


def one_pass(corpora: Sequence[Corpus], settings: TrainSettings) -> int:
    """Return the tokens of as many steps as no corpus repeats. ConfigError if these are too few for the warm-up."""
    smallest = min(corpora, key=lambda corpus: corpus.train.n_tokens)
    n_tokens = _whole_steps(settings, smallest.train.n_tokens)
    try:
        with_tokens(settings, n_tokens)
    except ConfigError as error:
        remedy = "leave it out, give smaller --warmup-steps or --batch-size, or repeat it: --tokens N --max-passes N"
        n_documents = counted(smallest.train.n_documents, "document")
        raise ConfigError(f"'{smallest.name}' has {n_documents}, too few: {error.lines[0]}", remedy) from None
    return n_tokens


def _whole_steps(settings: TrainSettings, n_tokens: float) -> int:
    """Return the tokens of as many complete steps as fit into `n_tokens`, which `with_tokens` doesn't round up."""
    in_ramp, per_step = _tokens_in_ramp(settings), settings.batch_size * settings.context
    return in_ramp + int((n_tokens - in_ramp) // per_step) * per_step


def _tokens_in_ramp(settings: TrainSettings) -> int:
    return sequences_before(settings, settings.schedule.batch_ramp_steps) * settings.context
