"""Packing: encodes documents into token shards, for each document one `<|endoftext|>` and then its tokens.

Each part of the corpus, or some files, become one part of the token set: the rows of the document index, with
`train-00000.tok` and `validation-00000.tok` beside them (a split without documents writes no file). A part depends only
on its own documents, so the bytes are the same for any number of workers. `<|endoftext|>` inside a document's text is
encoded as plain characters, so the token only ever means the start of a document.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from webtext.base.config import recipe_settings
from webtext.base.errors import ConfigError, InputError
from webtext.base.inputs.encodings import versions_for
from webtext.base.inputs.files import Refused
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import PartContext, PartTask, make_set
from webtext.base.run import Run
from webtext.base.workers.attempt import Failed
from webtext.shards.format import Tokens
from webtext.shards.settings import FileSettings
from webtext.shards.settings import PackSettings as PackSettings  # also a name of this module
from webtext.shards.writing.documents import CorpusPart, Document, FilePart, find_parts
from webtext.shards.writing.token_part import NO_TOKENS, TokenizerInfo, TokenPartWriter

if TYPE_CHECKING:
    from webtext.tokenizer import Tokenizer

CODE_VERSION = 4
END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class _Payload:
    part: CorpusPart | FilePart
    tokenizer: str
    vocabulary: TokenizerInfo
    shard_tokens: int


def pack_shards(
    inputs: str | Sequence[str],
    tokenizer: str,
    out: str,
    settings: PackSettings,
    run: Run,
    files: FileSettings | None = None,
) -> PartSet:
    """Pack a part set of documents or corpus, or files of texts, with the tokenizer at a path.

    Returns the sealed set of kind "tokens". Resumes like every stage. Raises InputError if the tokenizer has no
    `<|endoftext|>`, and ConfigError for settings of `files` with a part set.
    """
    files = files or FileSettings()
    parents, tasks = find_parts([inputs] if isinstance(inputs, str) else inputs, files, run)
    if parents and (changed := recipe_settings(files).items() - recipe_settings(FileSettings()).items()):
        name, _ = min(changed)
        raise ConfigError(
            f"--{name.replace('_', '-')} ([shards.files] {name}) is for files, and '{parents[0].folder.url}' is a set",
            "leave it out: a set has its documents and splits",
        )
    _loaded.cache_clear()
    vocabulary = vocabulary_of(_loaded(tokenizer), tokenizer)
    of_recipe = recipe_settings(settings) | asdict(vocabulary) | ({} if parents else recipe_settings(files))
    versions = {} if parents else versions_for(files.encoding)
    recipe = Recipe(stage="shards.pack", code_version=CODE_VERSION, settings=of_recipe, versions=versions)
    tasks = [replace(t, payload=_Payload(t.payload, tokenizer, vocabulary, settings.shard_tokens)) for t in tasks]
    return make_set(_pack_part, tasks, out, "tokens", recipe, parents, run, "shards pack")


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Load the tokenizer at `path`; imported here so that reading shards doesn't load native code."""
    from webtext.tokenizer import Tokenizer

    return Tokenizer.load(path)


def vocabulary_of(encoder: Tokenizer, path: str) -> TokenizerInfo:
    """Return the facts that token files store about the tokenizer at `path`; InputError if it has no end-of-text."""
    return TokenizerInfo(encoder.vocab_size, need_eot_id(encoder, path), encoder.hash)


def need_eot_id(encoder: Tokenizer, path: str) -> int:
    """Return the id of end-of-text; raises InputError if the tokenizer at `path` has none."""
    if encoder.eot_id is None:
        raise InputError(
            f"the tokenizer '{path}' has no {END_OF_TEXT} token to put between documents",
            f"add it: webtext tokenizer convert '{path}' with_end_of_text.json --special-token '{END_OF_TEXT}'",
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

    def encode(document: Document) -> Tokens | Refused:
        return document.text if isinstance(document.text, Refused) else encoder.encode_numpy(document.text)

    with TokenPartWriter(writer, payload.vocabulary, payload.shard_tokens) as tokens_of_part:
        documents = payload.part.documents(context)
        for _, document, tokens in context.apply(encode, documents, identify=lambda document: document.id):
            if isinstance(tokens, Refused):
                writer.fail(document.id, tokens.reason, tokens.cause)
            elif isinstance(tokens, Failed):
                pass  # counted already
            elif len(tokens) == 0:
                writer.counts.drop(NO_TOKENS)
            else:
                source_part, row = document.source_part, document.row
                tokens_of_part.add(document.split, tokens, id=document.id, source_part=source_part, row=row)
