"""The texts to remove on request, with their signatures and where their documents are stored.

Texts of this build are already signed. If the set `dropped` of another build is given as a removal list, the texts that
were removed on request there are read from that build's documents and signed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from webtext.base.errors import InputError
from webtext.base.parts.lineage import parents_of
from webtext.base.parts.partset import PartSet, SetName
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.dedup.sign import TEXTS_PER_BATCH, sign_batch
from webtext.clean.removal.requests import Line


@dataclass(frozen=True, slots=True)
class RequestedText:
    """A text to remove, the line that requests it, and a document that contains it."""

    id: str
    line: Line
    digest: bytes
    documents: PartSet
    part: int
    row: int
    has_words: bool
    signature: npt.NDArray[np.uint8]


def distinct(texts: Iterable[RequestedText]) -> list[RequestedText]:
    """Return one entry per text, the one with the smallest id, sorted by id, whatever the order of parts and lists."""
    found: dict[bytes, RequestedText] = {}
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
        signatures, has_words = sign_batch(found["text"], settings)
        columns = found["id"].to_pylist(), found["text_digest"].to_pylist()
        for i, (identifier, digest) in enumerate(zip(*columns, strict=True)):
            yield RequestedText(
                id=identifier,
                line=Line(place, 0, lines[identifier]),
                digest=bytes.fromhex(digest),
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
