"""Finding the allowed special tokens, and the disallowed ones, inside a text.

A text is cut at its allowed special tokens, and at those that are always found. Where several begin at the same
position the longest wins, as in HF tokenizers. The text between them is plain text. One pass with one compiled
expression finds them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from webtext.base.errors import ConfigError, InputError, did_you_mean
from webtext.tokenizer.arguments import shown
from webtext.tokenizer.text import Text, utf8

Names = Literal["all"] | Collection[str]
"""Names of the special tokens to recognise in a text (or to reject), or 'all'."""

MAX_FINDERS = 64  # finders cached per vocabulary


@dataclass(frozen=True, slots=True)
class SplitTexts:
    """Many texts cut at their special tokens: all parts in one list, to be encoded in one call."""

    texts: list[Text]
    first: list[int]
    """Index of the first part of each text, and the number of parts at the end."""
    ids: list[int]
    after: list[int]
    """Index of the part that precedes each special token."""

    def joined(self, tokens: Any, offsets: Any) -> tuple[Any, Any]:
        """Convert ids and offsets of the parts to ids and offsets of the texts, with the special tokens inserted."""
        if not self.ids:
            return tokens, offsets
        import numpy as np

        n_special_before = np.array(self.first) - np.arange(len(self.first))
        return np.insert(tokens, offsets[1:][self.after], self.ids), offsets[self.first] + n_special_before


@dataclass(frozen=True, slots=True)
class Finder:
    """A set of allowed special tokens, compiled to expressions that find them in str and in bytes."""

    in_str: re.Pattern[str] | None
    in_bytes: re.Pattern[bytes] | None
    id_of: Mapping[str | bytes, int]
    longest: int
    """Length of the longest name in bytes; 0 if none is allowed."""
    then: Finder | None = None
    """Finds other names in the rest of the text, after `normalize`."""
    normalize: Callable[[Text], Text] | None = None

    def parts(self, text: Text) -> tuple[list[Text], list[int]]:
        """Return the parts between special tokens, and the tokens' ids; there is always one more part than ids."""
        parts, ids = self._parts(text)
        if self.then is None:
            return parts, ids
        all_parts: list[Text] = []
        all_ids: list[int] = []
        for part, id_ in itertools.zip_longest(parts, ids):
            inside, found = self.then.parts(self.normalize(part) if self.normalize else part)
            all_parts += inside
            all_ids += found if id_ is None else [*found, id_]
        return all_parts, all_ids

    def _parts(self, text: Text) -> tuple[list[Text], list[int]]:
        finder: Any = self.in_str if isinstance(text, str) else self.in_bytes
        parts: list[Text] = []
        ids: list[int] = []
        at = 0
        if finder is not None:
            for match in finder.finditer(text):
                parts.append(text[at : match.start()])
                ids.append(self.id_of[match.group()])
                at = match.end()
        parts.append(text[at:])
        return parts, ids

    def cut(self, texts: Iterable[Text]) -> SplitTexts:
        """Cut many texts into parts between special tokens."""
        all_parts = SplitTexts([], [0], [], [])
        for text in texts:
            parts, ids = self.parts(text)
            all_parts.after.extend(range(len(all_parts.texts), len(all_parts.texts) + len(ids)))
            all_parts.texts.extend(parts)
            all_parts.ids.extend(ids)
            all_parts.first.append(len(all_parts.texts))
        return all_parts


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The special tokens of a vocabulary, those always found, those found after the others, and a cache of finders."""

    _ids: Mapping[str, int]
    _always: frozenset[str]
    _late: frozenset[str] = frozenset()
    _normalize: Callable[[Text], Text] | None = None
    _finders: dict[tuple[frozenset[str], bool], Finder] = field(init=False, default_factory=dict)

    def finder(self, allowed: Names) -> Finder:
        """Return the finder for the allowed names. Raises ConfigError for an unknown name."""
        return self._chain(self._named(allowed, "allowed_special") | self._always)

    def _chain(self, names: frozenset[str]) -> Finder:
        late = names & self._late
        if not late or (late == names and not self._normalize):
            return self._finder(names)
        return replace(self._finder(names - late), then=self._finder(late, late=True), normalize=self._normalize)

    def cut(self, texts: list[Text], allowed: Names, disallowed: Names) -> SplitTexts:
        """Cut texts into parts between allowed special tokens. InputError names a disallowed one that occurs."""
        finder = self.finder(allowed)
        names = self._named(disallowed, "disallowed_special") - self._always
        if disallowed == "all":
            names -= self._named(allowed, "allowed_special")
        for index, text in enumerate(texts if names else ()):
            parts, ids = self._chain(names).parts(text)
            if ids:
                name = next(each for each in names if self._ids[each] == ids[0])
                raise InputError(
                    f"text {index} contains the special token {name!r} at position {len(parts[0]):,}",
                    "name it in allowed_special to get its id, or leave it out of disallowed_special",
                )
        return finder.cut(texts)

    def _named(self, names: Names, argument: str) -> frozenset[str]:
        if names == "all":
            return frozenset(self._ids)
        if isinstance(names, str) or not hasattr(names, "__len__") or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{argument} is {shown(names)}", "expected a list of names, or 'all'")
        return frozenset(names)

    def _finder(self, names: frozenset[str], late: bool = False) -> Finder:
        found = self._finders.get((names, late))
        if found is None:
            if len(self._finders) == MAX_FINDERS:
                self._finders.clear()
            found = self._finders[names, late] = self._compile(names, self._normalize if late else None)
        return found

    def _compile(self, names: Collection[str], normalize: Callable[[Text], Text] | None) -> Finder:
        for name in sorted(names - self._ids.keys()):
            raise ConfigError(f"there is no special token {name!r}", did_you_mean(name, self._ids))
        ids = {utf8(normalize(name) if normalize else name).decode(): self._ids[name] for name in names}
        longest_first = sorted(ids, key=lambda name: (-len(name.encode()), name))
        if not longest_first:
            return Finder(None, None, {}, 0)
        expression = "|".join(map(re.escape, longest_first))
        id_of: dict[str | bytes, int] = dict(ids.items())
        id_of |= {name.encode(): ids[name] for name in longest_first}
        return Finder(re.compile(expression), re.compile(expression.encode()), id_of, len(longest_first[0].encode()))
