"""Hugging Face's tokenizer.json: everything about a tokenizer in one file, read by `tokenizers` and `transformers`.

Ours has one field more, "webtext" in the model (they ignore it there, and nowhere at the top): the pattern, the Unicode
version that decides categories, and whether merging goes by the list of merges or by rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer.format_gpt2 import (
    Pair,
    checked_ids,
    dump_json,
    make_vocabulary,
    named_specials,
    parse_json,
    written,
)
from webtext.tokenizer.patterns import GPT2, pattern_name, unicode_version
from webtext.tokenizer.vocabulary import Vocabulary

_OWN_FIELD = "webtext"
_NOT_READ = {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}  # unless null, "", 0, false


def parse(
    data: bytes, place: str, pattern: str | None, special_tokens: Iterable[str] | Mapping[str, int] | None
) -> Vocabulary:
    """The tokenizer of a file; InputError when it does more than byte-level BPE, or another thing."""
    found = parse_json(data, place)
    model = found.get("model")
    if not isinstance(model, dict):
        raise InputError(
            f"'{place}' is no tokenizer.json: it has no model", "for vocab.json name the folder it lies in"
        )
    if model.get("type", "BPE") != "BPE":
        raise InputError(f"'{place}' holds a {model['type']} model", "only byte-level BPE can be read")
    for name in sorted(_NOT_READ):
        if model.get(name):
            raise InputError(f"'{place}' has {name} {model[name]!r} in its model", "only plain BPE can be read")
    if found.get("normalizer") is not None:
        raise InputError(f"'{place}' normalises text", "only tokenizers that keep text as it is can be read")
    own_pattern = _pattern(found.get("pre_tokenizer"), place)
    if pattern is not None and pattern_name(pattern) != pattern_name(own_pattern):
        raise ConfigError(f"'{place}' names its own pattern {own_pattern!r}", "leave out pattern=")
    own = _own_field(model, own_pattern, place)

    ids = checked_ids(model.get("vocab"), place)
    specials = _added_tokens(found.get("added_tokens") or [], place)
    specials |= named_specials(special_tokens, ids | specials)
    by_rank = own.get("rules") == "ranks"
    return make_vocabulary(
        ids,
        None if by_rank else _merges(model.get("merges"), place),
        specials,
        pattern=own_pattern,
        whole_pieces=by_rank or bool(model.get("ignore_merges")),
        place=place,
    )


def dump(vocabulary: Vocabulary) -> bytes:
    """The file. A vocabulary by rank gets the merges that its order of ids implies."""
    ids, merges = written(vocabulary)
    return dump_json(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {
                    "id": id_,
                    "content": name,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": True,
                }
                for name, id_ in sorted(vocabulary.special_tokens.items(), key=lambda item: item[1])
            ],
            "normalizer": None,
            "pre_tokenizer": _pre_tokenizer(vocabulary.pattern),
            "post_processor": None,
            "decoder": _byte_level(use_regex=True),
            "model": {
                "type": "BPE",
                _OWN_FIELD: {
                    "format": 1,
                    "pattern": vocabulary.pattern,
                    "unicode_version": unicode_version(vocabulary.pattern),
                    "rules": "ranks" if vocabulary.merges is None else "merges",
                },
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": vocabulary.whole_pieces,
                "vocab": ids,
                "merges": [f"{left} {right}" for left, right in merges],
            },
        }
    )


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _pre_tokenizer(pattern: str) -> dict[str, Any]:
    if pattern == GPT2:
        return _byte_level(use_regex=True)
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(use_regex=False)]}


def _pattern(pre_tokenizer: Any, place: str) -> str:
    """The pattern that a pre-tokenizer cuts by; the inverse of `_pre_tokenizer`."""
    match pre_tokenizer:
        case {"type": "ByteLevel", "add_prefix_space": False} if pre_tokenizer.get("use_regex", True):
            return GPT2
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return regex
    raise InputError(
        f"'{place}' has a pre-tokenizer that cannot be read: {str(pre_tokenizer)[:80]}",
        "expected ByteLevel without add_prefix_space, or one isolated Split by regex before it",
    )


def _own_field(model: Mapping[str, Any], pattern: str, place: str) -> Mapping[str, Any]:
    own = model.get(_OWN_FIELD)
    if own is None:
        return {}
    if not isinstance(own, dict) or own.get("format") != 1:
        raise InputError(f"'{place}' was written by another version of webtext", "update webtext")
    pinned = unicode_version(GPT2)
    if pattern_name(pattern) == GPT2 and own.get("unicode_version") != pinned:
        raise InputError(
            f"'{place}' cuts text by Unicode {own.get('unicode_version')}, this webtext by {pinned}", "update webtext"
        )
    return own


def _added_tokens(added: Any, place: str) -> dict[str, int]:
    try:
        return {str(token["content"]): int(token["id"]) for token in added}
    except (KeyError, TypeError, ValueError):
        raise InputError(f"'{place}' has damaged added_tokens", "write or download it again") from None


def _merges(merges: Any, place: str) -> list[Pair]:
    """Merges as "left right" or as [left, right]."""
    if not isinstance(merges, list):
        raise InputError(f"'{place}' holds no merges", "write or download it again")
    pairs: list[Pair] = []
    for rank, merge in enumerate(merges):
        match merge.split(" ") if isinstance(merge, str) else merge:
            case [str(left), str(right)]:
                pairs.append((left, right))
            case _:
                raise InputError(f"'{place}': merge {rank} is {str(merge)[:60]!r}", "expected two tokens")
    return pairs
