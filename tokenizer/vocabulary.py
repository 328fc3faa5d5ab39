"""`Vocabulary`, which every tokenizer file format represents: tokens, merges, special tokens and the pattern."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from webtext.base.errors import InputError
from webtext.tokenizer import _bpe
from webtext.tokenizer.arguments import checked_int, shown
from webtext.tokenizer.patterns.named import GPT2, UNICODE_VERSION, checked_version, is_native, pattern_name

MAX_ID = 2**22
"""Ids are below this, so that a table of all ids fits in memory for any file. The largest in use are near 2**18."""

BYTE_ORDER = _bpe.byte_order()
"""The bytes of tokens 0 to 255, in GPT-2's order."""

NEVER_IN_UTF8 = bytes([0xC0, 0xC1, *range(0xF5, 0x100)])

EOT = "<|endoftext|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Everything that decides what a text's tokens are.

    `tokens[id]` is a token's bytes, or `b""` if text never produces that id. `merges` are pairs of ids, earliest first;
    None means merging by rank: any two tokens whose joined bytes are a token merge, the smallest id first. With
    `whole_pieces`, a piece that is a token becomes that token without merging (tiktoken's rule; HF's `ignore_merges`).
    `unicode_version` decides which characters count as letters, numbers and so on.
    """

    tokens: Sequence[bytes]
    merges: Sequence[tuple[int, int]] | None
    pattern: str = GPT2
    unicode_version: str = UNICODE_VERSION
    special_tokens: Mapping[str, int] = field(default_factory=dict)
    whole_pieces: bool = False
    normalizer: Literal["NFC"] | None = None
    """The Unicode normalization form applied to a text before the pattern cuts it."""
    prefix_space: bool = False
    """Whether a text that doesn't begin with a space gets one."""
    always: frozenset[str] = frozenset()
    """Special tokens that every text is searched for: added tokens that their file doesn't mark as special."""
    late: frozenset[str] = frozenset()
    """Special tokens that are looked for after the others, in the rest of the text, normalized."""
    unreachable: Mapping[str, int] = field(default_factory=dict)
    """Tokens that no text produces, by the names that decoding returns: those that aren't written as bytes."""
    extras: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Parts of a tokenizer.json that don't affect ids (tokenizer_json.py), kept to be written back."""

    def __post_init__(self) -> None:
        """Normalise pattern and Unicode version; raise InputError for invalid special tokens."""
        object.__setattr__(self, "pattern", pattern_name(self.pattern))
        object.__setattr__(self, "unicode_version", checked_version(self.pattern, self.unicode_version))
        for name, id_ in self.special_tokens.items():
            if not name or not 0 <= id_ < MAX_ID or any("\ud800" <= character <= "\udfff" for character in name):
                raise InputError(
                    f"the special token {name!r} has the id {id_}", f"expected a name and an id below {MAX_ID:,}"
                )

    @property
    def preparation(self) -> str:
        """Further steps that decide the ids, in words; '' for none. Only a tokenizer.json stores them."""
        parts = [f"the normalizer {self.normalizer}"] if self.normalizer else []
        parts += ["add_prefix_space"] if self.prefix_space else []
        parts += [f"the added token {name!r}, which isn't special" for name in sorted(self.always)[:1]]
        parts += [f"the added token {name!r}, found after others" for name in sorted(self.late)[:1] if self.finds_late]
        return " and ".join(parts)

    @property
    def finds_late(self) -> bool:
        """Whether `late` can decide which special tokens are found."""
        return bool(self.late) and (self.normalizer is not None or self.late != self.special_tokens.keys())

    @property
    def has_default_version(self) -> bool:
        """Whether the Unicode version is the default, with which files that don't name one are read."""
        return self.unicode_version == checked_version(self.pattern)

    @property
    def size(self) -> int:
        """One more than the largest id, special tokens included."""
        return max(len(self.tokens), *(id_ + 1 for id_ in self.named.values()), 0)

    @property
    def named(self) -> dict[str, int]:
        """The tokens that are names instead of bytes, with their ids: special and unreachable ones."""
        return {**self.special_tokens, **self.unreachable}

    @property
    def lacking(self) -> bytes:
        """The bytes without a token, of those that UTF-8 never has; a text in bytes that has one can't be encoded."""
        known = set(self.tokens)
        return bytes(byte for byte in NEVER_IN_UTF8 if bytes([byte]) not in known)

    def native(self) -> _bpe.Bpe:
        """Return the native encoder. Raises InputError if this isn't a byte-level BPE vocabulary."""
        specials = [(id_, name.encode()) for name, id_ in self.named.items()]
        tokens = list(self.tokens)
        if lacking := self.lacking:  # the encoder needs ids for them, though no text gets there
            tokens += [b""] * (self.size - len(tokens)) + [bytes([byte]) for byte in lacking]
        # the encoder doesn't need other patterns
        rule = (self.pattern, self.unicode_version) if is_native(self.pattern) else ()
        try:
            return _bpe.Bpe(tokens, self.merges, self.whole_pieces, specials, *rule)
        except ValueError as error:
            raise InputError(f"this is not a byte-level BPE vocabulary: {error}") from None

    def merges_by_rank(self) -> list[tuple[int, int]]:
        """Return the merges that the order of ids implies."""
        ranks = Vocabulary(tokens=self.tokens, merges=None)
        return ranks.native().merges_by_rank()

    def unmerged(self) -> list[int]:
        """Return the ids that merging never produces, in ascending order: their own bytes merge to other tokens.

        A merge can use a token only after it was created, so merging a token's bytes on their own decides it.
        """
        known = [(id_, token) for id_, token in enumerate(self.tokens) if token]
        native = replace(self, whole_pieces=False, special_tokens={}).native()
        ends = list(itertools.accumulate(len(token) for _, token in known))
        found = iter(native.encode_pieces(b"".join(token for _, token in known), ends))
        missing = []
        for id_, token in known:
            first = next(found)
            n_bytes = len(self.tokens[first])
            while n_bytes < len(token):
                n_bytes += len(self.tokens[next(found)])
            if first != id_:
                missing.append(id_)
        return missing

    def larger_first(self) -> list[int]:
        """Return the ids that merging by rank produces, but only via larger ids, so no list in order of ids does.

        A rank file merges any two tokens whose joined bytes are a token, the smallest id first. That equals a list of
        merges if and only if every token of two or more bytes can be built from its bytes using only smaller ids. Then
        merging its bytes takes the same steps in every text, and only one pair ever produces it (`merges_by_rank`).
        """
        by_rank = replace(self, merges=None)
        listed = {self.tokens[left] + self.tokens[right] for left, right in by_rank.merges_by_rank()}
        stuck = {id_ for id_, token in enumerate(self.tokens) if len(token) > 1 and token not in listed}
        return sorted(stuck.difference(by_rank.unmerged())) if stuck else []

    def hash(self) -> str:
        """Return the SHA-256 of tokens, pattern (with its Unicode version if that is pinned) and special tokens.

        What else decides the ids is included if there is anything. Merges, and that a piece which is a token merges,
        are included only if that matters, so all formats of a tokenizer have the same hash.
        """
        digest = hashlib.sha256(b"webtext tokenizer 1\0")
        is_pinned = self.unicode_version in _bpe.UNICODE_VERSIONS
        pattern = f"{self.pattern} {self.unicode_version}" if is_pinned else self.pattern
        specials = sorted((id_, name.encode()) for name, id_ in self.special_tokens.items())
        _update(digest, [pattern.encode()])
        _update(digest, (part for id_, name in specials for part in (str(id_).encode(), name)))
        last = max((id_ for id_, token in enumerate(self.tokens) if token), default=-1)
        _update(digest, self.tokens[: last + 1])  # how many unused ids follow depends on the file format
        if self.preparation:
            steps = [self.normalizer or "", "prefix_space" * self.prefix_space, *sorted(self.always)]
            steps += ["late", *sorted(self.late)] if self.finds_late else []
            _update(digest, map(str.encode, ["preparation", *steps]))
        if self.merges is not None and (list(self.merges) != self.merges_by_rank() or self.larger_first()):
            _update(digest, (f"{left} {right}".encode() for left, right in self.merges))
        if not self.whole_pieces and self.unmerged():
            _update(digest, [b"pieces merge"])
        return digest.hexdigest()


def special_ids(names: Iterable[str] | Mapping[str, int], first: int) -> dict[str, int]:
    """Return special tokens with their ids: a mapping's own ids, otherwise consecutive ids from `first` on.

    >>> special_ids(["<|endoftext|>", "<|pad|>"], 50256)
    {'<|endoftext|>': 50256, '<|pad|>': 50257}
    """
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise InputError(f"special_tokens is {shown(names)}", "expected a list of names; [] for no special tokens")
    if not isinstance(names, Mapping):
        names = list(names)  # it may be an iterator
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"a special token is {shown(name)}", "expected a name (str)")
    if isinstance(names, Mapping):
        return {
            name: checked_int(f"the id of {name!r}", id_, 0, MAX_ID - 1, "a token id") for name, id_ in names.items()
        }
    return {name: first + index for index, name in enumerate(dict.fromkeys(names))}


@functools.cache
def byte_characters() -> tuple[dict[str, int], list[str]]:
    """Return GPT-2's visible characters for bytes: a dict from character to byte, and a list from byte to character.

    Bytes that are visible in Latin-1 represent themselves; the others get the characters from U+0100 on.
    """
    characters = [""] * 256
    hidden = 0
    for token, byte in enumerate(BYTE_ORDER):
        visible = token < 188  # the bytes ! to ~, and 0xA1 to 0xFF without 0xAD, come first in the order
        characters[byte] = chr(byte) if visible else chr(256 + hidden)
        hidden += not visible
    return {character: byte for byte, character in enumerate(characters)}, characters


def _update(digest: hashlib._Hash, parts: Iterable[bytes]) -> None:
    """Hash a list with its lengths, so that different lists never hash the same bytes."""
    listed = list(parts)
    digest.update(b"%d\0" % len(listed))
    digest.update(b"".join(b"%d\0%b" % (len(part), part) for part in listed))
