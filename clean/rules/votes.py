"""Vote rules: which documents have enough votes, decided from the column `posts` without a new crawl.

The rule is the one of `crawl links`: a post counts if it was made in time and in a wanted community. A document's karma
is the highest score of its counted posts, or with `sum_karma` their sum. A post's community is its subreddit, or if the
source has none, the source's name, such as `hackernews`. The reasons, in order, with value and threshold:

    voted_too_late       time of its earliest post    `before`
    no_wanted_community  none                         none
    too_little_karma     karma of its counted posts   `min_karma`

A document without posts (an imported one) is judged by its column `karma` and belongs
to no community. `before` doesn't apply to it, and neither does `sum_karma`: its sum cannot be known from the highest
score. A document of unknown karma doesn't reach any `min_karma`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.config import recipe_settings
from webtext.clean.settings import VoteSettings, community
from webtext.clean.steps import Batch, Step, Verdict

VOTED_TOO_LATE, NO_WANTED_COMMUNITY, TOO_LITTLE_KARMA = "voted_too_late", "no_wanted_community", "too_little_karma"
REASONS = (VOTED_TOO_LATE, NO_WANTED_COMMUNITY, TOO_LITTLE_KARMA)
FIELDS = ("source", "subreddit", "score", "created")
STAGE = "votes"


@dataclass
class Votes(Step):
    """Refuses documents that have too few votes."""

    settings: VoteSettings
    columns = ("karma", "posts")

    def sections(self) -> dict[str, Any]:
        return {"votes": recipe_settings(self.settings)}

    def judge(self, batch: Batch) -> Iterator[Verdict]:
        return vote_verdicts(batch.documents, self.settings)


def vote_verdicts(documents: pa.RecordBatch, settings: VoteSettings) -> Iterator[Verdict]:
    """Yield the verdict of each vote rule, in the order of the reasons."""
    late, outside, first, karma = _judge(documents, settings)
    if settings.end is not None:
        yield Verdict(VOTED_TOO_LATE, late > 0, first, settings.end, STAGE)
    if settings.communities:
        yield Verdict(NO_WANTED_COMMUNITY, outside > 0, stage=STAGE)
    if settings.min_karma is not None:
        yield Verdict(TOO_LITTLE_KARMA, ~(karma >= settings.min_karma), karma, settings.min_karma, STAGE)


def _judge(documents: pa.RecordBatch, settings: VoteSettings) -> npt.NDArray[np.float64]:
    """Return four rows of float64: are all posts too late, is none in a wanted community, earliest post, karma."""
    n_rows, posts = documents.num_rows, pc.list_flatten(documents["posts"])
    row = pc.list_parent_indices(documents["posts"]).to_numpy()
    source, subreddit, score, created = (pc.struct_field(posts, name) for name in FIELDS)
    score, created = score.to_numpy().astype(np.float64), created.to_numpy().astype(np.float64)

    def any_of(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        return np.bincount(row[mask], minlength=n_rows) > 0

    early = created < (np.inf if settings.end is None else settings.end)
    counts = early.copy()
    names = {name: community(name) for name in pc.unique(pc.coalesce(subreddit, source)).to_pylist()}
    for wanted, given in ((True, settings.wanted), (False, settings.unwanted)):
        if given:
            listed = pa.array([name for name, known_as in names.items() if known_as in given], pa.string())
            counts &= pc.is_in(pc.coalesce(subreddit, source), listed).to_numpy(zero_copy_only=False) == wanted
    has_posts = any_of(np.ones(len(row), bool))
    first = np.full(n_rows, np.inf)
    np.minimum.at(first, row, created)
    karma = documents["karma"].to_numpy(zero_copy_only=False).astype(np.float64)
    known = np.where(np.isnan(karma), np.nan, np.inf) if settings.sum_karma else karma
    of_posts = np.full(n_rows, 0.0 if settings.sum_karma else -np.inf)
    (np.add if settings.sum_karma else np.maximum).at(of_posts, row[counts], score[counts])
    outside = (any_of(early) & ~any_of(counts)) | (~has_posts & bool(settings.wanted))
    return np.stack([has_posts & ~any_of(early), outside, first, np.where(has_posts, of_posts, known)])
