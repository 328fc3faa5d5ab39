"""Reading compressed files, recognised by their suffix: .gz, .bz2, .xz, .zst. Concatenated frames are one file."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from webtext.base.errors import InputError, missing_extra
from webtext.tokenizer.arguments import split_path

_FEED_BYTES = 8 << 10  # in a decompression bomb, this much expands to about 100 MB
_MEMORY_BYTES = 128 << 20  # for a window: the most that `zstd` accepts by default, and twice what `xz -9` needs
_BUFFER_BYTES = 128 << 10

_Failures = tuple[type[BaseException], ...]


@contextlib.contextmanager
def opened(url: str) -> Iterator[BinaryIO]:
    """Open a file and decompress it while reading. Raises InputError if it is damaged or cut short."""
    parent, name = split_path(url)
    opener = next((_OPENERS[suffix] for suffix in SUFFIXES if name.endswith(suffix)), None)
    with parent.open(name) as raw:
        if opener is None:
            yield raw
            return
        file, failures = opener(raw)
        try:
            yield file
        except failures as error:
            raise damaged(url, error) from None


def damaged(url: str, error: BaseException) -> InputError:
    """Return the error for a file that a library can't read to its end."""
    return InputError(f"'{url}' is damaged: {' '.join(str(error).split())[:200]}", "fetch or write it again")


def _gzip(raw: BinaryIO) -> tuple[BinaryIO, _Failures]:
    import gzip
    import zlib

    return cast(BinaryIO, gzip.GzipFile(fileobj=raw)), (gzip.BadGzipFile, EOFError, zlib.error)


def _bzip2(raw: BinaryIO) -> tuple[BinaryIO, _Failures]:
    import bz2

    return _joined(raw, bz2.BZ2Decompressor), (OSError, EOFError)


def _xz(raw: BinaryIO) -> tuple[BinaryIO, _Failures]:
    import lzma

    return _joined(raw, lambda: lzma.LZMADecompressor(memlimit=_MEMORY_BYTES)), (lzma.LZMAError, EOFError)


def _zstd(raw: BinaryIO) -> tuple[BinaryIO, _Failures]:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise missing_extra("zstandard", "build") from None
    decoder = zstandard.ZstdDecompressor(max_window_size=_MEMORY_BYTES)
    return _joined(raw, decoder.decompressobj), (zstandard.ZstdError, EOFError)


_OPENERS: dict[str, Callable[[BinaryIO], tuple[BinaryIO, _Failures]]] = {
    ".gz": _gzip,
    ".bz2": _bzip2,
    ".xz": _xz,
    ".zst": _zstd,
}
SUFFIXES = tuple(_OPENERS)


def _joined(raw: BinaryIO, new_frame: Callable[[], Any]) -> BinaryIO:
    return io.BufferedReader(_Frames(raw, new_frame), _BUFFER_BYTES)


class _Frames(io.RawIOBase):
    """Reads all frames of a file.

    The libraries' own readers don't report all damage: zstandard's accepts a file that was cut short, and those of bz2
    and lzma ignore damaged data after a frame.
    """

    def __init__(self, raw: BinaryIO, new_frame: Callable[[], Any]) -> None:
        self._raw = raw
        self._new_frame = new_frame
        self._frame: Any = None
        self._left = b""  # bytes after a frame
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into `buffer`; return 0 at the end. Raises EOFError if the file ends inside a frame."""
        while not self._ready:
            data = self._left or self._raw.read(_FEED_BYTES)
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends too soon")
                return 0
            if self._frame is None:
                data = data.lstrip(b"\0")  # .xz may be padded
                self._left = b""
                if not data:
                    continue
                self._frame = self._new_frame()
            self._ready = memoryview(self._frame.decompress(data))
            self._left = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        n_bytes = min(len(buffer), len(self._ready))
        buffer[:n_bytes] = self._ready[:n_bytes]
        self._ready = self._ready[n_bytes:]
        return n_bytes
