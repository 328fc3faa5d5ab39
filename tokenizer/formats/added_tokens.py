"""Tokens that Hugging Face's files list beside the vocabulary, found in a text before a pattern cuts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webtext.base.errors import InputError

FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
"""Default flags of an added token; those of a Vocabulary's `late` are normalized, those of `always` aren't special."""


def read_added_tokens(added: Any, ids: Mapping[str, int], place: str) -> tuple[dict[str, int], dict[str, Any]]:
    """Return names and ids of added tokens, and the fields `always` and `late` of their Vocabulary."""
    specials: dict[str, int] = {}
    flags: dict[str, dict[str, bool]] = {}
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
                raise InputError(
                    f"'{place}': the added token {name[:60]!r} has \"{flag}\": true",
                    "webtext recognises added tokens literally, in the text as it is",
                    f'set "{flag}" to false in the file if that is what you want',
                )
        specials[name] = id_
        flags[name] = found
    late = frozenset(name for name in flags if flags[name]["normalized"])
    return specials, {"late": late, "always": frozenset(name for name in flags if not flags[name]["special"])}
