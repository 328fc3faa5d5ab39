"""How old posts were when their scores were read: a table by month, kept beside each part of a links set.

A score that was read seconds after its post was made says nothing about the votes to come. Some months of the dumps are
such readings (posts of late 2018 and of 2023, by those who keep the dumps); a month whose median age is below a day is
called fresh, and is named at the end of every run. A later reading of the same posts makes it ripe.

    part-00000.ages.json    {"edges": [60, ...], "months": {"2018-11": [posts below the first edge, ..., at the last]}}

Only posts that count are in it, each as it was read last, and only where the source tells when that was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date

import numpy as np

from webtext.base.partset import PartSet
from webtext.crawl.links.submission import Submission

SUFFIX = ".ages.json"
DAY = 86_400
EDGES = (60, 3600, DAY, 7 * DAY, 30 * DAY, 365 * DAY)
"""Seconds: ages are counted below each of these and from the last one on."""

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
        """Count the posts whose source tells when they were made and read."""
        self._times += [
            (post.created, post.retrieved) for post in posts if post.created is not None and post.retrieved is not None
        ]
        if len(self._times) >= POSTS_AT_A_TIME:
            self._fold()

    def fresh_months(self) -> list[str]:
        """The months of which more than half of the posts were read within a day, in order."""
        self._fold()
        few = EDGES.index(DAY) + 1
        return sorted(month for month, counts in self.months.items() if sum(counts[:few]) * 2 > sum(counts))

    def to_bytes(self) -> bytes:
        """The table as it is kept."""
        self._fold()
        return (json.dumps({"edges": EDGES, "months": self.months}, sort_keys=True) + "\n").encode()

    def merge(self, data: bytes) -> None:
        """Add a table that `to_bytes` made."""
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
    """The table of a whole links set. Parts that have none (made by other means) count nothing."""
    ages = ScoreAges()
    for part in links.parts:
        if any(attachment.name.endswith(SUFFIX) for attachment in part.attachments):
            ages.merge(links.folder.read_bytes(links.attachment(part, SUFFIX)))
    return ages
