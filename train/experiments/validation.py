"""The frozen validation set of a comparison: documents that every corpus holds out, by their ids, with one corpus' texts.

Which documents are held out is decided by a keyed hash of the link (`base/identifiers.py`), so corpora made of the same pages
under other rules hold out the same ids, as far as their rules keep them. The set is what all of them hold out, in the order of
the ids, which are hashes; the texts are those of the reference, since rules may change texts. It is written once, as
`validation.jsonl` of {"id", "text"}, and known by its SHA-256; another experiment takes it with --validation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webtext.base.errors import InputError
from webtext.base.partset import PartSet
from webtext.base.partwriter import SetWriter
from webtext.base.recipe import Recipe
from webtext.base.storage import Folder
from webtext.shards import TokenShards
from webtext.shards.shardfile import ShardWriter
from webtext.train.evaluate.texts import read_file
from webtext.train.experiments.corpora import Corpus

FILE = "validation.jsonl"
_SHARD = "validation-00000.tok"


@dataclass(frozen=True, slots=True)
class ValidationSet:
    """Documents in the order of their ids; `source` says where they are from."""

    documents: tuple[tuple[str, str], ...]
    source: str

    def to_bytes(self) -> bytes:
        """The file: a line of JSON each."""
        lines = (json.dumps({"id": i, "text": text}, ensure_ascii=False) + "\n" for i, text in self.documents)
        return "".join(lines).encode()

    @property
    def hash(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def n_bytes(self) -> int:
        """Bytes of text."""
        return sum(len(text.encode()) for _, text in self.documents)

    def __str__(self) -> str:
        return f"{len(self.documents):,} documents, {self.n_bytes:,} bytes, {self.source}; SHA-256 {self.hash[:12]}…"


def frozen_validation(corpora: Sequence[Corpus], named: str | None, max_bytes: int) -> ValidationSet:
    """The set in the file `named`, or what all corpora hold out with the first one's texts, at most `max_bytes` of them.

    InputError where there is none, or where a corpus trains on a document of it.
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
    """The set in a file as this module writes it. InputError names the first line that is none of its."""
    documents = []
    for number, line in enumerate(read_file(path).split(b"\n"), 1):
        if not line:
            continue
        try:
            row = json.loads(line)
            documents.append((str(row["id"]), str(row["text"])))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(
                f"'{path}', line {number:,}: no document", 'expected {"id": "…", "text": "…"} in each line'
            ) from None
    if not documents:
        raise InputError(f"'{path}' holds no documents", f"name the {FILE} of an earlier comparison")
    return ValidationSet(tuple(sorted(documents)), f"'{path}'")


def pack_validation(validation: ValidationSet, corpus: Corpus, out: str) -> str:
    """The set as a token set of the corpus' tokenizer, which runs measure on their way; made once. Returns its folder."""
    tokenizer = corpus.tokenizer
    facts = {"vocab_size": tokenizer.vocab_size, "eot_id": tokenizer.eot_id, "tokenizer_hash": tokenizer.hash}
    recipe = Recipe(stage="train.compare", code_version=2, settings={**facts, "documents": validation.hash})
    place = Folder(out).location(f"validation-{tokenizer.hash[:12]}")
    if Folder(place).exists("manifest.json") and PartSet.open(place, "tokens").recipe == recipe.to_json():
        return place
    Folder(place).remove_all()
    tokens = SetWriter(place, "tokens", recipe)
    with tokens.part(0, key=validation.hash) as part:
        with ShardWriter(part.attach(_SHARD), **facts) as shard:
            rows = []
            for row, (identifier, text) in enumerate(validation.documents):
                ids = tokenizer.encode_numpy(text)
                about = {"id": identifier, "source_part": FILE, "row": row}
                rows.append({"shard": _SHARD, "start": shard.append(ids), "length": len(ids) + 1, **about})
        part.write(rows)
        part.describe(_SHARD, shard.in_manifest())
        part.counts.keep(len(rows))
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
            f"there is no document that all corpora hold out: {counts}",
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
