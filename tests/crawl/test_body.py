"""Buffered bodies: complete from memory and from disk, and within the memory limit of all bodies."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import MachineError
from webtext.crawl.fetch.client.body import SMALL_BYTES, Spool, SpoolMemory


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(0, 2000), st.integers(0, 7000))
def test_written_bytes_are_read_up_to_the_limit(pieces: list[bytes], limit: int, max_bytes: int) -> None:
    memory = SpoolMemory(limit)
    with Spool(memory) as spool:
        for piece in pieces:
            spool.write(piece)
        assert spool.size == len(b"".join(pieces))
        assert spool.read(max_bytes) == b"".join(pieces)[:max_bytes]
    assert memory.used == 0


def test_large_bodies_move_to_disk_and_small_ones_stay_in_memory() -> None:
    memory = SpoolMemory(10 * SMALL_BYTES)
    spools = [Spool(memory) for _ in range(20)]
    for i in range(40):
        for number, spool in enumerate(spools):
            spool.write(bytes([number]) * (SMALL_BYTES // 10))
            assert memory.used <= memory.limit + len(spools) * (SMALL_BYTES + SMALL_BYTES // 10), f"at write {i}"
    assert memory.used < len(spools) * 4 * SMALL_BYTES, "nothing went to disk"
    for number, spool in enumerate(spools):
        with spool:
            assert spool.read(10**9) == bytes([number]) * (SMALL_BYTES // 10 * 40)
    assert memory.used == 0


def test_an_almost_full_disk_loses_no_byte_and_a_full_one_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Halves(io.BytesIO):
        def write(self, data: memoryview) -> int:  # type: ignore[override]
            return super().write(data[: -(-len(data) // 2)])

    body = bytes(range(256)) * (SMALL_BYTES // 128)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Halves())
    with Spool(SpoolMemory(0)) as spool:
        spool.write(body)
        spool.write(b"end")
        assert spool.read(10**9) == body + b"end", "before, half of it"
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: io.FileIO("/dev/full", "r+"))
    with Spool(SpoolMemory(0)) as spool, pytest.raises(MachineError, match="no space left while writing"):
        spool.write(body)
