"""Any bytes as a token shard (shards/shardfile.py), with the header's checksum made right, so that what is behind it is reached.

- Opening and verifying raise ShardCorrupt and nothing else.
- In a shard that is verified, tokens are in the vocabulary, and every document begins with end-of-text, has no other one,
  and none is empty.
"""

from __future__ import annotations

import itertools
import struct
import tempfile
import zlib
from pathlib import Path

from choices import Choices

from webtext.base.errors import ShardCorrupt
from webtext.shards.format import HEADER_BYTES
from webtext.shards.shardfile import ShardFile, verify_shard


def check(data: bytes) -> None:
    choices = Choices(data)
    repairs = choices.below(2)
    file = bytearray(choices.rest())
    if repairs and len(file) >= HEADER_BYTES:
        file[252:256] = struct.pack("<I", zlib.crc32(file[:252]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tok"
        path.write_bytes(file)
        try:
            shard = ShardFile(path)
            assert shard.header.to_bytes() == file[:HEADER_BYTES]
            verify_shard(shard)
        except ShardCorrupt:
            return
    header = shard.header
    documents = [shard.tokens[start:end] for start, end in itertools.pairwise(shard.index.tolist())]
    assert sum(map(len, documents)) == header.n_tokens
    assert all(document[0] == header.eot_id for document in documents)
    assert not any((document[1:] == header.eot_id).any() for document in documents)
    assert all(int(document.max()) < header.vocab_size for document in documents)
