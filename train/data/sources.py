"""The token sets that a run trains on: one or a mixture of several, each with its validation split.

Sets in a mixture supply samples in proportion to `weights`, or to their numbers of windows without weights
(`shards/sampling/sampler.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from webtext.base.errors import ConfigError
from webtext.shards import Sampler, TokenShards
from webtext.train.settings import TrainSettings

MOST_PASSES = 40
"""Training longer on the same text lowers the held-out loss no more (Muennighoff et al. 2023, figures 1 and 3)."""

GROUP_BLOCKS = 64
"""Blocks of 64 MiB whose windows are shuffled together: 4 GiB of tokens, which a page cache holds while a group is read."""


@dataclass(frozen=True, slots=True)
class Source:
    """One token set, under the name that the user gave."""

    name: str
    train: TokenShards
    validation: TokenShards


@dataclass(frozen=True, slots=True)
class SourceUse:
    """A run's use of one source: `share` of the samples, and `passes` over its tokens."""

    name: str
    tokens: int
    held_out_tokens: int
    share: float
    passes: float

    def __str__(self) -> str:
        of = "" if self.share == 1 else f"{self.share:.1%} from '{self.name}', "
        return f"{of}{self.passes:.2f} passes over {self.tokens:,} tokens, held out: {self.held_out_tokens:,}"


def open_sources(tokens: str | Sequence[str]) -> list[Source]:
    """Open the named token sets. Raises ConfigError if there is none, or one twice, whose weight would be ambiguous."""
    names = [tokens] if isinstance(tokens, str) else list(tokens)
    if not names:
        raise ConfigError("no token set is named", "e.g. build/tokens")
    sources = [Source(name, TokenShards(name, "train"), TokenShards(name, "validation")) for name in names]
    if len({source.train.hash for source in sources}) < len(sources):
        raise ConfigError(f"two are the same token set: {', '.join(names)}", "name it once, with a larger weight")
    return sources


def make_sampler(
    sources: Sequence[Source], settings: TrainSettings, *, batch_size: int = 1, rank: int = 0, world_size: int = 1
) -> Sampler:
    """Return the order in which a run sees the sources' training tokens. Raises Sampler's errors."""
    return Sampler(
        [source.train for source in sources],
        context=settings.context,
        batch_size=batch_size,
        seed=settings.seed,
        rank=rank,
        world_size=world_size,
        weights=settings.data.weights or None,
        crosses_documents=settings.data.documents != "padded",
        group_blocks=GROUP_BLOCKS,
    )


def source_uses(sources: Sequence[Source], settings: TrainSettings) -> list[SourceUse]:
    """Return the use of each source in a run, whose tokens include the padding of short windows."""
    sampler = make_sampler(sources, settings)
    counts = sampler.mixture.counts(np.array([settings.steps * settings.batch_size]))[:, 0].tolist()
    parts = sampler.mixture.parts
    uses = []
    for source, stream, part, n_samples in zip(sources, sampler.streams, parts, counts, strict=True):
        n_in_set = source.train.n_tokens
        per_window = n_in_set / stream.n_windows if settings.data.documents == "padded" else settings.context
        passes = n_samples * per_window / n_in_set
        uses.append(SourceUse(source.name, n_in_set, source.validation.n_tokens, part / sum(parts), passes))
    return uses


def warning_of_passes(uses: Sequence[SourceUse], settings: TrainSettings) -> str | None:
    """Return a warning if a source is repeated to no use."""
    most = max(uses, key=lambda use: use.passes)
    if most.passes <= MOST_PASSES:
        return None
    steps = max(1, int(settings.steps * MOST_PASSES / most.passes))
    return (
        f"{most.passes:,.0f} passes over '{most.name}': more than {MOST_PASSES} teach nothing new; "
        f"choose fewer steps ({steps:,} make {MOST_PASSES} passes) or more text"
    )
