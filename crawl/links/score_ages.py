"""How old posts were when their scores were read: a table by month, kept beside each part of a links set.

A score that was read seconds after its post was made says nothing about the votes to come. Some months of the dumps are
such readings (posts of late 2018 and of 2023, by those who keep the dumps); a month whose median age is below a day is
called fresh, and is named at the end of every run. A later reading of the same posts makes it ripe.

    part-00000.ages.json    {"edges": [60, ...], "months": {"2018-11": [posts below the first edge, ..., at the last]}}

Only posts that count are in it, each as it was read last, and only where the source tells when that was.
"""

from __future__ import annotations

import bisect
import json
from collections import Counter
from collections.abc import Iterable
from datetime import date

from webtext.base.partset import PartSet
from webtext.crawl.links.submission import Submission

SUFFIX = ".ages.json"
DAY = 86_400
EDGES = (60, 3600, DAY, 7 * DAY, 30 * DAY, 365 * DAY)
"""Seconds: ages are counted below each of these and from the last one on."""

_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal() - _EPOCH


class ScoreAges:
    """Counts of posts by month and age."""

    def __init__(self) -> None:
        self.months: dict[str, list[int]] = {}
        self._by_day: Counter[tuple[int, int]] = Counter()

    def add(self, posts: Iterable[Submission]) -> None:
        """Count the posts whose source tells when they were made and read."""
        for post in posts:
            if post.created is not None and post.retrieved is not None:
                self._by_day[post.created // DAY, bisect.bisect_right(EDGES, post.retrieved - post.created)] += 1

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
        for (day, place), n in self._by_day.items():
            if -_EPOCH < day <= _LAST_DAY:  # else no date that a calendar has
                month = date.fromordinal(_EPOCH + day).isoformat()[:7]
                self.months.setdefault(month, [0] * (len(EDGES) + 1))[place] += n
        self._by_day.clear()


def score_ages(links: PartSet) -> ScoreAges:
    """The table of a whole links set. Parts that have none (made by other means) count nothing."""
    ages = ScoreAges()
    for part in links.parts:
        if any(attachment.name.endswith(SUFFIX) for attachment in part.attachments):
            ages.merge(links.folder.read_bytes(links.attachment(part, SUFFIX)))
    return ages
