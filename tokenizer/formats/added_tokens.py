"""Tokens that Hugging Face's files list beside the vocabulary, found in a text before a pattern cuts it.

Their libraries look for the tokens with `"normalized": false` first, in the text as it is, and then for the others in
what is left, after the normalizer. We look for all at once, in the text as it is. Tokens are read only if both find the
same.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from webtext.base.errors import InputError

FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
"""Default flags of an added token; extras["added_tokens"] contains those of which one is `normalized`."""

MAX_WORK = 10_000_000  # substrings of added tokens that are looked up among the others

Flags = dict[str, dict[str, bool]]

# NFC can change where these are found: it makes ;, K and ` of other characters, and joins marks to < = > and letters.
_CHANGED_BY_NFC = re.compile(r"[;K`]|[^\x00-\x7f]|[A-Za-z<=>]\Z")


def read_added_tokens(added: Any, ids: Mapping[str, int], place: str, normalizes: bool) -> tuple[dict[str, int], Flags]:
    """Return names and ids of added tokens, and the flags of those that differ from FLAGS."""
    specials: dict[str, int] = {}
    flags: Flags = {}
    if not isinstance(added or [], list):
        raise InputError(f"'{place}' has damaged added_tokens: {str(added)[:60]}", "download it again")
    turn = len(ids)
    for token in added or []:
        match token:
            case {"content": str(name), "id": int(id_)} if (
                name and type(id_) is int and all(isinstance(token.get(flag, False), bool) for flag in FLAGS)
            ):
                found = {flag: token.get(flag, False) for flag in FLAGS}
            case _:
                raise InputError(f"'{place}' has damaged added_tokens: {str(token)[:60]}", "download it again")
        if name in specials or ids.get(name, id_) != id_:
            raise InputError(
                f"'{place}' has the added token {name[:60]!r} twice or with two ids", "write or download it again"
            )
        if name not in ids and id_ != turn:
            raise InputError(
                f"'{place}': the added token {name[:60]!r} has the id {id_}, but Hugging Face's libraries use {turn}",
                "add it to the vocabulary with the id that it should have",
            )
        turn = max(turn, id_ + 1)
        for flag in ("lstrip", "rstrip", "single_word"):
            if found[flag]:
                raise _rejected(name, flag, place)
        if found["normalized"] and normalizes and _CHANGED_BY_NFC.search(name):
            raise _rejected(name, "normalized", place)
        specials[name] = id_
        if found != FLAGS:
            flags[name] = found
    late = {name for name, found in flags.items() if found["normalized"]}
    _check_order(set(specials) - late, late, place)
    return specials, flags


def kept_flags(flags: Flags) -> dict[str, Any]:
    """Return the fields of a Vocabulary that contain what flags say."""
    normalized = {name: found for name, found in flags.items() if found["normalized"]}
    always = frozenset(name for name, found in flags.items() if not found["special"])
    return {"always": always, "extras": {"added_tokens": normalized} if normalized else {}}


def _check_order(first: set[str], then: set[str], place: str) -> None:
    """Raise InputError if Hugging Face's libraries, which find all `first` in a text before `then`, find others than we.

    We find the leftmost of all, and the longest of those. That is the same unless one of `then` contains one of
    `first`, or ends with characters with which one of them begins: only so can it come before one and hide it.
    """
    ordered, lengths = sorted(first), {len(name) for name in first}
    begins = {name[0] for name in first}
    is_much = sum(map(len, then)) * len(lengths) > MAX_WORK

    def hides(name: str) -> bool:
        for at in (at for at, character in enumerate(name) if character in begins):
            nearest = bisect_left(ordered, name[at:])
            if at and nearest < len(ordered) and ordered[nearest].startswith(name[at:]):
                return True
            if any(name[at : at + length] in first for length in lengths):
                return True
        return False

    for name in sorted(then):
        if is_much or hides(name):
            raise InputError(
                f"'{place}': the added token {name[:60]!r} has \"normalized\": true and may overlap one that has false",
                "Hugging Face's libraries look for those with false first, webtext for all at once",
                'give both the same "normalized" in the file if that is what you want',
            )


def _rejected(name: str, flag: str, place: str) -> InputError:
    return InputError(
        f"'{place}': the added token {name[:60]!r} has \"{flag}\": true",
        "webtext recognises added tokens literally, in the text as it is",
        f'set "{flag}" to false in the file if that is what you want',
    )
