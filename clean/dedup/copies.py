"""Find documents with equal texts: all but the first in priority are copies of it.

texts     per source: the passing documents by range of their text's digest     attachment .passed: a bit per row
copies    per range: document, best (the first of those with its text), by the document's source
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from webtext.base.errors import InputError
from webtext.base.parts.exchange import RangeWriter, count_ranges, range_of_hash, read_range
from webtext.base.parts.identifiers import ID_HEX_DIGITS
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.stage import PartContext, PartTask
from webtext.base.storage import write_array
from webtext.clean.dedup.documents import (
    FACTS,
    Array,
    Mask,
    Numbers,
    Source,
    Work,
    column,
    facts_of,
    in_priority,
    places_in,
    repeated,
    sources_of,
)
from webtext.clean.text.arrays import texts_of

TEXTS_PER_RANGE = 1 << 17
DIGEST_BYTES = ID_HEX_DIGITS // 2
TEXTS = pa.schema([("digest", pa.binary(DIGEST_BYTES)), *FACTS])
COPIES = pa.schema([("document", pa.uint64()), ("best", pa.uint64())])
FIRSTS_AT_A_TIME = 1 << 17
PASSED = ".passed"
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
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
    _check_mask(passed, source)
    with RangeWriter(context.main, TEXTS, n_ranges) as exchange:
        first = 0
        for signed in source.signatures.open().batches(source.part, _COLUMNS):
            here = passed[first : first + signed.num_rows]
            failed = np.flatnonzero(here & signed["failed"].is_valid().to_numpy(zero_copy_only=False))
            context.main.write_table(
                pa.table([first + failed, signed["failed"].take(pa.array(failed))], ["row", "reason"])
            )
            here[failed] = False
            rows = np.flatnonzero(here)
            place = f"part {source.part} of '{source.signatures.url}'"
            digest = _digests(signed["text_digest"].take(pa.array(rows)), place)
            facts = facts_of(number, source, signed, first, rows)
            exchange.add(
                range_of_hash(_first_half(digest), n_ranges), pa.table({"digest": digest} | facts, schema=TEXTS)
            )
            first += signed.num_rows
        exchange.about["passed"] = int(passed.sum())
    with open(context.main.attach(f"part-{number:05d}{PASSED}"), "wb") as file:
        write_array(file, np.packbits(passed))


def _check_mask(mask: Mask, source: Source) -> None:
    if mask.shape != (source.n_rows,):
        raise InputError(
            f"the mask of passing rows of part {source.part} has shape {mask.shape}, but the part has {source.n_rows} rows",
            "make the signals again: they must match the documents row for row",
        )


def _copies_in_range(context: PartContext, task: PartTask) -> None:
    """Write the copies in a range, which may have any number of equal texts: 32 bytes of memory for each."""
    number, (name, n_sources) = task.payload
    texts = name.open()
    several, _ = repeated(_first_half(rows["digest"]) for rows in read_range(texts, number, TEXTS))
    firsts, waiting, seen = TEXTS.empty_table(), 0, []
    for rows in read_range(texts, number, TEXTS):
        rows = rows.filter(pa.array(places_in(several, _first_half(rows["digest"])) >= 0))
        some = np.empty(rows.num_rows, _SEEN)
        some["digest"], some["document"] = _as_keys(rows["digest"]), column(rows, "document")
        seen.append(some)
        firsts, waiting = pa.concat_tables([firsts, pa.Table.from_batches([rows])]), waiting + rows.num_rows
        if waiting > FIRSTS_AT_A_TIME:
            firsts, waiting = _firsts(firsts), 0
    firsts = _firsts(firsts)
    with RangeWriter(context.main, COPIES, n_sources) as exchange:
        keys, bests = _as_keys(firsts["digest"]), column(firsts, "document")
        for some in seen:
            best = bests[np.searchsorted(keys, some["digest"])]
            copies = best != some["document"]
            document = some["document"][copies]
            exchange.add(sources_of(document), pa.table([document, best[copies]], schema=COPIES))


_SEEN = np.dtype([("digest", f"S{DIGEST_BYTES}"), ("document", "<u8")])


def _firsts(rows: pa.Table) -> pa.Table:
    """Return the first row in priority of each digest, by digest."""
    _, group = np.unique(_as_keys(rows["digest"]), return_inverse=True)
    ordered = in_priority(rows.append_column("group", pa.array(group)), group=group)
    _, first = np.unique(column(ordered, "group"), return_index=True)
    return ordered.take(pa.array(first)).select(TEXTS.names)


def _as_keys(digests: pa.Array | pa.ChunkedArray) -> Array:
    """Return digests as numpy's strings, which compare like them: a trailing zero is as good as none in equal lengths."""
    return _fixed_bytes(digests).view(f"S{DIGEST_BYTES}").ravel()


def _first_half(digests: pa.Array) -> Numbers:
    return _fixed_bytes(digests)[:, :8].copy().view("<u8").ravel()


def _fixed_bytes(digests: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    digests = digests.combine_chunks() if isinstance(digests, pa.ChunkedArray) else digests
    values = np.frombuffer(digests.buffers()[1] or b"", np.uint8)
    return values[digests.offset * DIGEST_BYTES :][: len(digests) * DIGEST_BYTES].reshape(-1, DIGEST_BYTES)


def _digests(texts: pa.Array, place: str) -> pa.Array:
    """Convert hex text digests to their 16 bytes; raises InputError with `place` if one isn't a digest."""
    digits, offsets = texts_of(texts)
    digits = digits[offsets[0] : offsets[-1]]
    if (np.diff(offsets) != ID_HEX_DIGITS).any() or not np.isin(digits, _HEX_DIGITS).all():
        raise InputError(
            f"a text_digest in {place} is not {ID_HEX_DIGITS} hex digits",
            "make the documents again with this version of webtext",
        )
    nibbles = (digits & 0x0F) + np.where(digits >= ord("a"), 9, 0).astype(np.uint8)
    packed = np.ascontiguousarray(nibbles[0::2] << 4 | nibbles[1::2])
    return pa.Array.from_buffers(pa.binary(DIGEST_BYTES), len(texts), [None, pa.py_buffer(packed)])
