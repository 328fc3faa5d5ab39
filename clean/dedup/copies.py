"""Find documents with equal texts: all but the first in priority are copies of it.

texts     per source: the passing documents by range of their text's digest     attachment .passed: a bit per row
copies    per range: document, best (the first of those with its text), by the document's source
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa

from webtext.base.errors import InputError
from webtext.base.parts.exchange import RangeWriter, count_ranges, range_of_hash, read_range
from webtext.base.parts.identifiers import ID_HEX_DIGITS
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.stage import PartContext, PartTask
from webtext.base.storage import write_array
from webtext.clean.dedup.arrays import Mask, Numbers, Places, fibonacci_hash, repeated, runs
from webtext.clean.dedup.documents import FACTS, Work, facts_of, in_priority, sources_of
from webtext.clean.text.arrays import texts_of

TEXTS_PER_RANGE = 1 << 17
TEXTS = pa.schema([("key", pa.uint64()), ("digest", pa.string()), *FACTS])
COPIES = pa.schema([("document", pa.uint64()), ("best", pa.uint64())])
PASSED = ".passed"
_COLUMNS = ("id", "text_digest", "karma", "date", "split", "failed")


def find_copies(work: Work, signatures: list[PartSet]) -> tuple[PartSet, PartSet]:
    """Make the sets `texts` and `copies`."""
    n_ranges = count_ranges(sum(source.n_rows for source in work.sources), TEXTS_PER_RANGE)
    chosen = "".join(source.chosen.digest if source.chosen else "-" for source in work.sources)
    payloads = [(source, n_ranges) for source in work.sources]
    texts = work.make("texts", _texts_of_source, payloads, signatures, depends=chosen)
    tasks = [(SetName.of(texts), len(work.sources))] * n_ranges
    return texts, work.make("copies", _copies_in_range, tasks, [texts])


def passed_rows(texts: PartSet, number: int) -> Mask:
    """Return which rows of a source are compared; in the last byte, bits beyond the rows are cleared."""
    bits = texts.folder.read_bytes(texts.attachment(number, PASSED))
    return np.unpackbits(np.frombuffer(bits, np.uint8)).view(np.bool_)


def _texts_of_source(context: PartContext, task: PartTask) -> None:
    number, (source, n_ranges) = task.payload
    passed = np.ones(source.n_rows, np.bool_) if source.chosen is None else source.chosen.mask()
    if passed.shape != (source.n_rows,):
        raise InputError(
            f"the mask of passing rows of part {source.part} has shape {passed.shape}, but the part has {source.n_rows} rows",
            "make the signals again: they must match the documents row for row",
        )
    with RangeWriter(context.main, TEXTS, n_ranges) as exchange:
        first = 0
        for signed in source.signatures.open().batches(source.part, _COLUMNS):
            here = passed[first : first + signed.num_rows]
            failed = np.flatnonzero(here & signed["failed"].is_valid().to_numpy(zero_copy_only=False))
            context.main.write_table(pa.table([first + failed, signed["failed"].take(failed)], ["row", "reason"]))
            here[failed] = False
            rows = np.flatnonzero(here)
            place = f"part {source.part} of '{source.signatures.url}'"
            digest = signed["text_digest"].take(rows)
            facts = {"key": _keys(digest, place), "digest": digest} | facts_of(number, source, signed, first, rows)
            exchange.add(range_of_hash(facts["key"], n_ranges), pa.table(facts, schema=TEXTS))
            first += signed.num_rows
        exchange.about["passed"] = int(passed.sum())
    with open(context.main.attach(f"part-{number:05d}{PASSED}"), "wb") as file:
        write_array(file, np.packbits(passed))


def _copies_in_range(context: PartContext, task: PartTask) -> None:
    """Write the copies in a range. Memory: 8 bytes per text, and 150 for each that may be a copy or have one."""
    number, (name, n_sources) = task.payload
    texts = name.open()
    several, _ = repeated(np.asarray(rows["key"]) for rows in read_range(texts, number, TEXTS))
    places = Places(several)
    some = (rows.filter(places.of(np.asarray(rows["key"])) >= 0) for rows in read_range(texts, number, TEXTS))
    ordered = in_priority(pa.Table.from_batches(some, TEXTS), "digest")
    starts, sizes = runs(np.asarray(ordered["digest"]))
    document = np.asarray(ordered["document"])
    best = np.repeat(document[starts], sizes)
    copies = document != best
    with RangeWriter(context.main, COPIES, n_sources) as exchange:
        exchange.add(sources_of(document[copies]), pa.table([document[copies], best[copies]], schema=COPIES))


def _keys(digests: pa.Array, place: str) -> Numbers:
    """Return a hash of each hex digest; raises InputError with `place` if one has another length."""
    digits, offsets = texts_of(digests)
    if (np.diff(offsets) != ID_HEX_DIGITS).any():
        raise InputError(
            f"a text_digest in {place} is not {ID_HEX_DIGITS} hex digits",
            "make the documents again with this version of webtext",
        )
    words = digits[offsets[0] : offsets[-1]].copy().view(np.uint64).reshape(-1, ID_HEX_DIGITS // 8)
    return functools.reduce(lambda key, word: fibonacci_hash(key ^ word), words.T, np.zeros(len(digests), np.uint64))
