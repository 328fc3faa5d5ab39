"""The ring: one process reads what the other writes, in place and in order; each exits when the other has."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.crawl.links.sources import decoder as streams
from webtext.crawl.links.sources.decoder import FIRST_SIGNAL, SLOT_BYTES, SLOTS, RingReader, RingWriter, shared_memory

LINES = b"".join(b'{"id":"%x"}\n' % number for number in range(SLOTS * SLOT_BYTES // 7))  # more than fits in a ring


@contextlib.contextmanager
def ring() -> Iterator[tuple[RingReader, RingWriter]]:
    """Both sides of a ring, in this process."""
    (filled, to_filled), (freed, to_freed) = os.pipe(), os.pipe()
    with (
        shared_memory() as memory,
        open(filled, "rb", buffering=0) as filled_slots,
        open(to_filled, "wb", buffering=0) as to_reader,
        open(freed, "rb", buffering=0) as freed_slots,
        open(to_freed, "wb", buffering=0) as to_writer,
    ):
        yield RingReader(memory.fileno(), filled_slots, to_writer), RingWriter(memory.fileno(), to_reader, freed_slots)


def through_a_ring(pieces: list[bytes], signal: int, about: bytes) -> tuple[list[bytes], int, bytes]:
    """Return what a reader sees of these pieces: the slots, the signal at the end, and the bytes sent with it."""
    with ring() as (reader, writer):

        def write() -> None:
            for piece in pieces:
                writer.write(piece)
            writer.signal(signal, about)
            writer._filled_slots.close()

        thread = threading.Thread(target=write)
        thread.start()
        seen = []
        while isinstance(slot := reader.next(), memoryview):
            seen.append(bytes(slot))
            reader.free_slot()
        about_signal = reader.about()
        thread.join()
        return seen, slot, about_signal


@settings(max_examples=50)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 1000, SLOT_BYTES - 1, SLOT_BYTES, 3 * SLOT_BYTES + 5]), max_size=6),
    signal=st.integers(FIRST_SIGNAL, 2**64 - 1),
    about=st.binary(max_size=20),
)
def test_written_bytes_arrive_in_full_slots_and_one_partial_slot(sizes: list[int], signal: int, about: bytes) -> None:
    pieces = [bytes([65 + place]) * size for place, size in enumerate(sizes)]
    seen, last, about_signal = through_a_ring(pieces, signal, about)
    assert b"".join(seen) == b"".join(pieces)
    assert all(len(slot) == SLOT_BYTES for slot in seen[:-1])
    assert (last, about_signal) == (signal, about)


@settings(max_examples=50)
@given(
    pieces=st.lists(
        st.tuples(st.sampled_from([0, 1, 1000, SLOT_BYTES - 1, SLOT_BYTES, SLOT_BYTES + 5]), st.booleans()), max_size=12
    )
)
def test_bytes_that_are_not_final_arrive_with_later_ones_or_are_discarded(pieces: list[tuple[int, bool]]) -> None:
    """A reader takes slots meanwhile; after `discard` writing continues after the last final bytes."""
    final = written = seen = b""
    with ring() as (reader, writer):
        for place, (size, is_final) in enumerate(pieces):
            is_final = is_final or len(written) + size > len(final) + 2 * SLOT_BYTES
            writer.write(bytes([65 + place]) * size, is_final=is_final)
            written += bytes([65 + place]) * size
            final = written if is_final else final
            while len(seen) + SLOT_BYTES <= len(final):
                seen += slot_of(reader)
        writer.discard()
        writer.write(b"then")
        writer.signal(FIRST_SIGNAL)
        writer._filled_slots.close()
        while isinstance(slot := reader.next(), memoryview):
            seen += bytes(slot)
            reader.free_slot()
    assert seen == final + b"then"


def slot_of(reader: RingReader) -> bytes:
    """Return the next slot's bytes, and give the slot back."""
    slot = reader.next()
    assert isinstance(slot, memoryview)
    data = bytes(slot)
    reader.free_slot()
    return data


def test_a_slot_does_not_change_until_it_is_given_back() -> None:
    """The writer fills all other slots, and finds no free one."""
    with ring() as (reader, writer):
        for number in range(SLOTS):
            writer.write(bytes([number]) * SLOT_BYTES)
        first = reader.next()
        os.set_blocking(writer._freed.fileno(), False)
        with pytest.raises(TypeError):  # nothing can be read: None
            writer.write(b"more")
        reader.free_slot()
        writer.write(b"more")
        assert isinstance(first, memoryview)
        assert bytes(first[:4]) == b"more"
        assert first.readonly


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "RS_x.zst"
    path.write_bytes(zstandard.compress(LINES))
    return path


def children() -> list[int]:
    return [
        int(child) for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="children are looked up in /proc")
def test_a_killed_decoder_is_an_error_not_the_end_of_the_file(dump: Path) -> None:
    """It is still alive, since the file does not fit in the ring; the bytes in the ring are read first."""
    before = set(children())
    with streams.decompressed_ahead(dump) as chunks:
        seen = [bytes(next(chunks))]
        (decoder,) = set(children()) - before
        os.kill(decoder, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="exited without a signal"):
            seen.extend(map(bytes, chunks))
    assert seen
    assert LINES.startswith(b"".join(seen))
    assert set(children()) == before


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="another's child is waited for by pidfd")
def test_a_decoder_whose_reader_is_killed_exits_and_leaves_nothing(dump: Path) -> None:
    code = (
        "import sys, time, pathlib\n"
        "from webtext.crawl.links.sources.decoder import decompressed_ahead\n"
        "with decompressed_ahead(pathlib.Path(sys.argv[1])) as chunks:\n"
        "    next(chunks)\n"
        "    print(open('/proc/self/task/%d/children' % __import__('os').getpid()).read(), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-P", "-c", code, str(dump)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        (decoder,) = map(int, reader.stdout.readline().split())
        watched = os.pidfd_open(decoder)
        reader.kill()
    select.select([watched], [], [])  # readable once it has ended
    os.close(watched)
    assert not list(Path("/dev/shm").glob("*webtext*"))
