"""Spills: scratch files between reading and merging, one per dump, with the votes in blocks by bucket.

A bucket is one of N_BUCKETS equal ranges of link_id, and a part is a range of buckets. A dump's votes are buffered by
bucket and written, bucket by bucket, whenever the buffers reach FLUSH_BYTES. Merging then reads the blocks of a few
buckets at a time from every spill. So memory is bounded, and more parts need no more scratch files. A block is a
MessagePack array of votes, compressed with Zstandard and a checksum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec
import zstandard

from webtext.base.errors import InputError
from webtext.crawl.links.sources.submission import Submission

N_BUCKETS = 1024
FLUSH_BYTES = 64 << 20
SUFFIX = ".spill"
VOTES_PER_BLOCK = 16_384  # at most; a block is decoded at once
_ARRAY_OF_32_BIT_LENGTH = b"\xdd"  # MessagePack's array header: this byte, then the length, then the items


class Vote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A post that counts, the canonical URL it votes for, and that URL's registrable domain."""

    url: str
    domain: str
    post: Submission


class SpillBlock(msgspec.Struct, frozen=True, array_like=True):
    """The place of some votes of one bucket in a spill."""

    bucket: int
    offset: int
    length: int
    n_bytes: int  # of its votes, decompressed


def bucket_of(identifier: str) -> int:
    """Return the bucket of a link_id.

    >>> bucket_of(32 * "0"), bucket_of("7fffffff" + 24 * "0"), bucket_of(32 * "f")
    (0, 511, 1023)
    """
    return int(identifier[:8], 16) * N_BUCKETS >> 32


class SpillWriter:
    """Writes one spill. `blocks` is complete after the last `flush`."""

    def __init__(self, file: BinaryIO, flush_bytes: int = FLUSH_BYTES) -> None:
        self.blocks: list[SpillBlock] = []
        self._file = file
        self._flush_bytes = flush_bytes
        self._buffers: dict[int, list[bytes]] = {}
        self._buffered_bytes = 0
        self._offset = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._compress = zstandard.ZstdCompressor(level=1, write_checksum=True).compress

    def add(self, bucket: int, vote: Vote) -> None:
        encoded = self._encode(vote)
        self._buffers.setdefault(bucket, []).append(encoded)
        self._buffered_bytes += len(encoded)
        if self._buffered_bytes >= self._flush_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the buffered votes."""
        for bucket, votes in sorted(self._buffers.items()):
            for some in (votes[at : at + VOTES_PER_BLOCK] for at in range(0, len(votes), VOTES_PER_BLOCK)):
                array = _ARRAY_OF_32_BIT_LENGTH + len(some).to_bytes(4, "big") + b"".join(some)
                data = self._compress(array)
                self._file.write(data)
                self.blocks.append(SpillBlock(bucket, self._offset, len(data), len(array)))
                self._offset += len(data)
        self._buffers.clear()
        self._buffered_bytes = 0


def read_votes(file: BinaryIO, blocks: Iterable[SpillBlock], name: str) -> Iterator[Vote]:
    """Yield the votes in these blocks. Raises InputError if the spill is damaged."""
    decoder, decompressor = msgspec.msgpack.Decoder(list[Vote]), zstandard.ZstdDecompressor()
    for block in blocks:
        file.seek(block.offset)
        try:
            votes = decoder.decode(decompressor.decompress(file.read(block.length)))
        except (zstandard.ZstdError, msgspec.DecodeError) as error:
            raise InputError(
                f"the scratch file '{name}' is damaged: {error}", "remove it and rerun the same command"
            ) from None
        yield from votes
