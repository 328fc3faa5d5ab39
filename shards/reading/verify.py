"""Verification of token shards: compares every byte with the header, the checksums and the document index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from webtext.shards.checksums import compare_block
from webtext.shards.format import HEADER_BYTES, Tokens, check_index, corrupt
from webtext.shards.shardfile import ShardFile

PIECE = 1 << 20
"""Tokens checked per step, which bounds memory."""


def verify_shard(shard: ShardFile) -> None:
    """Check the checksums, the index, the ids, and that end-of-text is at each document's start and nowhere else.

    Raises ShardCorrupt with the file and the first block, document or token that is wrong.
    """
    _verify_blocks(shard)
    check_index(shard.index, shard.header, shard.location)
    _verify_tokens(shard)
    _verify_starts(shard)


def _verify_blocks(shard: ShardFile) -> None:
    header = shard.header
    written = shard.map(np.dtype("<u4"), header.checksums_offset, header.n_blocks)
    for block in range(header.n_blocks):
        at = HEADER_BYTES + block * header.block_bytes
        data = shard.map(np.dtype("u1"), at, min(header.block_bytes, header.checksums_offset - at))
        compare_block(shard.location, header, block, data.data, written)


def _verify_tokens(shard: ShardFile) -> None:
    header = shard.header
    for start, piece in _pieces(shard.tokens):
        if int(piece.max()) >= header.vocab_size:
            at = int(np.argmax(piece >= header.vocab_size))
            limit = f"the vocabulary has {header.vocab_size:,} tokens"
            corrupt(shard.location, f"token {start + at:,}", int(piece[at]), limit)
    token_bytes = header.n_tokens * header.dtype.itemsize
    if shard.map(np.dtype("u1"), HEADER_BYTES + token_bytes, header.tokens_bytes - token_bytes).any():
        corrupt(shard.location, "padding after the tokens", "not zero", "it must be zero")


def _verify_starts(shard: ShardFile) -> None:
    header = shard.header
    first = shard.tokens[shard.index[:-1].astype(np.int64)]
    if (first != header.eot_id).any():
        at = int(np.argmax(first != header.eot_id))
        corrupt(shard.location, f"first token of document {at:,}", first[at], f"expected end-of-text, {header.eot_id}")
    n_eots = sum(int(np.count_nonzero(piece == header.eot_id)) for _, piece in _pieces(shard.tokens))
    if n_eots != header.n_documents:
        corrupt(shard.location, "number of end-of-text tokens", n_eots, f"there are {header.n_documents:,} documents")


def _pieces(tokens: Tokens) -> Iterator[tuple[int, Tokens]]:
    for start in range(0, len(tokens), PIECE):
        yield start, tokens[start : start + PIECE]
