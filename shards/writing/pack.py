"""Packing: encodes documents into token shards, for each document one `<|endoftext|>` and then its tokens.

Each part of the corpus becomes one part of the token set: the rows of the document index, with `train-00000.tok` and
`validation-00000.tok` beside them (a split without documents writes no file). A part depends only on its own documents,
so the bytes are the same for any number of workers. `<|endoftext|>` inside a document's text is encoded as plain
characters, so the token only ever means the start of a document.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from webtext.base.config import recipe_settings
from webtext.base.errors import InputError
from webtext.base.parts.partset import PartSet, SetName
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, run_parts
from webtext.base.run import Run
from webtext.base.workers.journal import Failed
from webtext.shards.format import SPLITS, Tokens
from webtext.shards.settings import PackSettings as PackSettings  # also a name of this module
from webtext.shards.writing.token_part import BATCH_ROWS, NO_TOKENS, TokenPartWriter, Vocabulary

if TYPE_CHECKING:
    from webtext.tokenizer import Tokenizer

CODE_VERSION = 3
END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class _Payload:
    documents: SetName
    tokenizer: str
    vocabulary: Vocabulary
    shard_tokens: int
    part: int


def pack_shards(documents: str, tokenizer: str, out: str, settings: PackSettings, run: Run) -> PartSet:
    """Pack a part set of documents or corpus with the tokenizer at a path; return the sealed set of kind "tokens".

    Resumes like every stage. Raises InputError if the tokenizer has no `<|endoftext|>`.
    """
    corpus = PartSet.open(documents, ("corpus", "documents"))
    _loaded.cache_clear()
    vocabulary = vocabulary_of(_loaded(tokenizer), tokenizer)
    of_recipe = recipe_settings(settings) | asdict(vocabulary)
    recipe = Recipe(stage="shards.pack", code_version=CODE_VERSION, settings=of_recipe)
    payload = functools.partial(_Payload, SetName.of(corpus), tokenizer, vocabulary, settings.shard_tokens)
    tasks = [
        PartTask(index=part.index, sources=(corpus.source(part),), payload=payload(place))
        for place, part in enumerate(corpus.parts)
    ]
    outputs = {"tokens": (out, "tokens")}
    made = run_parts(_pack_part, tasks, recipe=recipe, outputs=outputs, parents=[corpus], run=run, label="shards pack")
    return made["tokens"]


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Load the tokenizer at `path`; imported here so that reading shards doesn't load native code."""
    from webtext.tokenizer import Tokenizer

    return Tokenizer.load(path)


def vocabulary_of(encoder: Tokenizer, path: str) -> Vocabulary:
    """Return what token files store about the tokenizer at `path`; InputError if it has no end-of-text."""
    return Vocabulary(encoder.vocab_size, need_eot_id(encoder, path), encoder.hash)


def need_eot_id(encoder: Tokenizer, path: str) -> int:
    """Return the id of end-of-text; raises InputError if the tokenizer at `path` has none."""
    if encoder.eot_id is None:
        raise InputError(
            f"the tokenizer '{path}' has no {END_OF_TEXT} token to put between documents",
            f"train it with {END_OF_TEXT} among its special tokens, or pass special_tokens when you load it",
        )
    return encoder.eot_id


@functools.lru_cache(maxsize=1)
def _loaded(path: str) -> Tokenizer:
    """Load the tokenizer once per process and run, not once per part."""
    return load_tokenizer(path)


def _pack_part(context: PartContext, task: PartTask) -> None:
    payload: _Payload = task.payload
    encoder = _loaded(payload.tokenizer)
    if encoder.hash != payload.vocabulary.tokenizer_hash:
        raise InputError(f"the tokenizer '{payload.tokenizer}' changed during the run", "rerun the same command")
    writer = context.output("tokens")
    corpus = payload.documents.open()
    part = corpus.part(payload.part)

    def encode(document: dict[str, Any]) -> Tokens:
        return encoder.encode_numpy(document["text"])

    with TokenPartWriter(writer, payload.vocabulary, payload.shard_tokens) as tokens_of_part:
        documents = _documents(corpus, payload.part)
        for row, document, tokens in context.apply(encode, documents, identify=lambda document: str(document["id"])):
            if isinstance(tokens, Failed):
                continue
            if len(tokens) == 0:
                writer.counts.drop(NO_TOKENS)
                continue
            if document["split"] not in SPLITS:
                raise InputError(
                    f"document {document['id']} in '{corpus.folder.location(part.name)}' has split '{document['split']}'",
                    f"expected {' or '.join(SPLITS)}",
                )
            tokens_of_part.add(document["split"], tokens, id=document["id"], source_part=part.name, row=row)


def _documents(corpus: PartSet, part: int) -> Iterator[tuple[int, dict[str, Any]]]:
    row = 0
    for batch in corpus.batches(part, columns=["id", "text", "split"], batch_size=BATCH_ROWS):
        for document in batch.to_pylist():
            yield row, document
            row += 1
