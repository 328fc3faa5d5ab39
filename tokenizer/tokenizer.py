"""The tokenizer: text to token ids and back."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from webtext.base.errors import ConfigError, InputError, did_you_mean
from webtext.tokenizer import dropout as dropouts
from webtext.tokenizer.patterns import GPT2, cut, unicode_version
from webtext.tokenizer.stream import DecodeStream
from webtext.tokenizer.text import Text, bytes_of_piece, encodable, readable
from webtext.tokenizer.training import GPT2_VOCAB_SIZE, thread_count, train_vocabulary
from webtext.tokenizer.vocabulary import EOT, Vocabulary

if TYPE_CHECKING:  # numpy takes longer to import than everything here: it is loaded with the first array
    import numpy as np
    from numpy.typing import NDArray

    Tokens = NDArray[np.uint16] | NDArray[np.uint32]
    Offsets = NDArray[np.int64]

AllowedSpecial = Literal["all"] | Collection[str]
"""Names of the special tokens that a text may hold, or 'all'. The names of others are text like any other."""


class Tokenizer:
    """A byte-level BPE tokenizer, made by `train` or `load`.

    It never changes, can be pickled, and may be used from many threads and after a fork. Texts are str, or bytes that
    should be UTF-8; every text encodes, and decoding gives its bytes back.

    >>> tokenizer = Tokenizer.train(["low lower lowest"] * 2, vocab_size=260)
    >>> tokenizer.encode("lowest")
    [257, 68, 82, 83]
    >>> tokenizer.decode([257, 68, 82, 83])
    'lowest'
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._native = vocabulary.native()
        self._is_gpt2 = vocabulary.pattern == GPT2

    @classmethod
    def train(
        cls,
        texts: Iterable[Text],
        vocab_size: int = GPT2_VOCAB_SIZE,
        pattern: str = GPT2,
        special_tokens: Iterable[str] = (EOT,),
        threads: int | None = None,
        min_frequency: int = 1,
    ) -> Tokenizer:
        """Learn a vocabulary from texts, read once. The pattern is 'gpt2' or a regular expression of the `regex` module.

        Ids are the 256 bytes, the merges, then the special tokens. Any number of threads gives the same result.
        """
        return cls(
            train_vocabulary(
                texts,
                vocab_size=vocab_size,
                pattern=pattern,
                special_tokens=special_tokens,
                min_frequency=min_frequency,
                threads=threads,
            )
        )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        pattern: str | None = None,
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
    ) -> Tokenizer:
        """Read a tokenizer.json, a folder with vocab.json or encoder.json beside merges.txt or vocab.bpe, or a *.tiktoken.

        A rank file (*.tiktoken) names neither pattern nor special tokens: OpenAI's published ones are known by their
        SHA-256, any other needs `pattern`. A list of special tokens gets the ids after the largest.
        """
        from webtext.tokenizer.formats import load

        vocabulary = load(path, pattern, special_tokens)
        try:
            return cls(vocabulary)
        except InputError as error:
            raise InputError(f"'{os.fspath(path)}': {error.lines[0]}", "write or download it again") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a tokenizer.json, a *.tiktoken rank file, or (a path without suffix) a folder with vocab.json and merges.txt."""
        from webtext.tokenizer.formats import save

        save(self._vocabulary, path)

    # Text to ids

    def encode(
        self, text: Text, allowed_special: AllowedSpecial = (), *, dropout: float = 0.0, seed: int = 0
    ) -> list[int]:
        """The ids of a text.

        With `dropout` each merge is left out with that probability, decided anew by every `seed` (see `dropout.py`).
        """
        if dropouts.checked(dropout, seed):
            ids: list[int] = self._drop_merges([text], dropout, seed, allowed_special, threads=1)[0].tolist()
            return ids
        if allowed_special:
            return [id_ for _, ids in self._encode_parts(text, allowed_special) for id_ in ids]
        if not self._is_gpt2:
            return self._native.encode_pieces(*self._cut(text))
        try:
            return self._native.encode(text)
        except UnicodeEncodeError:
            return self._native.encode(encodable(text))

    def count(self, text: Text, allowed_special: AllowedSpecial = ()) -> int:
        """The number of ids `encode` gives, without making a list of them."""
        if allowed_special or not self._is_gpt2:
            return len(self.encode(text, allowed_special))
        return self._native.count(encodable(text))

    def encode_numpy(
        self, text: Text, allowed_special: AllowedSpecial = (), *, dropout: float = 0.0, seed: int = 0
    ) -> Tokens:
        """The ids as an array: uint16 when `vocab_size` is at most 65,536, else uint32."""
        if dropouts.checked(dropout, seed):
            return self._drop_merges([text], dropout, seed, allowed_special, threads=1)[0]
        if allowed_special:
            return self._array(self.encode(text, allowed_special))
        return self.encode_flat([text], threads=1)[0]

    def encode_batch(
        self,
        texts: Sequence[Text],
        threads: int | None = None,
        allowed_special: AllowedSpecial = (),
        *,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> list[list[int]]:
        """The ids of each text."""
        if dropouts.checked(dropout, seed):
            tokens, offsets = self._drop_merges(texts, dropout, seed, allowed_special, threads)
        elif allowed_special:
            return [self.encode(text, allowed_special) for text in texts]
        else:
            tokens, offsets = self.encode_flat(texts, threads)
        ids = tokens.tolist()
        return [ids[start:end] for start, end in itertools.pairwise(offsets.tolist())]

    def encode_flat(
        self, texts: Sequence[Text], threads: int | None = None, *, dropout: float = 0.0, seed: int = 0
    ) -> tuple[Tokens, Offsets]:
        """The ids of all texts one after the other, and the offset where each begins (the last is the end of all).

        No Python object is made per token. Threads share the texts out; None means one per core.
        """
        n_threads = thread_count(threads)
        if isinstance(texts, str | bytes):
            raise ConfigError("texts is one string", "give a list of texts, or use encode_numpy")
        if dropouts.checked(dropout, seed):
            return self._drop_merges(texts, dropout, seed, (), threads)
        if not self._is_gpt2:
            return self._flat(self.encode(text) for text in texts)
        try:
            return self._native.encode_many(texts, self._is_wide, n_threads)
        except UnicodeEncodeError:
            return self._native.encode_many([encodable(text) for text in texts], self._is_wide, n_threads)

    def encode_buffer(
        self, data: Any, offsets: Any, out: Tokens | None = None, threads: int | None = 1
    ) -> tuple[Tokens, Offsets]:
        """The same for texts that lie in one buffer of UTF-8 (bytes, a memory map, an array): text i is offsets[i:i+2].

        With `out` (an array as `encode_numpy` makes them) the ids are written to its start and that part is returned.
        """
        import numpy as np

        view = np.frombuffer(data, np.uint8)
        bounds = np.ascontiguousarray(offsets, np.int64)
        try:
            if self._is_gpt2:
                tokens, starts = self._native.encode_slices(view, bounds, self._is_wide, thread_count(threads))
            else:
                slices = [view[start:end].tobytes() for start, end in itertools.pairwise(bounds.tolist())]
                tokens, starts = self._flat(self.encode(piece) for piece in slices)
        except ValueError as error:
            raise InputError(str(error)) from None
        if out is None:
            return tokens, starts
        if out.dtype != tokens.dtype or out.ndim != 1 or len(out) < len(tokens):
            raise ConfigError(
                f"out is {out.dtype} of shape {out.shape}", f"expected {tokens.dtype} with room for {len(tokens):,} ids"
            )
        out[: len(tokens)] = tokens
        return out[: len(tokens)], starts

    def encode_with_offsets(
        self, text: str, allowed_special: AllowedSpecial = ()
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids, and for each the (start, end) of the characters of `text` that its bytes belong to.

        Ids that share a character have the same offsets for it, as in HF tokenizers.
        """
        text = str(encodable(text))
        ids = self.encode(text, allowed_special)
        character_of = [place for place, character in enumerate(text) for _ in character.encode()]
        ends = list(itertools.accumulate(len(self.decode_bytes([id_])) for id_ in ids))
        return ids, [(character_of[start], character_of[end - 1] + 1) for start, end in itertools.pairwise([0, *ends])]

    # Ids to text

    def decode_bytes(self, ids: Sequence[int] | NDArray[Any]) -> bytes:
        """The bytes of ids. InputError names the first unknown id and its position."""
        try:
            return self._native.decode(ids)
        except IndexError as error:
            raise InputError(str(error), f"the vocabulary has {self.vocab_size:,} ids") from None
        except TypeError:
            raise InputError(
                f"ids are {type(ids).__name__}", "give a list or a one-dimensional array of integers"
            ) from None

    def decode(self, ids: Sequence[int] | NDArray[Any], errors: str = "replace") -> str:
        """The text of ids; `errors` says what becomes of bytes that are no UTF-8, as in `bytes.decode`."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_stream(self, errors: str = "replace") -> DecodeStream:
        """A decoder for ids that come one by one."""
        return DecodeStream(self.decode_bytes, errors)

    # What it is

    @property
    def vocab_size(self) -> int:
        """One more than the largest id: ranks and special tokens, and the unused ids between them, if any."""
        return self._vocabulary.size

    @property
    def special_tokens(self) -> dict[str, int]:
        """Special tokens and their ids."""
        return dict(self._vocabulary.special_tokens)

    @property
    def pattern(self) -> str:
        """'gpt2', or the regular expression that cuts texts into pieces."""
        return self._vocabulary.pattern

    @property
    def unicode_version(self) -> str:
        """The Unicode version that decides what is a letter, a number or a blank."""
        return unicode_version(self.pattern)

    @property
    def eot_id(self) -> int | None:
        """The id of <|endoftext|>, None when there is no such token."""
        return self._vocabulary.special_tokens.get(EOT)

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 that names the vocabulary, the pattern and the special tokens; the same whatever file they came from."""
        return self._vocabulary.hash()

    @functools.cached_property
    def remarks(self) -> tuple[str, ...]:
        """What is odd about the vocabulary (unused ids, tokens that no text gives), and where other libraries differ."""
        from webtext.tokenizer.findings import remarks

        return tuple(remarks(self._vocabulary))

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[Vocabulary]]:
        return type(self), (self._vocabulary,)

    def __repr__(self) -> str:
        return (
            f"Tokenizer(vocab_size={self.vocab_size}, pattern={self.pattern!r}, special_tokens={self.special_tokens})"
        )

    @property
    def _is_wide(self) -> bool:
        return self.vocab_size > 65_536

    def _cut(self, text: Text) -> tuple[bytes, list[int]]:
        """A text cut by a regular expression: its bytes and where each piece ends."""
        pieces = [bytes_of_piece(piece) for piece in cut(self.pattern, readable(text))]
        return b"".join(pieces), list(itertools.accumulate(map(len, pieces)))

    def _drop_merges(
        self, texts: Sequence[Text], dropout: float, seed: int, allowed: AllowedSpecial, threads: int | None
    ) -> tuple[Tokens, Offsets]:
        """As `encode_flat`, with dropout and special tokens."""
        cut = None if self._is_gpt2 else self._cut
        if not allowed:
            n_threads = thread_count(threads)
            return dropouts.encode(self._native, texts, cut, dropout, seed, wide=self._is_wide, threads=n_threads)

        def ids_of(index: int, text: Text) -> Iterator[int]:
            for part_index, (part, ids) in enumerate(self._encode_parts(text, allowed)):
                if part in self._vocabulary.special_tokens:
                    yield from ids
                else:
                    indices = [index + part_index * dropouts.INDICES_PER_PART]
                    yield from dropouts.encode(self._native, [part], cut, dropout, seed, indices=indices)[0].tolist()

        return self._flat(list(ids_of(index, text)) for index, text in enumerate(texts))

    def _encode_parts(self, text: Text, allowed: AllowedSpecial) -> Iterator[tuple[str, list[int]]]:
        """The text cut at allowed special tokens (the longest first): each part with its ids."""
        if isinstance(text, bytes):
            raise ConfigError("special tokens are looked for in str only", "decode the bytes first")
        specials = self._vocabulary.special_tokens
        names = set(specials if allowed == "all" else allowed)
        for name in sorted(names - specials.keys()):
            raise ConfigError(f"there is no special token {name!r}", did_you_mean(name, specials))
        longest_first = sorted(names, key=lambda name: (-len(name), name))
        for part in re.split(f"({'|'.join(map(re.escape, longest_first))})", text) if names else [text]:
            if part in names:
                yield part, [specials[part]]
            elif part:
                yield part, self.encode(part)

    def _array(self, ids: Sequence[int]) -> Tokens:
        import numpy as np

        return np.array(ids, np.uint32) if self._is_wide else np.array(ids, np.uint16)

    def _flat(self, encoded: Iterable[list[int]]) -> tuple[Tokens, Offsets]:
        import numpy as np

        lists = list(encoded)
        return self._array([id_ for ids in lists for id_ in ids]), np.cumsum([0, *map(len, lists)], dtype=np.int64)
