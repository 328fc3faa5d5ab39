"""Finds the mirrors of a document that is removed on request, so that its text doesn't return under another URL.

Duplicates are found as if nothing had been requested. Then each kept document near a requested one is removed with it:
one with equal text, or with an exact Jaccard similarity at dedup's threshold or above. Each document that was dropped
as the duplicate of a removed one is listed as its mirror. So the corpus with a list is the corpus without it, minus
entire clusters: no document enters a corpus because another was removed, and parts without a removed document don't
change.

Texts of this build are already signed. If the set `dropped` of another build is given as a removal list, the texts that
were removed on request there are read from that build's documents and signed again.

A requested document is compared even if it was dropped by a rule or as a duplicate of another document. Chains end
after one step: if A ~ B ~ C but A is unlike C, a request for A removes B, its duplicate, but not C.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.lineage import parents_of
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.clean.dedup.documents import Chosen
from webtext.clean.dedup.find import Duplicates
from webtext.clean.dedup.matching import Bands, sets_of_rows
from webtext.clean.dedup.reference import jaccard
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import KIND, TEXTS_PER_BATCH, low_bytes, sign_batch, sign_documents
from webtext.clean.removal.removals import Removed, Request
from webtext.clean.removal.requests import Line

REQUESTS_AT_A_TIME = 1 << 14

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Set = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class RequestedText:
    """A text to remove, the line that requests it, and a document that contains it."""

    id: str
    line: Line
    digest: str
    documents: PartSet
    part: int
    row: int
    has_words: bool
    signature: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The documents that requested ones are compared with: rows that pass, minus `duplicates`, signed in `work`."""

    documents: PartSet
    duplicates: Duplicates
    chosen: Sequence[Chosen]
    settings: DedupSettings
    work: Folder

    def add_clusters(self, removed: Removed, run: Run) -> None:
        """Add the mirrors of the documents that lines name to `removed`.

        Memory: the requested documents' signatures, and the shingles of REQUESTS_AT_A_TIME of them.
        """
        if not any(removed.requested) and not removed.earlier:
            return
        signatures = sign_documents(self.documents, self.work.location(KIND), self.settings, run)  # dedup has done so
        earlier = (texts_of_earlier(name, self.settings) for name in removed.earlier)
        texts = distinct(itertools.chain(self._texts(removed, signatures), *earlier))
        for start in range(0, len(texts), REQUESTS_AT_A_TIME):
            self._add_mirrors(texts[start : start + REQUESTS_AT_A_TIME], removed, signatures)
        self._add_duplicates(removed, signatures)
        held = {why.line.list for requested in removed.requested for why in requested.values()}
        removed.parents += [name.open() for name in removed.earlier if name.url in held]

    def _texts(self, removed: Removed, signatures: PartSet) -> Iterator[RequestedText]:
        """Yield the texts of this build that lines name."""
        names = ("id", "text_digest", "has_words")
        for part, requested in enumerate(removed.requested):
            if not requested:
                continue
            rows = np.array(sorted(requested), np.int64)
            facts = signatures.table(part, names).take(pa.array(rows))
            columns = (facts[name].to_pylist() for name in names)
            low = low_bytes(signatures, part)[rows]
            for row, name, digest, has_words, signature in zip(rows.tolist(), *columns, low, strict=True):
                yield RequestedText(name, requested[row].line, digest, self.documents, part, row, has_words, signature)

    def _add_mirrors(self, texts: Sequence[RequestedText], removed: Removed, signatures: PartSet) -> None:
        """Add the kept documents near one of `texts`; of several texts, the most similar by signature is recorded."""
        signed = np.array([text.signature for text in texts], np.uint8)
        with_words = np.array([text.has_words for text in texts])
        bands = Bands(signed, with_words, self.settings.threshold, self.settings.bands, self.settings.rows)
        pairs = []  # by part: rows, which of the texts, most similar first
        for part in range(len(self.documents.parts)):
            rows = self._staying(part, removed)
            digests = signatures.table(part, ["text_digest"])["text_digest"].take(pa.array(rows))
            rows = rows[~_add_copies(part, rows, digests, texts, removed)]
            pairs.append(bands.near(rows, low_bytes(signatures, part)))
        needed = np.unique(np.concatenate([which for _, which in pairs]))
        sets = self._sets_of_texts({i: texts[i] for i in needed.tolist()})
        for part, (rows, which) in enumerate(pairs):
            mine = dict(sets_of_rows(self.documents, part, np.unique(rows), self.settings.shingle_words))
            for row, i in zip(rows.tolist(), which.tolist(), strict=True):
                if row not in removed.requested[part]:
                    similarity = jaccard(mine[row], sets[i])
                    if similarity >= self.settings.threshold:
                        removed.requested[part][row] = _with(texts[i], similarity)

    def _staying(self, part: int, removed: Removed) -> Integers:
        """Return the rows of a part that would be kept."""
        mask = self.chosen[part].mask()
        mask[self.duplicates.table(part)["row"].to_numpy()] = False
        mask[list(removed.requested[part])] = False
        return np.flatnonzero(mask)

    def _add_duplicates(self, removed: Removed, signatures: PartSet) -> None:
        """Add the documents that were dropped as duplicates of a removed one."""
        gone: dict[str, Request] = {}
        for part, requested in enumerate(removed.requested):
            rows = sorted(requested)
            identifiers = signatures.table(part, ["id"])["id"].take(pa.array(rows, pa.int64())).to_pylist()
            gone.update(zip(identifiers, (requested[row] for row in rows), strict=True))
        for part, requested in enumerate(removed.requested):
            found = self.duplicates.table(part)
            found = found.filter(pc.is_in(found["duplicate_of"], pa.array(list(gone), pa.string())))
            for each in found.to_pylist():
                why = gone[each["duplicate_of"]]
                requested.setdefault(each["row"], Request(why.line, each["duplicate_of"], each["similarity"]))

    def _sets_of_texts(self, texts: Mapping[int, RequestedText]) -> dict[int, Set]:
        """Return the shingle sets by the keys of `texts`; each part is read once."""
        sets: dict[int, Set] = {}
        by_part: dict[tuple[str, int], dict[int, int]] = {}
        documents = {text.documents.folder.url: text.documents for text in texts.values()}
        for number, text in texts.items():
            by_part.setdefault((text.documents.folder.url, text.part), {})[text.row] = number
        for (url, part), numbers in by_part.items():
            rows = np.array(sorted(numbers), np.int64)
            found = sets_of_rows(documents[url], part, rows, self.settings.shingle_words)
            sets |= {numbers[row]: values for row, values in found}
        return sets


def _add_copies(
    part: int, rows: Integers, digests: pa.ChunkedArray, texts: Sequence[RequestedText], removed: Removed
) -> Mask:
    """Add the rows whose text, by digest, equals one of `texts`; return a mask of them."""
    by_digest = {text.digest: text for text in texts}
    copies = pc.is_in(digests, pa.array(list(by_digest))).to_numpy()
    for i in np.flatnonzero(copies).tolist():
        removed.requested[part][int(rows[i])] = _with(by_digest[digests[i].as_py()], 1.0)
    return np.asarray(copies, np.bool_)


def _with(text: RequestedText, similarity: float) -> Request:
    return Request(text.line, text.id, similarity)


def distinct(texts: Iterable[RequestedText]) -> list[RequestedText]:
    """Return one entry per text, the one with the smallest id, sorted by id, whatever the order of parts and lists."""
    found: dict[str, RequestedText] = {}
    for text in texts:
        known = found.get(text.digest)
        if known is None or text.id < known.id:
            found[text.digest] = text
    return sorted(found.values(), key=lambda text: (text.id, text.digest))


def texts_of_earlier(name: SetName, settings: DedupSettings) -> Iterator[RequestedText]:
    """Yield the texts removed on request in the build of a set `dropped`. Raises InputError without its documents."""
    dropped = name.open()
    documents = _documents_of(dropped)
    for part in range(len(dropped.parts)):
        rows = dropped.table(part, ["id", "request"])
        gone = rows.filter(pc.is_valid(rows["request"]))
        lines = dict(zip(gone["id"].to_pylist(), gone["request"].to_pylist(), strict=True))
        if lines:
            yield from _signed(documents, part, lines, name.url, settings)


def _signed(
    documents: PartSet, part: int, lines: Mapping[str, str], place: str, settings: DedupSettings
) -> Iterator[RequestedText]:
    wanted = pa.array(list(lines), pa.string())
    start = 0
    for batch in documents.batches(part, ["id", "text", "text_digest"], TEXTS_PER_BATCH):
        rows = np.flatnonzero(pc.is_in(batch["id"], wanted).to_numpy(zero_copy_only=False))
        found = batch.take(pa.array(rows))
        signatures, has_words = sign_batch(found["text"], settings.shingle_words, settings.permutations)
        columns = found["id"].to_pylist(), found["text_digest"].to_pylist()
        for i, (identifier, digest) in enumerate(zip(*columns, strict=True)):
            yield RequestedText(
                id=identifier,
                line=Line(place, 0, lines[identifier]),
                digest=digest,
                documents=documents,
                part=part,
                row=start + int(rows[i]),
                has_words=bool(has_words[i]),
                signature=signatures[i].astype(np.uint8),
            )
        start += len(batch)


def _documents_of(dropped: PartSet) -> PartSet:
    made_of = {parent["hash"] for parent in dropped.manifest["parents"]}
    for parent in parents_of(dropped):
        if parent.kind in ("documents", "corpus") and parent.hash in made_of:
            return parent
    raise InputError(
        f"the documents of '{dropped.folder.url}' are not at their recorded location, and their texts are needed",
        "move them back, or leave this removal list out",
    )
