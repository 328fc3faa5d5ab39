"""Score ages: how old posts were when their scores were read, as a table by month beside each part of a links set.

A score that was read seconds after posting says nothing about the votes to come. Some months of the dumps contain such
readings (late 2018 and 2023, according to those who publish the dumps). A month whose median age is below a day is
called fresh, and every run ends with a warning that lists the fresh months. A later reading of the same posts replaces
such scores.

    part-00000.ages.json    {"edges": [60, ...], "months": {"2018-11": [posts below the first edge, ..., at the last]}}

The table counts only posts that are kept, each in its latest reading, and only if the source has the time of reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date

import numpy as np

from webtext.base.parts.partset import PartSet
from webtext.crawl.links.submission import Submission

SUFFIX = ".ages.json"
DAY = 86_400
EDGES = (60, 3600, DAY, 7 * DAY, 30 * DAY, 365 * DAY)
"""Bounds between the age classes, in seconds; the last class has no upper bound."""

POSTS_AT_A_TIME = 8192
_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal() - _EPOCH
_CALENDAR = ((1 - _EPOCH) * DAY, (_LAST_DAY + 1) * DAY - 1)  # the first second and the last one


class ScoreAges:
    """Counts of posts by month and age."""

    def __init__(self) -> None:
        self.months: dict[str, list[int]] = {}
        self._times: list[tuple[int, int]] = []  # (created, retrieved) of posts that are not counted yet

    def add(self, posts: Iterable[Submission]) -> None:
        """Count the posts that have both a time of creation and a time of reading."""
        self._times += [
            (post.created, post.retrieved) for post in posts if post.created is not None and post.retrieved is not None
        ]
        if len(self._times) >= POSTS_AT_A_TIME:
            self._fold()

    def fresh_months(self) -> list[str]:
        """Return the months in which more than half of the posts were read within a day, in order."""
        self._fold()
        few = EDGES.index(DAY) + 1
        return sorted(month for month, counts in self.months.items() if sum(counts[:few]) * 2 > sum(counts))

    def to_bytes(self) -> bytes:
        """Return the table in its file format."""
        self._fold()
        return (json.dumps({"edges": EDGES, "months": self.months}, sort_keys=True) + "\n").encode()

    def merge(self, data: bytes) -> None:
        """Add a table that `to_bytes` returned."""
        for month, counts in json.loads(data)["months"].items():
            sums = self.months.setdefault(month, [0] * len(counts))
            self.months[month] = [one + other for one, other in zip(sums, counts, strict=True)]

    def _fold(self) -> None:
        times = np.array(self._times, np.int64).reshape(-1, 2)
        self._times = []
        has_month = (times[:, 0] >= _CALENDAR[0]) & (times[:, 0] <= _CALENDAR[1])
        created, retrieved = times[has_month].T
        age = np.clip(retrieved, -(2**62), 2**62) - created
        places, n_places = np.searchsorted(EDGES, age, side="right"), len(EDGES) + 1
        days, counts = np.unique(created // DAY * n_places + places, return_counts=True)
        for day_and_place, n in zip(days.tolist(), counts.tolist(), strict=True):
            day, place = divmod(day_and_place, n_places)
            month = date.fromordinal(_EPOCH + day).isoformat()[:7]
            self.months.setdefault(month, [0] * n_places)[place] += n


def score_ages(links: PartSet) -> ScoreAges:
    """Return the table of an entire links set. Parts without one (from other tools) add nothing."""
    ages = ScoreAges()
    for part in links.parts:
        if any(attachment.name.endswith(SUFFIX) for attachment in part.attachments):
            ages.merge(links.folder.read_bytes(links.attachment(part, SUFFIX)))
    return ages
