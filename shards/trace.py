"""Trace a token to its document: shard and offset → document → row of the corpus part that it was packed from.

The corpus row has the rest: the document's page, its links and their posts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from webtext.base.errors import InputError
from webtext.base.parts.partset import FILE
from webtext.shards.reader import TokenShards


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of one token."""

    shard: str
    offset: int
    id: str  # of the document
    token_in_document: int  # 0 is the end-of-text that opens the document
    source_set: str  # what was packed ("corpus", "documents" or "file"), or the format of the converted files
    source_part: str
    row: int


def trace(shards: TokenShards, shard: str | int, offset: int) -> Origin:
    """Return the origin of the token at `offset` of a shard, given by its number in the split or its file name.

    Raises InputError if the shard or the token doesn't exist.
    """
    i = _shard_number(shards, shard)
    n_tokens = shards.headers[i].n_tokens
    if not 0 <= offset < n_tokens:
        raise InputError(f"'{shards.names[i]}' has no token {offset}", f"it has tokens 0 to {n_tokens - 1}")
    parents, settings = shards.set.manifest["parents"], shards.set.recipe["settings"]
    document = shards.document_of(i, int(np.searchsorted(shards.index(i), np.uint64(offset), side="right")) - 1)
    return Origin(
        shard=document.shard,
        offset=offset,
        id=document.id,
        token_in_document=offset - document.start,
        source_set=str(parents[0]["kind"] if parents else settings.get("format", FILE)),
        source_part=document.source_part,
        row=document.row,
    )


def _shard_number(shards: TokenShards, shard: str | int) -> int:
    if isinstance(shard, int) and 0 <= shard < len(shards):
        return shard
    if isinstance(shard, str) and shard in shards.names:
        return shards.names.index(shard)
    known = f"it has {', '.join(shards.names[:3])}{', …' if len(shards) > 3 else ''}" if len(shards) else "it has none"
    raise InputError(f"the {shards.split} split of '{shards.set.folder.url}' has no shard {shard!r}", known)
