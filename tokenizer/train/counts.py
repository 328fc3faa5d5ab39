"""Counting how often each distinct piece occurs: all that training needs of a corpus.

Counting is exact. The counts, and so the merges, don't depend on the number of threads or on spilling.

Memory is bounded, however many distinct pieces there are. Tables take at most `max_memory` bytes; counts above that are
sorted and spilled to nameless files (which disappear with the process), and a k-way merge sums them. One block of a
text is in memory at a time. Rare pieces aren't dropped: together they decide ties, and a pair of them can be the next
merge, so dropping them would not be exact.

Merging then takes at most `max_memory` bytes, too. A distinct piece takes 14 bytes per byte of its text until it is one
token. If that is too much, pieces wait in a file while those with more frequent pairs are merged (see
`native/train/selection.hpp`), which takes longer and changes no merge. Two things are in memory even if they exceed
`max_memory`: a single piece, and the pieces with one of the equally frequent pairs that merge next (in text, at first,
about a tenth of the distinct pieces).
"""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from webtext.base.errors import ConfigError, InputError, MachineError
from webtext.base.storage import temporary_folder
from webtext.tokenizer import _trainer
from webtext.tokenizer.arguments import MAX_INT, checked_int, thread_count
from webtext.tokenizer.patterns.named import GPT2, UNICODE_VERSION, checked_version, cut, is_native, pattern_name
from webtext.tokenizer.text import Text, as_text, bytes_of_piece, checked_texts, encodable, readable

if TYPE_CHECKING:
    from fractions import Fraction

DEFAULT_MEMORY = 1 << 30
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
    ) -> None:
        """Counts are spilled to the folder for temporary files. Raises ConfigError for an invalid pattern."""
        checked_int("max_memory", max_memory, 1, MAX_INT, "1 byte or more")
        self.pattern = pattern_name(pattern)
        self.unicode_version = checked_version(self.pattern, unicode_version)
        self.threads = thread_count(threads)
        self._native = _trainer.PieceCounts(self.pattern, self.unicode_version, max_memory, temporary_folder())

    def add(self, texts: Iterable[Text], weight: int = 1) -> None:
        """Count the pieces of texts, `weight` times each. The texts are read once."""
        checked_int("weight", weight, 0, MAX_INT, "0 or more")
        for batch in batches(texts):
            with self._errors():
                if not is_native(self.pattern):
                    pieces = collections.Counter(
                        piece for text in batch for piece in cut(self.pattern, readable(text), self.unicode_version)
                    )
                    times = [count * weight for count in pieces.values()]
                    self._native.add_pieces(list(map(bytes_of_piece, pieces)), times)
                    continue
                try:
                    self._native.add_texts(batch, weight, self.threads)
                except UnicodeEncodeError:  # raised before anything is counted
                    self._native.add_texts([encodable(text) for text in batch], weight, self.threads)

    def add_stream(
        self, file: BinaryIO, weight: int = 1, on_block: Callable[[int], None] = lambda n_bytes: None
    ) -> None:
        """Count a binary file as one text, block by block.

        `on_block` is called with the size of each block. If the pattern is a regular expression, the file isn't read in
        blocks but at once.
        """
        if not is_native(self.pattern):
            text = file.read()
            self.add([text], weight)
            on_block(len(text))
            return
        block = bytearray(_BLOCK_BYTES)
        n_kept = 0
        while n_read := file.readinto(memoryview(block)[n_kept:]):  # type: ignore[attr-defined]
            n_kept += n_read
            with self._errors():
                n_done = self._native.add_block(memoryview(block)[:n_kept], False, weight, self.threads)
            block[: n_kept - n_done] = block[n_done:n_kept]
            n_kept -= n_done
            if n_kept > len(block) // 2:  # nowhere to cut: a piece of megabytes
                block.extend(bytes(len(block)))
            on_block(n_read)
        with self._errors():
            self._native.add_block(memoryview(block)[:n_kept], True, weight, self.threads)

    def __len__(self) -> int:
        """Return the number of distinct pieces."""
        with self._errors():
            return len(self._native)

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield every piece with its count, in byte order."""
        with self._errors():
            yield from sorted(self._native.items())

    def train(
        self,
        n_tokens: int,
        min_frequency: int = 1,
        max_token_length: int | None = None,
        base: tuple[Sequence[bytes], Sequence[tuple[int, int]] | None, bool] | None = None,
        on_merges: Callable[[int, float], object] | None = None,
    ) -> list[tuple[int, int]]:
        """Return byte-pair merges in order (see `training.py`), of bytes or of a base's tokens; keep the counts.

        `on_merges` is called often with the number of merges so far and, before the first one, the share of the pieces
        that is loaded; an exception from it ends training.
        """
        with self._errors():
            try:
                return _trainer.train(self._native, n_tokens, min_frequency, max_token_length, base, on_merges)
            except ValueError as error:  # more than 32-bit numbers can represent
                raise InputError(f"too many distinct pieces to merge: {error}", "train on fewer texts") from None

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OverflowError:
            raise ConfigError(
                "the counts, multiplied by their weights, exceed 63 bits",
                "use smaller weights, or weights with fewer digits",
            ) from None
        except OSError as error:
            raise MachineError(
                f"counts cannot be read or written: {error.strerror}",
                "check the path and the free space for temporary files",
            ) from None


def whole_weights(weights: Sequence[Fraction]) -> tuple[list[int], int]:
    """Return weights scaled to integers, and the scale: their least common denominator.

    Counts multiplied by the integers are exact; a threshold on counts must be multiplied by the scale.

    >>> from fractions import Fraction
    >>> whole_weights([Fraction(1), Fraction("2.5"), Fraction(1, 3)])
    ([6, 15, 2], 6)
    """
    scale = math.lcm(*(weight.denominator for weight in weights))
    return [int(weight * scale) for weight in weights], scale


def batches(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Yield lists of texts, of a few megabytes and at least one text each."""
    if isinstance(texts, str | bytes):
        raise ConfigError("texts is one string", "pass an iterable of texts, e.g. [text]")
    batch, n_characters = list[Text](), 0
    for index, text in enumerate(checked_texts(texts)):
        batch.append(text if type(text) in (str, bytes) else as_text(text, f"text {index}"))
        n_characters += len(batch[-1])
        if n_characters >= _BATCH_CHARACTERS:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch
