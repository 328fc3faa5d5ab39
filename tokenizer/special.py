"""Special tokens inside text: which a caller allows, and where they stand.

A text is cut at the special tokens that are allowed, the longest first where several begin at one place, as in HF
tokenizers; what lies between is text like any other. One pass of one compiled expression finds them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from webtext.base.errors import ConfigError, did_you_mean
from webtext.tokenizer.arguments import shown
from webtext.tokenizer.text import Text

AllowedSpecial = Literal["all"] | Collection[str]
"""Names of the special tokens that a text may hold, or 'all'. The names of others are text like any other."""


MAX_FINDERS = 64  # that are remembered


@dataclass(frozen=True, slots=True)
class Parts:
    """Many texts cut at their special tokens: all parts one after the other, to be encoded in one call."""

    texts: list[Text]
    first: list[int]
    """The part that each text begins with, and the number of all."""
    ids: list[int]
    after: list[int]
    """The part that each special token stands after."""

    def joined(self, tokens: Any, offsets: Any) -> tuple[Any, Any]:
        """The ids of the parts, and where each begins, as those of the texts: special tokens stand between them."""
        if not self.ids:
            return tokens, offsets
        import numpy as np

        n_special_before = np.array(self.first) - np.arange(len(self.first))
        return np.insert(tokens, offsets[1:][self.after], self.ids), offsets[self.first] + n_special_before


@dataclass(frozen=True, slots=True)
class Finder:
    """The special tokens that one caller allows: expressions that find them in str and in bytes."""

    in_str: re.Pattern[str] | None
    in_bytes: re.Pattern[bytes] | None
    id_of: Mapping[str | bytes, int]
    longest: int
    """Bytes of the longest name; 0 when none is allowed."""

    def parts(self, text: Text) -> tuple[list[Text], list[int]]:
        """The text between special tokens, and their ids: always one part more than ids, empty parts included."""
        finder: Any = self.in_str if isinstance(text, str) else self.in_bytes
        parts: list[Text] = []
        ids: list[int] = []
        at = 0
        if finder is not None:
            for match in finder.finditer(text):
                parts.append(text[at : match.start()])
                ids.append(self.id_of[match.group()])
                at = match.end()
        parts.append(text[at:] if at else text)
        return parts, ids

    def cut(self, texts: Iterable[Text]) -> Parts:
        """The parts of many texts."""
        all_parts = Parts([], [0], [], [])
        for text in texts:
            parts, ids = self.parts(text)
            all_parts.after.extend(range(len(all_parts.texts), len(all_parts.texts) + len(ids)))
            all_parts.texts.extend(parts)
            all_parts.ids.extend(ids)
            all_parts.first.append(len(all_parts.texts))
        return all_parts


class SpecialTokens:
    """The special tokens of a vocabulary; remembers a finder for each set that was asked for lately."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids
        self._finders: dict[frozenset[str] | str, Finder] = {}

    def finder(self, allowed: AllowedSpecial) -> Finder:
        """The finder of the allowed names; ConfigError when there is no such token."""
        if isinstance(allowed, str):
            if allowed != "all":
                raise ConfigError(f"allowed_special is the string {allowed!r}", "give a list of names, or 'all'")
            key: frozenset[str] | str = allowed
        else:
            if not hasattr(allowed, "__len__") or not all(isinstance(name, str) for name in allowed):
                raise ConfigError(f"allowed_special is {shown(allowed)}", "give a list of names, or 'all'")
            key = frozenset(allowed)
        found = self._finders.get(key)
        if found is None:
            if len(self._finders) == MAX_FINDERS:
                self._finders.clear()
            found = self._finders[key] = self._compile(self._ids.keys() if isinstance(key, str) else key)
        return found

    def id(self, name: str) -> int:
        """The id of a special token; ConfigError when there is no such token."""
        if not isinstance(name, str) or name not in self._ids:
            raise ConfigError(f"there is no special token {name!r}", did_you_mean(str(name), self._ids))
        return self._ids[name]

    def _compile(self, names: Collection[str]) -> Finder:
        for name in sorted(names - self._ids.keys(), key=str):
            self.id(name)
        longest_first = sorted(names, key=lambda name: (-len(name.encode()), name))
        if not longest_first:
            return Finder(None, None, {}, 0)
        expression = "|".join(map(re.escape, longest_first))
        id_of: dict[str | bytes, int] = {name: self._ids[name] for name in longest_first}
        id_of |= {name.encode(): self._ids[name] for name in longest_first}
        return Finder(re.compile(expression), re.compile(expression.encode()), id_of, len(longest_first[0].encode()))
