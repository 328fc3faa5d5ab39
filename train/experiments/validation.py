"""The frozen validation set of a comparison: the documents that every corpus holds out, with the first corpus's texts.

A keyed hash of the link decides whether a document is held out (`base/parts/identifiers.py`). So corpora made from the same
pages with different rules hold out the same ids, as far as their rules keep them. The set has the documents that all of
them hold out, ordered by id, which is a hash. The texts are the first corpus's, since rules may change texts. It is
written once, as `validation.jsonl` of {"id", "text"}, and identified by its SHA-256; other experiments use it with
--validation.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.storage import Folder
from webtext.shards import TokenShards
from webtext.shards.writing.token_part import TokenPartWriter, Vocabulary
from webtext.train.evaluate.texts import read_file
from webtext.train.experiments.corpora import Corpus

FILE = "validation.jsonl"


@dataclass(frozen=True, slots=True)
class ValidationSet:
    """Documents (id, text) in the order of their ids; `source` says where they are from."""

    documents: tuple[tuple[str, str], ...]
    source: str

    def to_bytes(self) -> bytes:
        """Return the file's bytes: one line of JSON per document."""
        lines = (json.dumps({"id": i, "text": text}, ensure_ascii=False) + "\n" for i, text in self.documents)
        return "".join(lines).encode()

    @property
    def hash(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def n_bytes(self) -> int:
        """Bytes of text in all documents."""
        return sum(len(text.encode()) for _, text in self.documents)

    def __str__(self) -> str:
        return f"{len(self.documents):,} documents, {self.n_bytes:,} bytes, {self.source}; SHA-256 {self.hash[:12]}…"


def frozen_validation(corpora: Sequence[Corpus], named: str | None, max_bytes: int) -> ValidationSet:
    """Return the set in the file `named`, or the shared held-out documents with the first corpus's texts.

    The latter has at most `max_bytes` of text. InputError if there is none, or if a corpus trains on one of its
    documents.
    """
    found = _shared(corpora, max_bytes) if named is None else read_validation(named)
    ids = {identifier for identifier, _ in found.documents}
    for corpus in corpora:
        n = sum(identifier in ids for identifier in _ids(corpus.train))
        if n:
            raise InputError(
                f"'{corpus.name}' trains on {n:,} of the {len(ids):,} documents of the validation set",
                "name a --validation set that no corpus has in its training part",
            )
    return found


def read_validation(path: str) -> ValidationSet:
    """Read a set from a file that `to_bytes` wrote. InputError names the first bad line."""
    documents = []
    for number, line in enumerate(read_file(path).split(b"\n"), 1):
        if not line:
            continue
        try:
            row = json.loads(line)
            documents.append((str(row["id"]), str(row["text"])))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(
                f"'{path}', line {number:,}: not a document", 'expected {"id": "…", "text": "…"} in each line'
            ) from None
    if not documents:
        raise InputError(f"'{path}' has no documents", f"name the {FILE} of an earlier comparison")
    return ValidationSet(tuple(sorted(documents)), f"'{path}'")


def pack_validation(validation: ValidationSet, corpus: Corpus, out: str) -> str:
    """Pack the set with the corpus's tokenizer, for measuring during training, unless it exists; return its folder."""
    tokenizer = corpus.tokenizer
    vocabulary = Vocabulary(tokenizer.vocab_size, tokenizer.eot_id, tokenizer.hash)
    recipe = Recipe(stage="train.compare", code_version=2, settings=asdict(vocabulary) | {"documents": validation.hash})
    place = Folder(out).location(f"validation-{tokenizer.hash[:12]}")
    if Folder(place).exists("manifest.json") and PartSet.open(place, "tokens").recipe == recipe.to_json():
        return place
    Folder(place).remove_all()
    tokens = SetWriter(place, "tokens", recipe)
    with tokens.part(0, key=validation.hash) as part:
        with TokenPartWriter(part, vocabulary, sys.maxsize) as packed:
            for row, (identifier, text) in enumerate(validation.documents):
                packed.add("validation", tokenizer.encode_numpy(text), id=identifier, source_part=FILE, row=row)
        made = part.publish()
    tokens.seal([made])
    return place


def _shared(corpora: Sequence[Corpus], max_bytes: int) -> ValidationSet:
    held = [set(_ids(corpus.held_out)) for corpus in corpora]
    ids = sorted(set.intersection(*held))
    first = corpora[0]
    if not ids:
        counts = ", ".join(f"'{corpus.name}' {len(mine):,}" for corpus, mine in zip(corpora, held, strict=True))
        raise InputError(
            f"no document is held out by all corpora: {counts}",
            f"build them from the same pages, or name documents that none of them has: --validation {FILE}",
        )
    shared = set(ids)
    texts = {document.id: document.tokens[1:] for document in first.held_out.documents() if document.id in shared}
    documents: list[tuple[str, str]] = []
    n_bytes = 0
    for identifier in ids:
        text = first.tokenizer.decode_bytes(texts[identifier]).decode(errors="replace")
        n_bytes += len(text.encode())
        if documents and n_bytes > max_bytes:
            break
        documents.append((identifier, text))
    some = "" if len(documents) == len(ids) else f"the first of {len(ids):,} "
    return ValidationSet(tuple(documents), f"{some}held out by all, as '{first.name}' has them")


def _ids(shards: TokenShards) -> Iterator[str]:
    for i in range(len(shards)):
        yield from shards.document_ids(i).to_pylist()
