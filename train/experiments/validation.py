"""The frozen validation set of a comparison, and each model's loss on each of its documents.

A keyed hash of the link decides whether a document is held out (`base/parts/identifiers.py`). So corpora made from the same
pages with different rules hold out the same ids, as far as their rules keep them. The set has the documents that all of
them hold out, ordered by id, which is a hash, with the first corpus's texts, since rules may change texts.

A loss is computed in float32, in windows of one context that don't overlap, over all documents one after the other, each
after an end-of-text. The ends of all documents but the last are predicted too, and have no bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.shards import TokenShards
from webtext.shards.writing.pack import need_eot_id
from webtext.tokenizer import Tokenizer
from webtext.train.checkpoint.checkpoint import find_checkpoint, load_model
from webtext.train.evaluate.texts import read_file
from webtext.train.experiments.corpora import Corpus
from webtext.train.experiments.trials import Trial

FILE, MEASURES = "validation.jsonl", "measures.json"
MAX_BYTES = 10_000_000
BATCH_SIZE = 8


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
        if n := sum(identifier in ids for identifier in _ids(corpus.source.train)):
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


def measure_trial(trial: Trial, *, validation: str, tokenizer: str) -> None:
    """Write the trial's loss in bits on each document into its measures.json, unless these are of its last checkpoint."""
    files = find_checkpoint(Path(trial.folder)).state["files"]
    with contextlib.suppress(InputError):  # a damaged one is made again
        if Folder(trial.folder).read_object(MEASURES).get("files") == files:
            return
    import torch

    from webtext.train.data.windows import Windows
    from webtext.train.resilience.distributed import join_world

    tok, texts = Tokenizer.load(tokenizer), [text for _, text in read_validation(validation).documents]
    stream, documents = document_stream(texts, tok, need_eot_id(tok, tokenizer))
    model = load_model(trial.folder)
    nats: list[Any] = []
    with join_world(trial.settings.device) as world:
        model = model.to(world.device)
        for tokens_bt, n_scored in Windows([stream], context=model.config.context, stride=None).batches(BATCH_SIZE):
            tokens = torch.from_numpy(tokens_bt).to(world.device)
            likelihood_bt = model.log_likelihood(tokens, last=max(n_scored)).double().cpu().numpy()
            nats += [-row_t[-n:] for row_t, n in zip(likelihood_bt, n_scored, strict=True)]
            world.progress.advance()
    bits = np.bincount(documents, np.concatenate(nats) / math.log(2), len(texts)).tolist()
    Folder(trial.folder).write_object(MEASURES, {"files": files, "bits": bits})


def document_stream(texts: Sequence[str], tokenizer: Any, eot_id: int) -> tuple[Any, Any]:
    """Return the tokens of all texts, each after an end-of-text, and the text's number for each token but the first.

    An end-of-text belongs to the document that it ends.
    """
    rows = [np.insert(tokenizer.encode_numpy(text), 0, eot_id) for text in texts]
    return np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(row) for row in rows])[:-1]


def _shared(corpora: Sequence[Corpus]) -> ValidationSet:
    held, first = [set(_ids(corpus.source.validation)) for corpus in corpora], corpora[0]
    shared, tokenizer = set.intersection(*held), Tokenizer.load(first.tokenizer)
    if not shared:
        counts = ", ".join(f"'{corpus.name}' {len(mine):,}" for corpus, mine in zip(corpora, held, strict=True))
        raise InputError(
            f"no document is held out by all corpora: {counts}",
            f"build them from the same pages, or name documents that none of them has: --validation {FILE}",
        )
    tokens = {
        document.id: document.tokens[1:] for document in first.source.validation.documents() if document.id in shared
    }
    documents: list[tuple[str, str]] = []
    n_bytes = 0
    for identifier in sorted(shared):
        text = tokenizer.decode_bytes(tokens[identifier]).decode(errors="replace")
        n_bytes += len(text.encode())
        if documents and n_bytes > MAX_BYTES:
            break
        documents.append((identifier, text))
    return ValidationSet(tuple(documents))


def _ids(shards: TokenShards) -> list[str]:
    return [each for i in range(len(shards)) for each in shards.document_ids(i).to_pylist()]
