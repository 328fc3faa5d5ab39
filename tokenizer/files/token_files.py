"""Converting text files to files of ids and back, in memory that doesn't depend on their size.

Ids are written as numbers in text, or as an .npy array. With `lines`, every line of a text file is a document (without
its "\\n"). Its ids are one line of text, or the items offsets[i] to offsets[i + 1] of the array; the offsets are stored
in a second array (`ids.npy`, `ids.offsets.npy`).
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from webtext.base.errors import InputError, one_line
from webtext.tokenizer.encode.special import Names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike, NDArray

    from webtext.tokenizer.tokenizer import Tokenizer

    Batch = tuple[NDArray[Any], NDArray[np.int64] | None]
    """Ids, and the offsets of documents in them (with the end); None if all batches together are one document."""

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 28
"""Bytes. A line is encoded or decoded in one call, so it must fit in memory; everything else is read in blocks."""

_NPY_MAGIC = b"\x93NUMPY"
_NPY_HEADER_BYTES = 10_000  # numpy's own limit
_LONGEST_WORD = 20
_REMEDY = "expected whole numbers, or an .npy file of them"


def encode_file(
    tokenizer: Tokenizer, file: BinaryIO, place: str, *, lines: bool, allowed: Names, threads: int
) -> Iterator[Batch]:
    """Yield the ids of a text file, encoding about a megabyte at a time."""
    if lines:
        for batch in _lines(file, place):
            yield tokenizer.encode_flat(batch, threads, allowed)
        return
    stream = tokenizer._encode_stream(allowed)
    while block := file.read(BLOCK_BYTES):
        yield stream.push(block), None
    yield stream.finish(), None


def decode_file(
    tokenizer: Tokenizer, file: BinaryIO, place: str, offsets: BinaryIO | None, lines: bool
) -> Iterator[bytes]:
    """Yield the text of a file of ids; with `lines`, one line per document (an array needs `offsets` for that)."""
    head = file.read(BLOCK_BYTES)
    if head.startswith(_NPY_MAGIC):
        ids = _NpyReader(file, place, head)
        if not lines:
            while len(block := ids.read(BLOCK_BYTES)):
                yield _text(tokenizer, block, place, ids.n_read - len(block))
            return
        if offsets is None:
            raise InputError(f"'{place}' has no offsets file beside it", "--lines needs one: leave it out")
        yield from _decode_documents(
            tokenizer, ids, _NpyReader(offsets, f"offsets of {place}", offsets.read(BLOCK_BYTES))
        )
        return
    n_words = 0
    for words in _lines(file, place, head) if lines else ([part] for part in _words(file, head)):
        documents = []
        for document in words:
            numbers = _numbers(document, place, n_words)
            documents.append(_text(tokenizer, numbers, place, n_words))
            n_words += len(numbers)
        yield b"".join(text + b"\n" for text in documents) if lines else documents[0]


def write_text(batches: Iterable[Batch], file: BinaryIO) -> int:
    """Write ids as numbers, one document per line; return the number of ids."""
    n_ids = 0
    separator, end = b"", b""
    for ids, offsets in batches:
        words = list(map(str, ids.tolist()))
        n_ids += len(words)
        if offsets is not None:
            bounds = itertools.pairwise(offsets.tolist())
            file.write("".join(" ".join(words[start:stop]) + "\n" for start, stop in bounds).encode())
        else:
            end = b"\n"
            if words:
                file.write(separator + " ".join(words).encode())
                separator = b" "
    file.write(end)
    return n_ids


def write_npy(batches: Iterable[Batch], dtype: DTypeLike, file: BinaryIO, offsets_file: BinaryIO | None) -> int:
    """Write ids as an array, and the offsets of documents (with the end) as another; return the number of ids."""
    import numpy as np

    ids_writer = _NpyWriter(file, dtype)
    offsets_writer = _NpyWriter(offsets_file, np.int64) if offsets_file else None
    for ids, offsets in batches:
        if offsets_writer and offsets is not None:
            offsets_writer.write(offsets[:-1] + ids_writer.n_items)
        ids_writer.write(ids)
    if offsets_writer:
        offsets_writer.write(np.array([ids_writer.n_items]))
        offsets_writer.finish()
    ids_writer.finish()
    return ids_writer.n_items


def _lines(file: BinaryIO, place: str, head: bytes = b"") -> Iterator[list[bytes]]:
    """Yield lines without their "\\n", about a megabyte at a time; a last line without "\\n" counts, too."""
    rest: list[bytes] = []
    n_rest = n_lines = 0
    block = head or file.read(BLOCK_BYTES)
    while block:
        *whole, last = block.split(b"\n")
        if whole:
            whole[0] = b"".join([*rest, whole[0]])
            yield whole
            rest, n_rest, n_lines = [], 0, n_lines + len(whole)
        rest.append(last)
        n_rest += len(last)
        if n_rest > LONGEST_LINE:
            raise InputError(
                f"line {n_lines + 1:,} of '{place}' is longer than {LONGEST_LINE >> 20} MiB", "leave out --lines"
            )
        block = file.read(BLOCK_BYTES)
    if n_rest:
        yield [b"".join(rest)]


def _words(file: BinaryIO, head: bytes) -> Iterator[bytes]:
    """Yield a file in parts that end at a word's end, each at most a block and a word long."""
    rest, block = b"", head
    while block:
        block = rest + block
        end = max(map(block.rfind, b" \t\n\r\v\f")) + 1
        yield block[:end]
        rest = block[end:]
        if len(rest) > _LONGEST_WORD:
            break  # no number is that long: `_numbers` raises
        block = file.read(BLOCK_BYTES)
    yield rest


def _numbers(data: bytes, place: str, n_before: int) -> list[int]:
    words = data.split()
    for index, word in enumerate(words):
        if not word.removeprefix(b"-").isdigit() or len(word) > _LONGEST_WORD:
            shown = word[:20].decode("utf-8", "backslashreplace")
            raise InputError(f"'{place}': word {n_before + index + 1:,} is '{shown}', not a token id", _REMEDY)
    return list(map(int, words))


def _decode_documents(tokenizer: Tokenizer, ids: _NpyReader, offsets: _NpyReader) -> Iterator[bytes]:
    at = int(next(iter(offsets.read(1).tolist()), -1))
    if at != 0:
        raise InputError(f"the {offsets.place} begin with {at}", "expected 0")
    while len(ends := offsets.read(1 << 12)):
        bounds = [at, *ends.tolist()]
        if sorted(bounds) != bounds or bounds[-1] - at > ids.n_left:
            raise InputError(f"the {offsets.place} decrease, or exceed the number of ids", "encode the text again")
        block = ids.read(bounds[-1] - at)
        yield b"".join(
            _text(tokenizer, block[start - at : end - at], ids.place, start) + b"\n"
            for start, end in itertools.pairwise(bounds)
        )
        at = bounds[-1]
    if ids.n_left:
        raise InputError(f"the {offsets.place} end at {at:,}, before the ids", "encode the text again with --lines")


def _text(tokenizer: Tokenizer, ids: list[int] | NDArray[Any], place: str, n_before: int) -> bytes:
    """Decode ids to bytes; InputError names the first unknown id and its position in the file."""
    try:
        return tokenizer.decode_bytes(ids)
    except InputError as error:
        if len(ids) > 1:  # bisect until only the id that can't be decoded is left
            middle = len(ids) // 2
            _text(tokenizer, ids[:middle], place, n_before)
            _text(tokenizer, ids[middle:], place, n_before + middle)
        message = f"'{place}' has the unknown token id {ids[0]} at position {n_before:,}"
        raise InputError(message, *error.lines[1:]) from None


class _NpyWriter:
    """Writes a one-dimensional .npy file whose length is known only at the end."""

    def __init__(self, file: BinaryIO, dtype: DTypeLike) -> None:
        import numpy as np

        self._file = file
        self._dtype = np.dtype(dtype)
        self.n_items = 0
        self._write_header()
        self._header_bytes = file.tell()

    def write(self, items: NDArray[Any]) -> None:
        self._file.write(items.astype(self._dtype, copy=False).tobytes())
        self.n_items += len(items)

    def finish(self) -> None:
        self._file.seek(0)
        self._write_header()
        assert self._file.tell() == self._header_bytes, "numpy leaves room for a length of 21 digits"

    def _write_header(self) -> None:
        from numpy.lib import format as npy

        header = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self.n_items,)}
        npy.write_array_header_1_0(self._file, header)


class _NpyReader:
    """Reads a one-dimensional .npy file of integers in blocks."""

    def __init__(self, file: BinaryIO, place: str, head: bytes) -> None:
        from numpy.lib import format as npy

        self.place = place
        start = io.BytesIO(head)
        try:
            read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(start)]
            shape, _, self._dtype = read_header(start, max_header_size=_NPY_HEADER_BYTES)
            if min(shape, default=0) < 0:
                raise ValueError(f"shape {shape}")
        except (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
            cause = one_line(error, 80)
            raise InputError(f"'{place}' is not a valid .npy file: {cause}", "write it again") from None
        if len(shape) != 1 or self._dtype.kind not in "iu":
            raise InputError(f"'{place}' has {self._dtype} of shape {shape}", "expected integers in one dimension")
        self.n_left: int = shape[0]
        self.n_read = 0
        self._file = file
        self._head = start.read()

    def read(self, n: int) -> NDArray[Any]:
        """Return the next `n` items, fewer at the end. Raises InputError if the file is shorter than declared."""
        import numpy as np

        n_bytes = min(n, self.n_left) * self._dtype.itemsize
        data, self._head = self._head[:n_bytes], self._head[n_bytes:]
        parts = [data]
        while (missing := n_bytes - sum(map(len, parts))) and (data := self._file.read(min(missing, BLOCK_BYTES))):
            parts.append(data)
        if missing:
            raise InputError(f"'{self.place}' is cut short: {self.n_left:,} items are missing", "write it again")
        items = np.frombuffer(b"".join(parts), self._dtype)
        self.n_left -= len(items)
        self.n_read += len(items)
        return items
