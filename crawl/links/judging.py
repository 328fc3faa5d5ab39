"""Turn a file's records into the votes that count, and count all others in the funnel.

A source that can sift gets many lines at once, and the batch has a position of its own. Lines that the sift
leaves over are parsed one by one. When a worker dies in a batch, the batch is retried line by line, so that the line
that kills it is found and set aside. If every line survives alone, the batch is read line by line from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from webtext.base.parts.counts import Counts
from webtext.base.web.urls import registrable_domain
from webtext.base.workers.attempt import FIRST_FILE, KILLED_WORKER, Attempt
from webtext.crawl.links.karma import KarmaJudge
from webtext.crawl.links.sources.lines import Batch, Unreadable, lines_of
from webtext.crawl.links.sources.submission import DeletedPost, LinkSource, SiftingSource, Submission
from webtext.crawl.links.spill import Vote

MAX_NAMED_FAILURES = 100
"""Failed records that are listed per file; all are counted."""


@dataclass(slots=True)
class Funnel:
    """Counts and failures of one file while it is read; a failure is (FILE:POSITION, reason, cause)."""

    file_name: str
    counts: Counts = field(default_factory=Counts)
    failures: list[tuple[str, str, str]] = field(default_factory=list)

    def fail(self, position: int, reason: str, cause: str) -> None:
        """Count a failed record, and list it if it is one of the first or a broken stream."""
        self.counts.fail(reason)
        if len(self.failures) < MAX_NAMED_FAILURES or reason.endswith("_stream"):
            self.failures.append((f"{self.file_name}:{position}", reason, cause))

    def fail_set_aside(self, attempt: Attempt) -> None:
        """Count the records that were set aside because they kill workers."""
        for position, cause in sorted(attempt.set_aside.items()):
            if 0 <= position < FIRST_FILE:  # negative positions are batches, whose records are retried one by one
                self.fail(position, KILLED_WORKER, cause)


def votes_in(
    records: Iterable[tuple[int, Any | Unreadable]],
    source: LinkSource[Any],
    attempt: Attempt,
    judge: KarmaJudge,
    funnel: Funnel,
) -> Iterator[Vote]:
    """Yield the votes that count, reading one record at a time."""
    for position, record in attempt.watch(records):
        posts = record if isinstance(record, Unreadable) else source.parse(record)
        if isinstance(posts, Unreadable):
            funnel.fail(position, posts.reason, posts.cause)
        elif isinstance(posts, DeletedPost):
            funnel.counts.drop(posts.reason)
        else:
            yield from _judged(posts, judge, funnel)


def votes_in_batches(
    batches: Iterable[Batch], source: SiftingSource, attempt: Attempt, judge: KarmaJudge, funnel: Funnel
) -> Iterator[Vote]:
    """Yield the votes that count in batches of lines; votes and funnel are equal to those of `votes_in`."""
    rule = judge.post_rule
    for batch in batches:
        start, lines = batch
        n_bytes = 0 if isinstance(lines, Unreadable) else len(lines)
        its_position = -2 - start  # neither the position of a line nor the heartbeat's -1
        if attempt.only is not None:
            if attempt.only == its_position or start <= attempt.only <= start + n_bytes:
                yield from votes_in(_trial(batch, attempt), source, Attempt(), judge, funnel)
            continue
        has_killed = any(p == its_position or start <= p <= start + n_bytes for p in attempt.set_aside)
        if isinstance(lines, Unreadable) or not lines or has_killed:
            yield from votes_in(lines_of(batch), source, attempt, judge, funnel)
            continue
        attempt.note(its_position)
        sifted = source.sift(lines, rule)
        for reason, n in sifted.dropped.items():
            funnel.counts.drop(reason, n)
        yield from _judged(sifted.posts, judge, funnel)
        attempt.idle()
        others = (line for begin, end in sifted.others for line in lines_of((start + begin, lines[begin:end])))
        yield from votes_in(others, source, attempt, judge, funnel)


def _judged(posts: Iterable[Submission], judge: KarmaJudge, funnel: Funnel) -> Iterator[Vote]:
    for post in posts:
        url, reason = judge(post)
        if reason is not None:
            funnel.counts.drop(reason)
        else:
            assert url is not None, "a post without a reason has a URL"
            yield Vote(url, registrable_domain(url), post)  # cached: the judge has just computed the domain


def _trial(batch: Batch, attempt: Attempt) -> Iterator[tuple[int, bytes | Unreadable]]:
    """Yield the lines of a batch in which a worker died, each noted in the heartbeat before it is parsed."""
    for position, line in lines_of(batch):
        if position not in attempt.set_aside:
            attempt.note(position)
            yield position, line
    attempt.idle()
