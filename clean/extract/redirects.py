"""Votes for a page by links that redirect to it: pages have a row with outcome `linked` for each of them.

    pages ──► _votes/redirects    of each part, the links that redirect to another link
          ──► _votes/votes        all of them, by range of the URL where their redirects end; one task, see `_resolve`

URLs are compared by 64-bit hashes: at 10^8 pages, a vote is counted for a wrong page by chance once in 10^5 corpora.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.parts.exchange import RangeWriter, abouts, range_of_hash, read_range
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.storage import Folder

WORK, ENDS, POSTS = "_votes", ".ends", "posts"
VOTES_PER_RANGE = 256  # few, because the votes for a page are anywhere
_VOTE = [("link_id", pa.string()), ("karma", pa.int64()), ("split", pa.string()), (POSTS, pa.string())]
_REDIRECT = pa.schema([("url", pa.uint64()), ("end", pa.uint64()), *_VOTE])  # hashes; first, where one redirect ends


@dataclass(frozen=True, slots=True, order=True)
class VotedLink:
    """A link that leads to a page."""

    link_id: str
    karma: int
    split: str
    posts: str  # JSON, which takes a fifth of the memory of the objects

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> VotedLink:
        """Return the vote of a pages row."""
        return cls(row["link_id"], row["karma"], row["split"], json.dumps(row[POSTS]))


def find_redirects(sets: Sequence[PartSet], out: str, run: Run) -> SetName | None:
    """Return the set of votes by links that redirect to another link, for `votes_for`; None if there are none."""
    parts = [(pages, part) for pages in sets for part in range(len(pages.parts))]
    work = Folder(out).child(WORK)

    def stage(function: Any, tasks: Sequence[PartTask], name: str, settings: Mapping[str, Any]) -> PartSet:
        recipe = Recipe(stage=f"clean.{name}", code_version=1, settings=settings)
        outputs = {name: (work.location(name), "exchange")}
        return run_parts(function, tasks, recipe=recipe, outputs=outputs, parents=sets, run=run)[name]

    payloads = [((pages.source(part),), (SetName.of(pages), part)) for pages, part in parts]
    tasks = [PartTask(index=i, sources=sources, payload=payload) for i, (sources, payload) in enumerate(payloads)]
    redirects = stage(_select, tasks, "redirects", {})
    found = abouts(redirects)
    n_ranges = -(-sum(about["records"] for about in found) // VOTES_PER_RANGE)
    task = PartTask(index=0, sources=(), payload=(SetName.of(redirects), n_ranges), depends=redirects.hash)
    return SetName.of(stage(_resolve, [task], "votes", {"ranges": n_ranges})) if n_ranges else None


def votes_for(rows: Sequence[Mapping[str, Any]], votes: SetName | None) -> dict[str, tuple[VotedLink, ...]]:
    """Return link_id -> votes of links that redirect to the page, for rows of fetched pages that have such votes."""
    if votes is None:
        return {}
    opened = votes.open()
    ends = np.frombuffer(opened.folder.read_bytes(opened.attachment(0, ENDS)), "<u8")
    urls = {row["link_id"]: [_key(row[name]) for name in ("url", "final_url") if row[name] is not None] for row in rows}
    wanted = np.intersect1d(ends, np.array([key for keys in urls.values() for key in keys], np.uint64))
    found: dict[int, set[VotedLink]] = {key: set() for key in wanted.tolist()}
    for number in np.unique(range_of_hash(wanted, opened.recipe["settings"]["ranges"])).tolist():
        for batch in read_range(opened, number, _REDIRECT):
            for row in batch.filter(pc.is_in(batch["end"], pa.array(wanted))).to_pylist():
                found[row["end"]].add(VotedLink(row["link_id"], row["karma"], row["split"], row[POSTS]))
    joined = {link: {vote for key in keys for vote in found.get(key, ())} for link, keys in urls.items()}
    return {link: tuple(sorted(each)) for link, each in joined.items() if each}


def _key(url: str) -> int:
    return int.from_bytes(hashlib.blake2b(url.encode(), digest_size=8).digest(), "little")


def _select(context: PartContext, task: PartTask) -> None:
    """Write the links of a part that redirect to another link, in a worker."""
    pages, part = task.payload
    opened = pages.open()
    columns = ["link_id", "url", "final_url", "outcome", "karma", "split", POSTS]
    with RangeWriter(context.main, _REDIRECT, 1) as ranges:
        for batch in opened.batches(part, columns):
            linked = batch.filter(pc.and_(pc.equal(batch["outcome"], "linked"), pc.is_valid(batch["final_url"])))
            rows = [
                {"url": _key(row["url"]), "end": _key(row["final_url"])} | dataclasses.asdict(VotedLink.of(row))
                for row in linked.to_pylist()
            ]
            ranges.add(np.zeros(len(rows), np.uint64), pa.Table.from_pylist(rows, schema=_REDIRECT))


def _resolve(context: PartContext, task: PartTask) -> None:
    """Write all redirects by the URL where they end, and these URLs' hashes; 300 bytes of memory for each redirect."""
    redirects, n_ranges = task.payload
    opened, forward = redirects.open(), dict[int, int]()
    for batch in read_range(opened, 0, _REDIRECT):
        forward.update(zip(batch["url"].to_pylist(), batch["end"].to_pylist(), strict=True))
    resolved, found = dict[int, int](), set[int]()
    with RangeWriter(context.main, _REDIRECT, n_ranges) as ranges:
        for batch in read_range(opened, 0, _REDIRECT):
            ends = [_end(url, forward, resolved) for url in batch["end"].to_pylist()]
            found.update(ends)
            keys, table = np.array(ends, np.uint64), pa.Table.from_batches([batch])
            ranges.add(range_of_hash(keys, n_ranges), table.set_column(1, "end", pa.array(keys)))
    context.main.attach(f"part-{task.index:05d}{ENDS}").write_bytes(np.array(sorted(found), "<u8").tobytes())


def _end(url: int, forward: Mapping[int, int], ends: dict[int, int]) -> int:
    """Return where a chain of redirects between links ends; each URL of a ring is its own end.

    `ends` caches the end of every URL on the way, so that a long chain is followed only once.
    """
    passed: dict[int, int] = {}
    while url in forward and url not in ends and url not in passed:
        passed[url] = len(passed)
        url = forward[url]
    ring = list(passed)[passed.get(url, len(passed)) :]
    end = ends.get(url, url)
    ends.update(dict.fromkeys(passed, end) | {each: each for each in ring})
    return end
