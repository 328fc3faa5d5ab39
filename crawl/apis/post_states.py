"""The current state of Reddit's posts: requested by name, a hundred at a time, stored in files and read in that order.

Only the judged values of each answer are stored, so nothing is kept of a post that its author deleted.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from webtext.base.errors import DryRun, InputError
from webtext.base.parts.partset import Part, PartSet
from webtext.base.progress import Progress
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.crawl.apis.harvest import HarvestFiles, Step, harvest
from webtext.crawl.apis.reddit_api import NAMES_AT_A_TIME, Reddit, open_reddit
from webtext.crawl.apis.settings import ApiSettings
from webtext.crawl.links.harvested import reddit_removal
from webtext.crawl.streams.lines import read_lines

KINDS = {"reddit": "t3_", "reddit-comment": "t1_"}
"""Source of a post -> prefix of Reddit's full names for such posts."""
MISSING = "missing_from_answer"
_ID = re.compile("[0-9a-z]{1,13}")
_REMEDY = "remove that folder to request its posts again"


class PostState(msgspec.Struct, frozen=True):
    """A post today; `removed` is the reason if it is gone, `score` is None if Reddit gave none."""

    name: str
    score: int | None
    over_18: bool
    removed: str | None


class Reading(msgspec.Struct, frozen=True):
    """One line of the files: the post, and the UTC second of the answer."""

    retrieved: int
    data: PostState


def full_name(source: str, post_id: str) -> str | None:
    """Return Reddit's full name of a post; None if it is from another source, or its id is not one of Reddit's.

    >>> full_name("reddit", "88"), full_name("hackernews", "8863"), full_name("reddit", "links.csv:7")
    ('t3_88', None, None)
    """
    prefix = KINDS.get(source)
    return None if prefix is None or not _ID.fullmatch(post_id) else prefix + post_id


def answers_of(links: PartSet, folder: Folder) -> list[HarvestFiles]:
    """Return the files of answers for each part of `links`. Raises InputError if they belong to other links."""
    found = [HarvestFiles(folder.child(part.name.removesuffix(".parquet"))) for part in links.parts]
    for part, files in zip(links.parts, found, strict=True):
        about = files.about()
        if about is not None and about.get("input") != part.record_digest:
            raise InputError(
                f"'{folder.url}' contains answers for links other than those of '{links.folder.url}'",
                "choose another --out",
            )
    return found


def ask_all(links: PartSet, answers: Sequence[HarvestFiles], api: ApiSettings, label: str, run: Run) -> None:
    """Request the missing answers from Reddit; a dry run only prints an estimate."""
    left = []
    for part, files in zip(links.parts, answers, strict=True):
        n_posts = 0 if files.is_complete else _n_posts(links, part) - int((files.cursors or ["0"])[-1])
        if n_posts:
            left.append((part, files, n_posts))
    if not left:
        return
    n_posts = sum(n for _, _, n in left)
    n_requests = sum(-(-n // NAMES_AT_A_TIME) for _, _, n in left)
    run.console.say(
        f"{label}: {n_posts:,} posts to request from Reddit: {n_requests:,} requests, "
        f"about {math.ceil(n_requests / api.requests_per_minute):,} minutes at {api.requests_per_minute:g} per minute"
    )
    if run.dry_run:
        raise DryRun
    with run.console.progress(n_posts, label, "posts") as progress:
        asyncio.run(_ask(links, [(part, files) for part, files, _ in left], api, progress))


def read_answers(locations: Sequence[str]) -> Iterator[Reading]:
    """Yield the readings in these files in order. Raises InputError if a file is damaged."""
    decode = msgspec.json.Decoder(Reading).decode
    for location in locations:
        folder, name = Folder.split(location)
        with folder.open(name) as file:
            for _, line in read_lines(file):
                if not isinstance(line, bytes):
                    raise InputError(f"'{location}' is damaged: {line.cause}", _REMEDY)
                try:
                    yield decode(line)
                except msgspec.DecodeError as error:
                    raise InputError(f"'{location}' is damaged: {error}", _REMEDY) from None


async def _ask(
    links: PartSet, parts: Sequence[tuple[Part, HarvestFiles]], api: ApiSettings, progress: Progress
) -> None:
    async with open_reddit(api) as reddit:
        for part, files in parts:
            with files.folder.held():
                files.folder.remove_leftovers()
                if files.about() is None:
                    files.begin({"input": part.record_digest, "began": int(time.time())})
                await harvest(_Posts(reddit, _names(links, part)), files, api.part_seconds, progress)


class _Posts:
    """The posts of one part, a hundred per step. A cursor is the number of posts requested so far."""

    api = "refresh"
    first = "0"

    def __init__(self, reddit: Reddit, names: Iterator[str]) -> None:
        self._reddit = reddit
        self._names = names
        self._position = 0

    async def ask(self, cursor: str) -> Step:
        while self._position < int(cursor):  # answered before this run
            next(self._names)
            self._position += 1
        names = list(itertools.islice(self._names, NAMES_AT_A_TIME))
        self._position += len(names)
        if not names:
            return Step([], int(time.time()), None)
        found, read = await self._reddit.info(names)
        states = [msgspec.to_builtins(_state(name, found.get(name))) for name in names]
        return Step(states, read, str(self._position) if len(names) == NAMES_AT_A_TIME else None)


def _state(name: str, data: Mapping[str, Any] | None) -> PostState:
    if data is None:
        return PostState(name, None, False, MISSING)
    author, category, text = (
        value if isinstance(value, str) else None
        for value in (data.get("author"), data.get("removed_by_category"), data.get("selftext") or data.get("body"))
    )
    score = data.get("score")
    is_score = isinstance(score, int) and not isinstance(score, bool) and -(2**63) <= score < 2**63
    removed = reddit_removal(author, text, category)
    return PostState(name, score if is_score else None, data.get("over_18") is True, removed)


def _names(links: PartSet, part: Part) -> Iterator[str]:
    """Yield the full names of a part's posts on Reddit, in order."""
    for batch in links.batches(part, ["posts"]):
        for posts in batch["posts"].to_pylist():
            names = (full_name(post["source"], post["post_id"]) for post in posts)
            yield from (name for name in names if name is not None)


def _n_posts(links: PartSet, part: Part) -> int:
    """Return how many of a part's posts are on Reddit."""
    return sum(1 for _ in _names(links, part))
