"""The frozen validation set of a comparison: the documents that every corpus holds out, with the first corpus's texts.

A keyed hash of the link decides whether a document is held out (`base/parts/identifiers.py`). So corpora made from the same
pages with different rules hold out the same ids, as far as their rules keep them. The set has the documents that all of
them hold out, ordered by id, which is a hash. The texts are the first corpus's, since rules may change texts. It is
written once, as `validation.jsonl` of {"id", "text"}; other experiments use it with --validation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webtext.base.errors import InputError
from webtext.shards import TokenShards
from webtext.train.evaluate.texts import read_file
from webtext.train.experiments.corpora import Corpus

FILE = "validation.jsonl"
MAX_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class ValidationSet:
    """Documents (id, text), in the order of their ids."""

    documents: tuple[tuple[str, str], ...]

    @property
    def sizes(self) -> list[int]:
        """Bytes of each document's text."""
        return [len(text.encode()) for _, text in self.documents]

    def to_bytes(self) -> bytes:
        """Return the file's bytes: one line of JSON per document."""
        lines = (json.dumps({"id": i, "text": text}, ensure_ascii=False) + "\n" for i, text in self.documents)
        return "".join(lines).encode()

    def __str__(self) -> str:
        digest = hashlib.sha256(self.to_bytes()).hexdigest()
        return f"{len(self.documents):,} documents, {sum(self.sizes):,} bytes, SHA-256 {digest[:12]}…"


def frozen_validation(corpora: Sequence[Corpus], named: str | None) -> ValidationSet:
    """Return the set in the file `named`, or the shared held-out documents with the first corpus's texts.

    The latter has at most MAX_BYTES of text. InputError if there is none, or if a corpus trains on one of its
    documents.
    """
    found = _shared(corpora) if named is None else read_validation(named)
    ids = {identifier for identifier, _ in found.documents}
    for corpus in corpora:
        if n := sum(identifier in ids for identifier in _ids(corpus.train)):
            raise InputError(
                f"'{corpus.name}' trains on {n:,} of the {len(ids):,} documents of the validation set",
                "name a --validation set that no corpus has in its training part",
            )
    return found


def read_validation(path: str) -> ValidationSet:
    """Read a set from a file that `to_bytes` wrote. InputError names the first bad line."""
    documents = []
    for number, line in enumerate(read_file(path).splitlines(), 1):
        try:
            row = json.loads(line)
            documents.append((str(row["id"]), str(row["text"])))
        except (ValueError, KeyError, TypeError, RecursionError):
            remedy = 'expected {"id": "…", "text": "…"} in each line'
            raise InputError(f"'{path}', line {number:,}: not a document", remedy) from None
    if not any(text for _, text in documents):
        raise InputError(f"'{path}' has no text", f"name the {FILE} of an earlier comparison")
    return ValidationSet(tuple(sorted(documents)))


def _shared(corpora: Sequence[Corpus]) -> ValidationSet:
    held, first = [set(_ids(corpus.held_out)) for corpus in corpora], corpora[0]
    shared = set.intersection(*held)
    if not shared:
        counts = ", ".join(f"'{corpus.name}' {len(mine):,}" for corpus, mine in zip(corpora, held, strict=True))
        raise InputError(
            f"no document is held out by all corpora: {counts}",
            f"build them from the same pages, or name documents that none of them has: --validation {FILE}",
        )
    tokens = {document.id: document.tokens[1:] for document in first.held_out.documents() if document.id in shared}
    documents: list[tuple[str, str]] = []
    n_bytes = 0
    for identifier in sorted(shared):
        text = first.tokenizer.decode_bytes(tokens[identifier]).decode(errors="replace")
        n_bytes += len(text.encode())
        if documents and n_bytes > MAX_BYTES:
            break
        documents.append((identifier, text))
    return ValidationSet(tuple(documents))


def _ids(shards: TokenShards) -> Iterator[str]:
    for i in range(len(shards)):
        yield from shards.document_ids(i).to_pylist()
