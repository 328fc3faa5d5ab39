"""Decompression: the same bytes and the same failure, whichever process decodes them."""

from __future__ import annotations

import bz2
import io
import lzma
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from webtext.base.decompress import CHUNK_BYTES, StreamBroken, decompress
from webtext.crawl.links.sources.decoder import decompressed_ahead

Compress = Callable[[bytes], bytes]


def text(n_bytes: int, seed: int = 3) -> bytes:
    """Lines that compress to about a third."""
    chance = random.Random(seed)
    return b"".join(b'{"id":"%x"}\n' % chance.getrandbits(48) for _ in range(n_bytes // 20 + 1))[:n_bytes]


def outcome(pieces: Callable[[], object]) -> tuple[bytes, str | None]:
    """Return all bytes, and the reason if the stream breaks."""
    read = b""
    try:
        for piece in pieces():  # type: ignore[attr-defined]
            read += piece
    except StreamBroken as broken:
        return read, str(broken)
    return read, None


def in_blocks(data: bytes, block_bytes: int) -> bytes:
    """One xz stream of several blocks, like that of `xz --block-size`, spliced from streams of one block each."""

    def number(value: int) -> bytes:
        return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + number(value >> 7)

    blocks, records = b"", b""
    pieces = [data[at : at + block_bytes] for at in range(0, len(data), block_bytes)]
    for piece in pieces:
        stream = lzma.compress(piece, preset=0)
        index_bytes = (struct.unpack("<I", stream[-8:-4])[0] + 1) * 4
        blocks += stream[12 : -12 - index_bytes]
        index = stream[-12 - index_bytes : -12]
        records += _record_of(index)
    header = stream[:12]
    index = b"\0" + number(len(pieces)) + records
    index += bytes(-len(index) % 4)
    index += struct.pack("<I", zlib.crc32(index))
    footer = struct.pack("<I", len(index) // 4 - 1) + header[6:8]
    return header + blocks + index + struct.pack("<I", zlib.crc32(footer)) + footer + b"YZ"


def _record_of(index: bytes) -> bytes:
    """Return the two numbers in an index of one block."""
    at = 2
    for _ in range(2):
        while index[at] >= 0x80:
            at += 1
        at += 1
    return index[2:at]


BZIP2_BLOCKS = bz2.compress(text(700_000), compresslevel=1)  # eight blocks of 100 KB
XZ_BLOCKS = in_blocks(text(700_000), 100_000)
ZSTANDARD = zstandard.ZstdCompressor(write_checksum=True).compress(text(3_000_000))


def test_liblzma_accepts_a_spliced_xz_file() -> None:
    assert lzma.decompress(XZ_BLOCKS) == text(700_000)


def damaged(packed: bytes, at: float) -> bytes:
    where = int(len(packed) * at)
    return packed[:where] + bytes(byte ^ 0x55 for byte in packed[where : where + 8]) + packed[where + 8 :]


@pytest.mark.parametrize(
    "packed",
    [
        BZIP2_BLOCKS,
        XZ_BLOCKS,
        lzma.compress(text(3_000_000), preset=0),  # one block
        lzma.compress(text(1000)) + bytes(4) + lzma.compress(text(2000)),
        BZIP2_BLOCKS[:-30],
        XZ_BLOCKS[: len(XZ_BLOCKS) // 2],
        damaged(BZIP2_BLOCKS, 0.6),
        damaged(XZ_BLOCKS, 0.6),
        damaged(XZ_BLOCKS, 0.9999),  # in the footer
        BZIP2_BLOCKS + b"no stream",
        BZIP2_BLOCKS[:-4] + bytes(4),  # the checksum of all blocks
        b"".join(bz2.compress(b"%d\n" % number) for number in range(100)),  # many small blocks
        ZSTANDARD + ZSTANDARD,
        ZSTANDARD[: len(ZSTANDARD) // 2],
        damaged(ZSTANDARD, 0.6),
    ],
    ids=[
        *("bz2", "xz", "xz one block", "xz streams", "bz2 cut", "xz cut", "bz2 damaged", "xz damaged", "xz footer"),
        *("bz2 with more", "bz2 checksum", "bz2 small", "zst", "zst cut", "zst damaged"),
    ],
)
def test_a_process_that_decompresses_gives_the_same_bytes_and_the_same_failure(packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(packed)
    expected = outcome(lambda: decompress(io.BytesIO(packed)))
    with decompressed_ahead(tmp_path / "file") as chunks:
        assert outcome(lambda: chunks) == expected


def test_a_reader_that_stops_early_leaves_no_decoder_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bz2.compress(text(4_000_000), 1))
    with decompressed_ahead(tmp_path / "file") as chunks:
        next(chunks)
    children = Path(f"/proc/self/task/{__import__('threading').get_native_id()}/children")
    assert not children.exists() or b"sources.decoder" not in b"".join(
        Path(f"/proc/{child}/cmdline").read_bytes() for child in children.read_text().split()
    )


# --- hostile streams -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packer", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("xz", "bz2")), "zst"])
def test_bombs_are_decoded_in_bounded_pieces(packer: str) -> None:
    """150 MiB of zeros: no piece is much longer than one feed of Zstandard may inflate to."""
    zeros = bytes(150 << 20)
    packers = {"xz": lambda data: lzma.compress(data, preset=0), "bz2": bz2.compress, "zst": zstandard.compress}
    packed = packers[packer](zeros)
    longest = n_bytes = 0
    for piece in decompress(io.BytesIO(packed)):
        longest, n_bytes = max(longest, len(piece)), n_bytes + len(piece)
    assert n_bytes == len(zeros)
    assert longest <= (128 << 20) + CHUNK_BYTES


@pytest.mark.parametrize(
    "frame", [lzma.compress(b""), bz2.compress(b""), zstandard.compress(b"")], ids=["xz", "bz2", "zst"]
)
def test_ten_thousand_empty_frames_give_nothing(frame: bytes) -> None:
    assert b"".join(decompress(io.BytesIO(frame * 10_000))) == b""


def test_nothing_of_a_damaged_bzip2_block_is_returned(tmp_path: Path) -> None:
    """The damage is noticed only at the checksum, at the end of the block, which is as long as many pieces."""
    lines = b"".join(b'{"id":"%d","title":"%x"}\n' % (i, i * i) for i in range(60_000))
    packed = bytearray(bz2.compress(lines))
    packed[len(packed) // 4] ^= 1  # in the first of two blocks
    path = tmp_path / "RS_x"
    path.write_bytes(packed)
    with decompressed_ahead(path) as chunks:
        for given in (map(bytes, decompress(io.BytesIO(packed))), map(bytes, chunks)):
            seen: list[bytes] = []
            with pytest.raises(StreamBroken, match="damaged_stream"):
                seen.extend(given)
            assert not any(seen)


def test_a_frame_that_asks_for_a_larger_window_is_damaged() -> None:
    """A Zstandard header may name 2^41 bytes; 2^31 are allowed."""
    frame = b"\x28\xb5\x2f\xfd" + bytes([0b0000_0000, 0xFF]) + bytes([0x01, 0x00, 0x00])
    _, broken = outcome(lambda: decompress(io.BytesIO(frame)))
    assert broken is not None
    assert broken.startswith("damaged_stream")
