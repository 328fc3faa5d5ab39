"""The public class `Tokenizer`: it trains a vocabulary, encodes text to token ids and decodes ids to text."""

from __future__ import annotations

import functools
import itertools
import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer import _bpe
from webtext.tokenizer.arguments import as_bytes, as_offsets, check_out, decodable, no_id, shown, thread_count
from webtext.tokenizer.encode.prepare import check_bytes, check_unchanged, nfc, prepared
from webtext.tokenizer.encode.regex_encoder import RegexEncoder
from webtext.tokenizer.encode.special import Names, SpecialTokens
from webtext.tokenizer.encode.stream import DecodeStream, EncodeStream, unknown_handler
from webtext.tokenizer.patterns.named import GPT2, UNICODE_VERSION, is_native
from webtext.tokenizer.text import AnyText, Text, Texts, as_text, as_texts, encodable, in_place, utf8
from webtext.tokenizer.train.counts import DEFAULT_MEMORY
from webtext.tokenizer.train.progress import Report, TrainingProgress
from webtext.tokenizer.train.training import GPT2_VOCAB_SIZE, about_size, train_vocabulary
from webtext.tokenizer.vocabulary import EOT, Vocabulary, byte_characters

if TYPE_CHECKING:  # numpy takes longer to import than everything else here, so it is loaded with the first array
    import numpy as np
    import tiktoken
    from numpy.typing import NDArray

    from webtext.tokenizer.arguments import Ids

    Tokens = NDArray[np.uint16] | NDArray[np.uint32]
    Offsets = NDArray[np.int64]

logger = logging.getLogger(__name__)


class Tokenizer:
    """A byte-level BPE tokenizer, created by `train` or `load`.

    It is immutable, can be pickled, and can be used from many threads and after a fork. A text is a str or any buffer
    of bytes that should be UTF-8. Every text can be encoded, and decoding returns its bytes. An argument that isn't a
    text, or isn't an id, raises an InputError that names its position.

    Special tokens inside a text are encoded as plain text unless `allowed_special` names them or is 'all'. Where
    several of them begin at the same position, the longest wins. Arrays of ids are uint16 if `vocab_size` is at most
    65,536, otherwise uint32.

    >>> tokenizer = Tokenizer.train(["low lower lowest"] * 2, vocab_size=260)
    >>> tokenizer.encode("lowest")
    [257, 68, 82, 83]
    >>> tokenizer.decode([257, 68, 82, 83])
    'lowest'
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._native = vocabulary.native()
        self._regex: RegexEncoder | None = None
        if not is_native(vocabulary.pattern):
            self._regex = RegexEncoder(self._native, vocabulary.pattern, self.unicode_version)
        self._lacking = vocabulary.lacking
        self._is_wide = vocabulary.size > 65_536
        self._special = SpecialTokens(
            vocabulary.special_tokens, vocabulary.always, vocabulary.late, nfc if vocabulary.normalizer else None
        )
        # the native encoder gets texts as they are
        self._is_direct = not (self._regex or vocabulary.preparation or self._lacking)

    @classmethod
    def train(
        cls,
        texts: Texts,
        vocab_size: int = GPT2_VOCAB_SIZE,
        pattern: str = GPT2,
        special_tokens: Iterable[str] = (EOT,),
        threads: int | None = None,
        min_frequency: int = 1,
        max_token_length: int | None = None,
        base: Tokenizer | None = None,
        unicode_version: str = UNICODE_VERSION,
        max_memory: int = DEFAULT_MEMORY,
        progress: Report | None = None,
    ) -> Tokenizer:
        """Learn a vocabulary from texts, which are read once; a column of Arrow is read in place.

        `pattern` is a name ('gpt2', 'cl100k', 'o200k', 'llama3', 'qwen2') or a regular expression of the `regex`
        module; `unicode_version` decides which characters count as letters, numbers and so on.

        Ids are assigned to the 256 bytes first, then to the merges, then to the special tokens. The result doesn't
        depend on the number of threads. Tokens of more than two bytes are shorter than `max_token_length` bytes. If the
        texts don't have enough pairs to merge, a warning is logged.

        `base` is a tokenizer to extend: its pattern, special tokens and ids are kept, and the new tokens get the ids
        after them, up to `vocab_size` in total (see `train_vocabulary`).

        Counting the texts takes at most `max_memory` bytes, and so does merging; what exceeds them waits in temporary
        files (see `train/counts.py`). `progress` is called with the fraction of all work that is done (None while texts
        of an iterator are counted, 1.0 only at the end), the size of the texts so far and the number of merges.
        """
        if base is not None and not isinstance(base, Tokenizer):
            raise ConfigError(f"base is {shown(base)}", "expected a Tokenizer: Tokenizer.load(path)")
        vocabulary = train_vocabulary(
            texts,
            vocab_size=vocab_size,
            pattern=pattern,
            unicode_version=unicode_version,
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            threads=threads,
            max_memory=max_memory,
            progress=None if progress is None else TrainingProgress(progress, thread_count(threads)),
            max_token_length=max_token_length,
            base=base._vocabulary if base is not None else None,
        )
        if remark := about_size(vocabulary, vocab_size):
            logger.warning("%s", remark)
        return cls(vocabulary)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        pattern: str | None = None,
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
    ) -> Tokenizer:
        """Read a tokenizer.json, a *.tiktoken, a vocab.json (encoder.json) with merges.txt (vocab.bpe), or a folder.

        A rank file (*.tiktoken) contains neither the pattern nor the special tokens. OpenAI's published files are
        recognised by their SHA-256; any other rank file needs `pattern`. So does a vocab.json whose pattern neither its
        merges nor the tokenizer_class in a tokenizer_config.json beside it imply. Special tokens passed as a list get
        the ids after the largest id of the file.
        """
        from webtext.tokenizer.formats.files import load

        vocabulary = load(path, pattern, special_tokens)
        try:
            return cls(vocabulary)
        except InputError as error:
            raise InputError(f"'{os.fspath(path)}': {error.lines[0]}", "write or download it again") from None

    def save(self, path: str | os.PathLike[str], model_max_length: int | None = None) -> None:
        """Write a tokenizer.json, a *.tiktoken, a vocab.json with merges.txt, or (path without suffix) a folder.

        transformers' AutoTokenizer loads the folder. Its tokenizer_config.json names `model_max_length` (in ids) and
        <|endoftext|>; a chat template and tokens by their roles are kept from the folder that this tokenizer is from.
        """
        from webtext.tokenizer.formats.files import save

        save(self._vocabulary, path, model_max_length)

    # Text to ids

    def encode(self, text: AnyText, allowed_special: Names = (), disallowed_special: Names = ()) -> list[int]:
        """Return the ids of a text."""
        if self._is_direct and not allowed_special and not disallowed_special:
            try:
                return self._native.encode(text)  # type: ignore[arg-type]
            except (TypeError, UnicodeEncodeError):
                return self._native.encode(encodable(as_text(text)))
        if not self._is_direct or disallowed_special:
            return self.encode_batch((as_text(text),), 1, allowed_special, disallowed_special)[0]
        parts, found = self._special.finder(allowed_special).parts(as_text(text))
        ids = self.encode(parts[0])
        for id_, part in zip(found, parts[1:], strict=True):
            ids += (id_, *self.encode(part))
        return ids

    def encode_numpy(self, text: AnyText, allowed_special: Names = (), disallowed_special: Names = ()) -> Tokens:
        """Return the ids of a text as an array, uint16 or uint32."""
        if self._is_direct and not allowed_special and not disallowed_special:
            try:
                return self._native.encode_array(text, self._is_wide)  # type: ignore[arg-type]
            except (TypeError, UnicodeEncodeError):
                return self._native.encode_array(encodable(as_text(text)), self._is_wide)
        return self.encode_flat((as_text(text),), 1, allowed_special, disallowed_special)[0]

    def encode_batch(
        self, texts: Texts, threads: int | None = None, allowed_special: Names = (), disallowed_special: Names = ()
    ) -> list[list[int]]:
        """Return a list of ids for each text."""
        if self._is_direct and not allowed_special and not disallowed_special:
            listed, n_threads = as_texts(texts), thread_count(threads)
            try:
                return self._native.encode_lists(listed, n_threads)
            except UnicodeEncodeError:
                return self._native.encode_lists([encodable(text) for text in listed], n_threads)
        tokens, offsets = self.encode_flat(texts, threads, allowed_special, disallowed_special)
        ids = tokens.tolist()
        return [ids[start:end] for start, end in itertools.pairwise(offsets.tolist())]

    def encode_flat(
        self, texts: Texts, threads: int | None = None, allowed_special: Names = (), disallowed_special: Names = ()
    ) -> tuple[Tokens, Offsets]:
        """Return the ids of all texts in one array, and int64 offsets: text i is tokens[offsets[i]:offsets[i + 1]].

        No Python object is created per token, and the GIL is released. The texts are divided among `threads` threads;
        None means one per core. A column of Arrow (pyarrow, polars and others) is read in place.
        """
        n_threads = thread_count(threads)
        if not self._is_direct or allowed_special or disallowed_special:
            parts = self._special.cut(as_texts(texts), allowed_special, disallowed_special)
            return parts.joined(*self._encode_parts(parts.texts, n_threads))
        listed = in_place(texts)
        if not isinstance(listed, list | tuple | _bpe.TextColumn):  # an iterator may be needed twice: make a list
            listed = as_texts(listed)
        try:
            return self._native.encode_many(listed, self._is_wide, n_threads)
        except (TypeError, UnicodeEncodeError):
            return self._encode_parts(as_texts(listed), n_threads)

    def encode_arrow(
        self, texts: Texts, threads: int | None = None, allowed_special: Names = (), disallowed_special: Names = ()
    ) -> _bpe.IdColumn:
        """Return the ids of all texts as an Arrow column of lists, which pyarrow.array and polars.Series read in place.

        Its type is large_list of uint16 or uint32. No Arrow library is needed here.
        """
        return _bpe.IdColumn(*self.encode_flat(texts, threads, allowed_special, disallowed_special))

    def encode_buffer(
        self, data: Any, offsets: Any, out: Tokens | None = None, threads: int | None = 1
    ) -> tuple[Tokens, Offsets]:
        """Encode texts stored in one buffer of UTF-8 (bytes, a memory map, an array); return ids as `encode_flat` does.

        Text i is data[offsets[i]:offsets[i + 1]]. With `out` (uint16 or uint32), the ids are written to its start and
        that slice is returned; the rest of `out` may be overwritten. Raises ConfigError with the number of ids if they
        don't fit. A length equal to the number of bytes always suffices; with 8 more, nothing is copied.
        """
        view = as_bytes(data)
        bounds = as_offsets(offsets, len(view))
        if out is not None:
            check_out(out, self._is_wide, view, bounds)
        if not self._is_direct:
            texts = [view[start:end].tobytes() for start, end in itertools.pairwise(bounds.tolist())]
            tokens, starts = self.encode_flat(texts, threads)
            if out is None:
                return tokens, starts
        elif out is None:
            return self._native.encode_slices(view, bounds, self._is_wide, thread_count(threads))
        else:
            starts = self._native.encode_into(view, bounds, out, thread_count(threads))
        if len(out) < starts[-1]:
            raise ConfigError(f"out has room for {len(out):,} ids", f"{starts[-1]:,} are needed")
        if not self._is_direct:
            out[: starts[-1]] = tokens
        return out[: starts[-1]], starts

    def encode_with_offsets(
        self, text: AnyText, allowed_special: Names = (), unit: Literal["characters", "bytes"] = "characters"
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids, and for each id the (start, end) of its characters in `text`, or of its bytes.

        Ids that share a character have the same offsets for it, as in HF tokenizers. For bytes, characters are counted
        in `text.decode("utf-8", "surrogateescape")`; for a str, bytes are counted in its UTF-8.
        """
        from webtext.tokenizer.encode.offsets import token_offsets

        check_unchanged(text := as_text(text), self._vocabulary)
        ids = self.encode_numpy(text, allowed_special)
        starts, ends = token_offsets(text, self.token_sizes[ids], unit)
        return ids.tolist(), _bpe.offset_pairs(starts, ends)

    def count(self, text: AnyText, allowed_special: Names = ()) -> int:
        """Return the number of ids that `encode` would return, without creating a list."""
        if allowed_special or not self._is_direct:
            return len(self.encode_numpy(text, allowed_special))
        try:
            return self._native.count(text)  # type: ignore[arg-type]
        except (TypeError, UnicodeEncodeError):
            return self._native.count(encodable(as_text(text)))

    # Ids to text

    def decode_bytes(self, ids: Ids) -> bytes:
        """Return the bytes of ids; a special token's bytes are its name. InputError names the first unknown id."""
        row = decodable(ids)
        try:
            for place, id_ in enumerate(row if self._lacking else ()):
                if id_ >= self.vocab_size:
                    raise IndexError(f"unknown token id {id_} at position {place}")
            return self._native.decode(row)
        except IndexError as error:
            raise InputError(str(error), f"the vocabulary has {self.vocab_size:,} ids") from None
        except ValueError as error:
            raise InputError(str(error), "decode a copy of the array") from None
        except TypeError:
            raise no_id(row) from None

    def decode(self, ids: Ids, errors: str = "replace") -> str:
        """Return the text of ids; `errors` handles bytes that aren't valid UTF-8, as in `bytes.decode`."""
        try:
            return self.decode_bytes(ids).decode("utf-8", errors)
        except (LookupError, TypeError):
            raise unknown_handler(errors) from None

    def decode_batch(self, batch: Iterable[Ids], errors: str = "replace") -> list[str]:
        """Return the text of each sequence of ids."""
        return [self.decode(ids, errors) for ids in batch]

    def decode_stream(self, errors: str = "replace") -> DecodeStream:
        """Return a decoder for ids that arrive one by one."""
        return DecodeStream(self.decode_bytes, errors)

    # Single tokens

    def token_to_id(self, token: str | bytes) -> int | None:
        """Return the id of a token, by its bytes or by its name as in vocab.json; None if there is no such token."""
        if isinstance(token, bytes):
            token = "".join(map(byte_characters()[1].__getitem__, token))
        return self._ids.get(token)

    def id_to_token(self, id_: int) -> str | None:
        """Return the name of an id, with a character for each byte, as in vocab.json; None if no token has it."""
        return self._names.get(id_)

    # Other libraries

    def to_huggingface(self) -> Any:
        """Return a transformers.PreTrainedTokenizerFast, which recognises special tokens in every text."""
        from webtext.tokenizer.formats.libraries import huggingface_tokenizer

        return huggingface_tokenizer(self._vocabulary)

    def to_tiktoken(self) -> tiktoken.Encoding:
        """Return this tokenizer as an encoding of tiktoken. Raises InputError if its rules would give other ids."""
        from webtext.tokenizer.formats.libraries import tiktoken_encoding

        return tiktoken_encoding(self._vocabulary)

    # Properties and display

    @property
    def vocab_size(self) -> int:
        """One more than the largest id; it counts special tokens, and unused ids if there are any."""
        return self._vocabulary.size

    @property
    def special_tokens(self) -> dict[str, int]:
        """Special tokens and their ids."""
        return dict(self._vocabulary.special_tokens)

    @property
    def pattern(self) -> str:
        """Name of the pattern that cuts texts into pieces, such as 'gpt2', or its regular expression."""
        return self._vocabulary.pattern

    @property
    def unicode_version(self) -> str:
        """The Unicode version that decides what is a letter, number or blank; 'regex ...' if that module decides."""
        return self._vocabulary.unicode_version

    @property
    def eot_id(self) -> int | None:
        """The id of <|endoftext|>, or None if the vocabulary doesn't have it."""
        return self._vocabulary.special_tokens.get(EOT)

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 of the vocabulary, the pattern and the special tokens; it doesn't depend on the file format."""
        return self._vocabulary.hash()

    def __eq__(self, other: object) -> bool:
        """Whether both have the same tokens, pattern and special tokens, so that they return the same ids."""
        return self.hash == other.hash if isinstance(other, Tokenizer) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.hash)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[Vocabulary]]:
        return type(self), (self._vocabulary,)

    def __repr__(self) -> str:
        from webtext.tokenizer.view import facts

        return f"<Tokenizer: {facts(self._vocabulary, self.hash)}>"

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        from webtext.tokenizer.formats.gpt2 import written_ids

        return written_ids(self._vocabulary)

    @functools.cached_property
    def _names(self) -> dict[int, str]:
        return {id_: name for name, id_ in self._ids.items()}

    @functools.cached_property
    def token_sizes(self) -> NDArray[np.int64]:
        """The number of bytes of each id where a text has it, as an array; 0 for an unused id."""
        import numpy as np

        n_bytes = np.zeros(self.vocab_size, np.int64)
        n_bytes[: len(self._vocabulary.tokens)] = [len(token) for token in self._vocabulary.tokens]
        for name, id_ in self._vocabulary.named.items():
            n_bytes[id_] = len(utf8(prepared(name, self._vocabulary) if name in self._vocabulary.late else name))
        return n_bytes

    def _encode_parts(self, texts: Iterable[Text], threads: int) -> tuple[Tokens, Offsets]:
        """Encode parts between special tokens."""
        texts = [encodable(prepared(text, self._vocabulary)) for text in texts]
        if self._lacking:
            check_bytes(texts, self._lacking)
        return (self._regex or self._native).encode_many(texts, self._is_wide, threads)

    def _encode_stream(self, allowed_special: Names = ()) -> EncodeStream:
        """Return an encoder for text that arrives in chunks, for files of any size (`files/token_files.py`)."""
        last_cut, finder = None, self._special.finder(allowed_special)
        if not (finder.then or self._regex or self._vocabulary.normalizer or self._vocabulary.prefix_space):
            last_cut = functools.partial(_bpe.last_safe_cut, unicode_version=self.unicode_version)
        encode = functools.partial(self.encode_numpy, allowed_special=allowed_special)
        return EncodeStream(encode, last_cut, None if finder.then else finder)
