"""How often each distinct piece of texts occurs: all that training needs of a corpus, and what machines exchange.

Counting is exact whatever happens: by any number of threads, in one run or in many whose files are merged, with or
without spilling, the counts are the same, and so are the merges.

Memory is bounded. Tables take `max_memory` bytes at most; what is above is sorted and spilled to files without a name
(gone with the process, however it ends), and a k-way merge sums them. Of a text's blocks one is held. A piece longer than
all that is held once. No piece is left out for being rare: rare pieces together decide ties, and a pair of theirs may be
the next merge, so that dropping them would not be exact.

The format of `*.counts` is described in `native/count_file.hpp`: sorted pieces, each without the start that it shares with
the one before, a checksum, and the name of the pattern and of the Unicode version that cut them.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import BinaryIO

from webtext.base.errors import ConfigError, EnvironmentError_, InputError
from webtext.tokenizer import _trainer
from webtext.tokenizer.arguments import MAX_INT, checked_int, checked_path
from webtext.tokenizer.patterns import GPT2, UNICODE_VERSION, checked_version, cut, is_native, pattern_name
from webtext.tokenizer.text import Text, as_text, bytes_of_piece, checked_texts, encodable, readable

DEFAULT_MEMORY = 512 << 20
_BATCH_CHARACTERS = 1 << 22
_BLOCK_BYTES = 1 << 22


class PieceCounts:
    """Counts of the pieces that a pattern cuts texts into.

    >>> counts = PieceCounts()
    >>> counts.add(["low lower", "low"])
    >>> sorted(counts.items())
    [(b' lower', 1), (b'low', 2)]
    """

    def __init__(
        self,
        pattern: str = GPT2,
        unicode_version: str = UNICODE_VERSION,
        *,
        threads: int | None = None,
        max_memory: int = DEFAULT_MEMORY,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """Spilled counts lie in `folder`, else where temporary files lie. ConfigError for a pattern that is none."""
        checked_int("max_memory", max_memory, 1, MAX_INT, "1 byte or more")
        self.pattern = pattern_name(pattern)
        self.unicode_version = checked_version(self.pattern, unicode_version)
        self.threads = thread_count(threads)
        self._native = _trainer.PieceCounts(
            self.pattern, self.unicode_version, max_memory, checked_path(folder) if folder is not None else _temporary()
        )

    def add(self, texts: Iterable[Text], weight: int = 1) -> None:
        """Count the pieces of texts, read once, `weight` times each."""
        checked_int("weight", weight, 0, MAX_INT, "0 or more")
        for batch in batches(texts):
            with self._errors():
                if not is_native(self.pattern):
                    pieces = collections.Counter(piece for text in batch for piece in self._cut(text))
                    times = [count * weight for count in pieces.values()]
                    self._native.add_pieces([bytes_of_piece(piece) for piece in pieces], times)
                    continue
                try:
                    self._native.add_texts(batch, weight, self.threads)
                except UnicodeEncodeError:  # raised before anything is counted
                    self._native.add_texts([encodable(text) for text in batch], weight, self.threads)

    def add_stream(
        self, file: BinaryIO, weight: int = 1, on_block: Callable[[int], None] = lambda n_bytes: None
    ) -> int:
        """Count the one text that a binary file is, block by block; returns its bytes.

        `on_block` is told the bytes of each block. With a pattern that is a regular expression the text is read whole.
        """
        if not is_native(self.pattern):
            text = file.read()
            self.add([text], weight)
            on_block(len(text))
            return len(text)
        block = bytearray(_BLOCK_BYTES)
        n_kept = n_bytes = 0
        while n_read := file.readinto(memoryview(block)[n_kept:]):  # type: ignore[attr-defined]
            n_bytes += n_read
            n_kept += n_read
            with self._errors():
                n_done = self._native.add_block(memoryview(block)[:n_kept], False, weight, self.threads)
            block[: n_kept - n_done] = block[n_done:n_kept]
            n_kept -= n_done
            if n_kept > len(block) // 2:  # no place to cut at: a piece of megabytes
                block.extend(bytes(len(block)))
            on_block(n_read)
        with self._errors():
            self._native.add_block(memoryview(block)[:n_kept], True, weight, self.threads)
        return n_bytes

    def add_file(self, path: str | os.PathLike[str], weight: int = 1) -> None:
        """Add the counts of a file that `save` wrote. InputError when it is damaged or of another pattern.

        It is read, and damage found, when the counts are next used.
        """
        if not os.path.isfile(checked_path(path)):
            raise InputError(f"no file '{os.fspath(path)}'", "check the path")
        with self._errors():
            found = [name.decode(errors="replace") for name in self._native.add_file(os.fspath(path), weight)]
        if found != [self.pattern, self.unicode_version]:
            raise InputError(
                f"'{path}' counts pieces of {found[0]!r} by Unicode {found[1]}",
                f"expected {self.pattern!r} by Unicode {self.unicode_version}",
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the counts to a file that `add_file` reads on any machine; it appears whole or not at all."""
        from webtext.base.storage import Folder

        parent, name = os.path.split(os.fspath(path))
        with Folder(parent or ".").scratch(name) as scratch, self._errors():
            self._native.save(str(scratch))

    def __len__(self) -> int:
        """Distinct pieces."""
        with self._errors():
            return len(self._native)

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Every piece with its count, in the order of their bytes."""
        with self._errors():
            yield from sorted(self._native.items())

    def most_common(self, n: int) -> list[bytes]:
        """The `n` most frequent pieces, in order."""
        checked_int("n", n, 0, MAX_INT, "0 or more")
        with self._errors():
            return self._native.most_common(n)

    def train(
        self,
        n_tokens: int,
        min_frequency: int = 1,
        max_token_length: int | None = None,
        base: tuple[Sequence[bytes], Sequence[tuple[int, int]] | None, bool] | None = None,
        on_merges: Callable[[int], object] | None = None,
    ) -> list[tuple[int, int]]:
        """Byte-pair merges in order (see `training.py`), of the bytes or of a base's tokens; the counts stay.

        `on_merges` is told the number of merges so far, often; what it raises ends training.
        """
        with self._errors():
            try:
                return _trainer.train(self._native, n_tokens, min_frequency, max_token_length, base, on_merges)
            except ValueError as error:  # too much for its 32-bit numbers
                raise InputError(f"too many distinct pieces to merge: {error}", "train on fewer texts") from None

    def _cut(self, text: Text) -> Iterator[str]:
        return cut(self.pattern, readable(text), self.unicode_version)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OverflowError:
            raise ConfigError(
                "the counts, times their weights, do not fit 63 bits",
                "give smaller weights, or weights with fewer digits",
            ) from None
        except _trainer.CountFileError as error:
            raise InputError(str(error), "write it again: webtext tokenizer count") from None
        except OSError as error:
            raise EnvironmentError_(
                f"counts cannot be read or written: {error.strerror}",
                "check the path, and the space for temporary files",
            ) from None


def whole_weights(weights: Sequence[Fraction]) -> tuple[list[int], int]:
    """Weights as whole numbers in the same proportion, and what each is too large by: their least common denominator.

    Counts times these are exact; a threshold on counts is multiplied by the same number.

    >>> whole_weights([Fraction(1), Fraction("2.5"), Fraction(1, 3)])
    ([6, 15, 2], 6)
    """
    scale = math.lcm(*(weight.denominator for weight in weights))
    return [int(weight * scale) for weight in weights], scale


def batches(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """The texts in lists of some megabytes, at least one text each."""
    if isinstance(texts, str | bytes):
        raise ConfigError("texts is one string", "give an iterable of texts, e.g. [text]")
    batch: list[Text] = []
    n_characters = 0
    for index, text in enumerate(checked_texts(texts)):
        batch.append(text if type(text) in (str, bytes) else as_text(text, f"text {index}"))
        n_characters += len(text)
        if n_characters >= _BATCH_CHARACTERS:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch


def thread_count(threads: int | None) -> int:
    """The number asked for, or one per core that this process may use; ConfigError below one."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return checked_int("threads", threads, 1, 2**16, "1 to 65,536, or None for one per core")


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir()
