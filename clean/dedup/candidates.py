"""Find candidate pairs by LSH bands.

    bands     per source: key, document and sketch of each distinct text with words, for each band, by range of the key
    edges     per range: left, right; texts that share a bucket and may be near duplicates

Two signatures share a bucket if they agree on all rows of a band. Texts in a small bucket are compared pair by pair, by
sketch: one bit per signature value (Li and König, "b-bit minwise hashing", 2010). All texts of a large bucket become
candidates, which costs one shingle set per text instead of a quadratic number of comparisons. A pair too many costs a
comparison later, because `settle` compares signatures and shingles again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.parts.exchange import RangeWriter, count_ranges, range_of_hash, read_range
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.stage import PartContext, PartTask
from webtext.clean.dedup.arrays import GOLDEN, Array, Numbers, Places, fibonacci_hash, fixed, repeated, runs
from webtext.clean.dedup.components import EDGES, EDGES_PER_RANGE, stars
from webtext.clean.dedup.copies import COPIES, passed_rows
from webtext.clean.dedup.documents import Work, row_numbers, sources_of
from webtext.clean.dedup.settings import PERMUTATIONS, DedupSettings
from webtext.clean.dedup.sign import signed_rows

SMALL_BUCKET = 32
KEYS_PER_RANGE = 1 << 20
PAIRS_AT_A_TIME = 1 << 16
CHECK_DEVIATIONS = 4.5
"""A pair at the threshold 0.8 fails the check of signatures, or of sketches, with probability below 10^-5."""

BANDS = pa.schema([("key", pa.uint64()), ("document", pa.uint64()), ("sketch", pa.binary(-(-PERMUTATIONS // 64) * 8))])

Signatures = npt.NDArray[np.uint8]


def find_candidates(work: Work, signatures: list[PartSet], texts: PartSet, copies: PartSet) -> PartSet:
    """Make the sets `bands` and `edges`."""
    n_ranges = count_ranges(sum(source.n_rows for source in work.sources) * work.settings.bands, KEYS_PER_RANGE)
    names = SetName.of(texts), SetName.of(copies)
    payloads = [(source, *names, work.settings, n_ranges) for source in work.sources]
    bands = work.make("bands", _bands_of_source, payloads, [*signatures, texts, copies])
    n_parts = count_ranges(sum(source.n_rows for source in work.sources), EDGES_PER_RANGE)
    tasks = [(SetName.of(bands), work.settings, work.n_indexed, n_parts)] * n_ranges
    return work.make("edges", _edges_in_range, tasks, [bands])


def min_agreement(threshold: float) -> int:
    """Return in how many places two signatures must agree for the pair to be verified.

    The number of agreements is binomial; the result is CHECK_DEVIATIONS deviations below its mean at the threshold.
    """
    mean, deviation = threshold * PERMUTATIONS, math.sqrt(PERMUTATIONS * threshold * (1 - threshold))
    return max(0, math.floor(mean - CHECK_DEVIATIONS * deviation))


def band_keys(signatures: Signatures, band: int, rows: int) -> Numbers:
    """Return a 64-bit hash of each signature's rows in one band; a hash collision only costs a comparison."""
    keys = np.full(len(signatures), band, np.uint64)
    for row in range(band * rows, (band + 1) * rows):
        keys = (keys ^ signatures[:, row]) * GOLDEN
        keys ^= keys >> np.uint64(29)
    return keys * GOLDEN


def bucket_table(signatures: Signatures, bands: int, rows: int) -> npt.NDArray[np.int32]:
    """Return the bucket number of each signature in each band, int32 [n, bands]; -1 if no other signature shares it."""
    table = np.full((len(signatures), bands), -1, np.int32)
    n_buckets = 0
    for band in range(bands):
        keys = band_keys(signatures, band, rows)
        order = np.argsort(keys)
        _, sizes = runs(keys[order])
        shared = sizes > 1
        numbers = np.where(shared, n_buckets + np.cumsum(shared) - 1, -1)
        table[order, band] = np.repeat(numbers, sizes)
        n_buckets += int(shared.sum())
    return table


def sketches(signatures: Signatures) -> Array:
    """Return the lowest bits of the values, packed: uint8 [n, a multiple of 8].

    >>> sketches(np.array([[3, 2, 0, 1]], np.uint8)).tolist()
    [[144, 0, 0, 0, 0, 0, 0, 0]]
    """
    bits = np.packbits(signatures & 1, axis=1)
    return np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))


def _bands_of_source(context: PartContext, task: PartTask) -> None:
    number, (source, texts, copies, settings, n_ranges) = task.payload
    wanted = passed_rows(texts.open(), number)
    for rows in read_range(copies.open(), number, COPIES):
        wanted[row_numbers(np.asarray(rows["document"]))] = False
    with RangeWriter(context.main, BANDS, n_ranges) as exchange:
        first = 0
        for rows, values in signed_rows(source.signatures.open(), source.part, ["has_words"]):
            here = wanted[first : first + rows.num_rows] & np.asarray(rows["has_words"])
            chosen = np.flatnonzero(here)
            signatures = values[chosen].astype(np.uint8)
            keys = np.concatenate([band_keys(signatures, band, settings.rows) for band in range(settings.bands)])
            document = np.uint64(number << 32) | (first + chosen).astype(np.uint64)
            sketch = np.tile(sketches(signatures), (settings.bands, 1))
            columns = [keys, np.tile(document, settings.bands), fixed(sketch)]
            exchange.add(range_of_hash(keys, n_ranges), pa.table(columns, schema=BANDS))
            first += rows.num_rows


def _edges_in_range(context: PartContext, task: PartTask) -> None:
    """Write a range's edges. Memory: 70 bytes per text and band, or 110 if it shares a bucket with another."""
    number, (name, settings, n_indexed, n_ranges) = task.payload
    bands = list(read_range(name.open(), number, BANDS))
    smallest_bucket = len(bands) > 0
    members, sizes = _members(bands)
    pairs = np.concatenate([*_pairs_in_small(members, settings), _pairs_in_large(members)])
    root, document = stars(*pairs[(sources_of(pairs) >= n_indexed).any(axis=1)].T)
    joined = root != document
    with RangeWriter(context.main, EDGES, n_ranges) as exchange:
        edges = pa.table([root[joined], document[joined]], schema=EDGES)
        exchange.add(range_of_hash(fibonacci_hash(document[joined]), n_ranges), edges)
        exchange.about["large_buckets"] = int((sizes > SMALL_BUCKET).sum())
        exchange.about["largest_bucket"] = int(sizes.max(initial=smallest_bucket))


def _members(bands: list[pa.Table]) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return the texts that share a bucket, ordered by bucket, and the sizes of these buckets.

    Takes the tables out of `bands` one by one, so that rows and members are never in memory together.
    """
    keys, sizes = repeated(np.asarray(rows["key"]) for rows in bands)
    dtype = np.dtype(
        [("bucket", "<i8"), ("document", "<u8"), ("sketch", "<u8", BANDS.field("sketch").type.byte_width // 8)]
    )
    places, pieces = Places(keys), [np.empty(0, dtype)]
    while bands:
        rows = bands.pop(0)
        bucket = places.of(np.asarray(rows["key"]))
        some = np.flatnonzero(bucket >= 0)
        piece = np.empty(len(some), dtype)
        piece["bucket"], piece["document"] = bucket[some], np.asarray(rows["document"])[some]
        piece["sketch"] = np.frombuffer(rows["sketch"].buffers()[1], np.uint64).reshape(rows.num_rows, -1)[some]
        pieces.append(piece)
    members = np.concatenate(pieces)
    del pieces
    return members[np.argsort(members["bucket"], kind="stable")], sizes


def _pairs_in_small(members: Array, settings: DedupSettings) -> Iterator[Numbers]:
    """Yield pairs [n, 2] of texts with similar sketches."""
    # bits of different values agree once in two cases
    least = min_agreement((1 + settings.threshold) / 2)
    starts, sizes = runs(members["bucket"])
    ends = np.repeat(np.where(sizes <= SMALL_BUCKET, starts + sizes, 0), sizes)
    left = np.arange(len(ends))
    for gap in range(1, SMALL_BUCKET):  # each member shares its bucket with the one `gap` places later, if there is one
        left = left[left + gap < ends[left]]
        for first in range(0, len(left), PAIRS_AT_A_TIME):
            one = members[left[first : first + PAIRS_AT_A_TIME]]
            other = members[left[first : first + PAIRS_AT_A_TIME] + gap]
            common = PERMUTATIONS - np.bitwise_count(one["sketch"] ^ other["sketch"]).sum(axis=1)
            yield np.stack([one["document"], other["document"]], axis=1)[common >= least]


def _pairs_in_large(members: Array) -> Numbers:
    """Return pairs [n, 2] of each text and the last of its bucket, which isn't in an index if any of them isn't."""
    starts, sizes = runs(members["bucket"])
    last = members["document"][np.repeat(starts + sizes - 1, sizes)]
    return np.stack([last, members["document"]], axis=1)[np.repeat(sizes > SMALL_BUCKET, sizes)]
