"""Any bytes as a token shard (shards/shardfile.py), with checksums made right, so that what is behind them is reached.

- Opening, reading and verifying raise ShardCorrupt and nothing else.
- Tokens that are read are in the vocabulary.
- In a shard that is verified, every document begins with end-of-text, has no other one, and none is empty.
"""

from __future__ import annotations

import hashlib
import struct
import zlib

import numpy as np
from choices import Choices

from webtext.base.errors import ShardCorrupt
from webtext.shards.format import HEADER_BYTES, ShardHeader
from webtext.shards.shardfile import ShardFile, verify_shard


def check(data: bytes) -> None:
    choices = Choices(data)
    repairs, first, length = choices.below(4), choices.below(1 << 16), choices.below(1 << 16)
    file = bytearray(choices.rest())
    if repairs >= 2:
        _repair_blocks(file)
    if repairs >= 1 and len(file) >= HEADER_BYTES:
        file[252:256] = struct.pack("<I", zlib.crc32(file[:252]))
    try:
        header = ShardHeader.from_bytes(bytes(file[:HEADER_BYTES]), "x.tok", len(file))
        shard = ShardFile.from_bytes(bytes(file), "x.tok", header)
        assert header.to_bytes() == file[:HEADER_BYTES]
        first = min(first, header.n_tokens)
        tokens = shard.read(first, min(first + length, header.n_tokens))
        assert not len(tokens) or int(tokens.max()) < header.vocab_size
        verify_shard(shard)
    except ShardCorrupt:
        return
    documents = [shard.document(i) for i in range(header.n_documents)]
    assert sum(map(len, documents)) == header.n_tokens
    assert all(document[0] == header.eot_id for document in documents)
    assert not any((document[1:] == header.eot_id).any() for document in documents)
    assert all(int(document.max()) < header.vocab_size for document in documents)
    assert np.array_equal(shard.read(0, header.n_tokens), shard.tokens)


def _repair_blocks(file: bytearray) -> None:
    """Write the checksums of the blocks, and their SHA-256 into the header, if the header's counts fit the file."""
    try:
        vocab_size, _, _, n_tokens, n_documents, block_bytes = struct.unpack_from("<QQ32sQQQ", file, 16)
    except struct.error:
        return
    n_bytes = -(-n_tokens * (2 if vocab_size <= 1 << 16 else 4) // 8) * 8 + 8 * (n_documents + 1)
    n_blocks = -(-n_bytes // block_bytes) if block_bytes else 0
    end = HEADER_BYTES + n_bytes
    if end + 4 * n_blocks == len(file):
        sums = [
            zlib.crc32(file[at : min(at + block_bytes, end)]) for at in range(HEADER_BYTES, end, block_bytes or end)
        ]
        file[end:] = struct.pack(f"<{n_blocks}I", *sums[:n_blocks])
        file[88:120] = hashlib.sha256(file[end:]).digest()
