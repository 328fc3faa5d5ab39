"""Join candidate pairs and copies into components; no edge leaves a component, so each can be settled alone.

    components    document, root (the component's first document), near (it has several distinct texts), by source

Up to JOINED_EDGES edges are joined by one task, in memory. More are first rewritten by part tasks, in rounds of
large-star and small-star (Kiveris et al., "Connected Components in MapReduce and Beyond", 2014), until every document
has one edge, to its component's first:

    large-star    a node connects its larger neighbours with the smallest of its neighbours and itself
    small-star    a node connects itself and its smaller neighbours with the smallest of these

Both keep the components; neither adds edges. Each takes one set of parts, `stars-00` and so on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from webtext.base.parts.exchange import RangeWriter, abouts, count_ranges, range_of_hash, read_range
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.stage import PartContext, PartTask
from webtext.clean.dedup.arrays import Numbers, Places, fibonacci_hash, runs
from webtext.clean.dedup.documents import COPY, Work, sources_of

JOINED_EDGES = 1 << 23
"""Edges that one task joins, with at most 100 bytes of memory each."""
EDGES_PER_RANGE = 1 << 20
EDGES = pa.schema([("left", pa.uint64()), ("right", pa.uint64())])
MEMBERS = pa.schema([("document", pa.uint64()), ("root", pa.uint64()), ("near", pa.bool_())])


def find_components(work: Work, edges: PartSet, copies: PartSet) -> PartSet:
    """Make the set `components` of candidate pairs (`edges`) and of copies with their texts' best (`copies`)."""
    n_sources = len(work.sources)
    ranges = (SetName.of(edges), abouts(edges)[0]["ranges"], np.uint64(0)), (SetName.of(copies), n_sources, COPY)
    n_edges = sum(about["records"] for opened in (edges, copies) for about in abouts(opened))
    if n_edges <= JOINED_EDGES:
        return work.make("components", _join_all, [(ranges, n_sources)], [edges, copies])
    n_ranges = count_ranges(n_edges, EDGES_PER_RANGE)
    payloads = [((name, number, mark), n_ranges) for name, several, mark in ranges for number in range(several)]
    made = work.make("stars-00", _in_both_directions, payloads, [edges, copies])
    changed = number = 1
    while changed:
        changed = 0
        for smaller in (False, True):
            tasks = [(SetName.of(made), smaller, n_ranges)] * n_ranges
            made = work.make(f"stars-{number:02}", _star, tasks, [made])
            changed += sum(about["changed"] for about in abouts(made))
            number += 1
    return work.make("components", _members_of_stars, [(SetName.of(made), n_sources)] * n_ranges, [made])


def stars(left: Numbers, right: Numbers) -> tuple[Numbers, Numbers]:
    """Return for each document of the pairs (left[i], right[i]) the first of its component, and the document itself.

    >>> [each.tolist() for each in stars(np.array([4, 9], np.uint64), np.array([7, 7], np.uint64))]
    [[4, 4, 4], [4, 7, 9]]
    """
    documents, places = np.unique(np.concatenate([left, right]), return_inverse=True)
    one, other = places[: len(left)], places[len(left) :]
    root = np.arange(len(documents))
    while len(apart := np.flatnonzero(root[one] != root[other])):
        one, other = root[one[apart]], root[other[apart]]
        np.minimum.at(root, np.maximum(one, other), np.minimum(one, other))
        while (root[root] != root).any():
            root = root[root]
    return documents[root], documents


def _edges_of(name: SetName, number: int, mark: np.uint64) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the edges in a range; `mark` is added to the left documents. The schema of `copies` differs in names only."""
    for rows in read_range(name.open(), number, EDGES):
        yield np.asarray(rows["left"]) | mark, np.asarray(rows["right"])


def _join_all(context: PartContext, task: PartTask) -> None:
    ranges, n_sources = task.payload[1]
    pairs = [np.empty((2, 0), np.uint64)]
    for name, several, mark in ranges:
        pairs += [np.stack(some) for number in range(several) for some in _edges_of(name, number, mark)]
    root, document = stars(*np.concatenate(pairs, axis=1))
    with RangeWriter(context.main, MEMBERS, n_sources) as exchange:
        _add_members(exchange, root, document, np.unique(root[(document != root) & (document < COPY)]))


def _in_both_directions(context: PartContext, task: PartTask) -> None:
    each, n_ranges = task.payload[1]
    with RangeWriter(context.main, EDGES, n_ranges) as exchange:
        for left, right in _edges_of(*each):
            _add_edges(exchange, left, right, n_ranges)
            _add_edges(exchange, right, left, n_ranges)


def _add_edges(exchange: RangeWriter, left: Numbers, right: Numbers, n_ranges: int) -> None:
    """Add edges by range of their left documents."""
    exchange.add(range_of_hash(fibonacci_hash(left), n_ranges), pa.table([left, right], schema=EDGES))


def _star(context: PartContext, task: PartTask) -> None:
    """Apply large-star to a range of edges in both directions, or small-star to edges from the larger document only.

    Large-star writes edges from the larger document, small-star both directions. Memory: 32 bytes per left document.
    """
    number, (name, smaller, n_ranges) = task.payload
    pieces = [_least(left, right) for left, right in _edges_of(name, number, np.uint64(0))]
    documents, least = _least(*np.concatenate([np.empty((2, 0), np.uint64), *pieces], axis=1))
    changed = 0
    with RangeWriter(context.main, EDGES, n_ranges) as exchange:
        for left, right in _edges_of(name, number, np.uint64(0)):
            if not smaller:
                up = right > left
                left, right = left[up], right[up]
            first = np.minimum(least[np.searchsorted(documents, left)], left)
            changed += int((first != (right if smaller else left)).sum())
            # small-star's edge to the smallest neighbour stays; it is the node's own
            document = np.where(first == right, left, right)
            document, first = np.unique(np.stack([document, first], axis=1), axis=0).T.copy()
            _add_edges(exchange, document, first, n_ranges)
            if smaller:
                _add_edges(exchange, first, document, n_ranges)
        exchange.about["changed"] = changed


def _least(left: Numbers, right: Numbers) -> tuple[Numbers, Numbers]:
    """Return the left documents, ascending, and the smallest neighbour of each."""
    order = np.lexsort((right, left))
    starts, _ = runs(left[order])
    return left[order][starts], right[order][starts]


def _members_of_stars(context: PartContext, task: PartTask) -> None:
    """Write the components whose roots are in a range, from stars in both directions."""
    number, (name, n_sources) = task.payload
    roots, near = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for left, right in _edges_of(name, number, np.uint64(0)):
        down = left < right
        roots.append(np.unique(left[down]))
        near.append(np.unique(left[down & (right < COPY)]))
    root, several = np.unique(np.concatenate(roots)), np.unique(np.concatenate(near))
    with RangeWriter(context.main, MEMBERS, n_sources) as exchange:
        _add_members(exchange, root, root, several)
        for left, right in _edges_of(name, number, np.uint64(0)):
            down = left < right
            _add_members(exchange, left[down], right[down], several)


def _add_members(exchange: RangeWriter, root: Numbers, document: Numbers, several: Numbers) -> None:
    """Add documents of components by source; `several` are the roots (sorted) of components of several texts."""
    rows = pa.table([document & ~COPY, root, Places(several).of(root) >= 0], schema=MEMBERS)
    exchange.add(sources_of(document), rows)
