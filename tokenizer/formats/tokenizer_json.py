"""Hugging Face's tokenizer.json: everything about a tokenizer in one file, read by `tokenizers` and `transformers`.

Our files have one more field, "webtext" in the model (Hugging Face's libraries ignore it there, but reject it at the
top). It contains the pattern, the Unicode version, and whether merging uses the list of merges or ranks.

A file is read only if `encode(text, allowed_special="all")` returns the ids that Hugging Face's libraries return with
`add_special_tokens=False`. So normalizers, truncation, padding and added tokens with special matching rules are
rejected. Parts that don't affect these ids (post-processor, decoder) are kept in `Vocabulary.extras` and written back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from webtext.base.errors import ConfigError, InputError, WebtextError
from webtext.tokenizer.formats.gpt2 import (
    Pair,
    checked_ids,
    dump_json,
    make_vocabulary,
    named_specials,
    parse_json,
    written,
)
from webtext.tokenizer.formats.pre_tokenizers import byte_level, pattern_of, pre_tokenizer_of
from webtext.tokenizer.patterns.named import UNICODE_VERSION, checked_version, pattern_name
from webtext.tokenizer.vocabulary import Vocabulary

FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
"""Default flags of an added token; extras["added_tokens"] contains exceptions."""

_OWN_FIELD = "webtext"
_NOT_READ = {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}  # unless null, "", 0, false
_KEPT = ("normalizer", "post_processor", "decoder")


def parse(
    data: bytes, place: str, pattern: str | None, special_tokens: Iterable[str] | Mapping[str, int] | None
) -> Vocabulary:
    """Read a tokenizer.json. Raises InputError if it isn't plain byte-level BPE."""
    found = parse_json(data, place)
    model = _model(found, place)
    _check_text_is_kept(found, place)
    own = _own_field(model, place)
    own_pattern = _pattern(found.get("pre_tokenizer"), own, place)
    if pattern is not None and pattern_name(pattern) != pattern_name(own_pattern):
        raise ConfigError(f"'{place}' names its own pattern {own_pattern!r}", "leave out pattern=")

    ids = checked_ids(model.get("vocab"), place)
    specials, flags = _added_tokens(found.get("added_tokens"), ids, place)
    specials |= named_specials(special_tokens, ids | specials)
    by_rank = own.get("rules") == "ranks"
    extras = {key: found[key] for key in _KEPT if found.get(key) not in (None, _default(key))}
    return make_vocabulary(
        ids,
        None if by_rank else _merges(model.get("merges"), place),
        specials,
        pattern=own_pattern,
        unicode_version=_unicode_version(own_pattern, own, place),
        whole_pieces=by_rank or bool(model.get("ignore_merges")),
        place=place,
        extras=extras | ({"added_tokens": flags} if flags else {}),
    )


def dump(vocabulary: Vocabulary) -> bytes:
    """Return the file's bytes. For a rank vocabulary, `merges` is the list that its order of ids implies."""
    ids, merges = written(vocabulary)
    flags = vocabulary.extras.get("added_tokens", {})
    kept = {key: vocabulary.extras.get(key, _default(key)) for key in _KEPT}
    return dump_json(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": id_, "content": name, **FLAGS, **flags.get(name, {})}
                for name, id_ in sorted(vocabulary.special_tokens.items(), key=lambda item: item[1])
            ],
            "normalizer": kept["normalizer"],
            "pre_tokenizer": pre_tokenizer_of(vocabulary.pattern),
            "post_processor": kept["post_processor"],
            "decoder": kept["decoder"],
            "model": {
                "type": "BPE",
                _OWN_FIELD: {
                    "format": 1,
                    "pattern": vocabulary.pattern,
                    "unicode_version": vocabulary.unicode_version,
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


def _default(key: str) -> Any:
    return byte_level(use_regex=True) if key == "decoder" else None


def _check_text_is_kept(found: Mapping[str, Any], place: str) -> None:
    """Raise InputError for a normalizer, truncation or padding: `encode` applies none of them, so ids would differ."""
    expected = "Hugging Face's libraries apply it and webtext does not, so ids would differ"
    match found.get("normalizer"):
        case None | {"type": "Sequence", "normalizers": []}:
            pass
        case {"type": "Sequence", "normalizers": [{"type": str(name)}, *_]} | {"type": name}:
            remedy = 'if your text is already normalized, set "normalizer" to null in the file'
            raise InputError(f"'{place}' has the normalizer {str(name)[:60]}", expected, remedy)
        case other:
            raise InputError(f"'{place}' has a damaged normalizer: {str(other)[:60]}", "download it again")
    for key in ("truncation", "padding"):
        if found.get(key) is not None:
            raise InputError(
                f"'{place}' has {key}: {str(found[key])[:60]}", expected, f'set "{key}" to null in the file'
            )


def _model(found: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return the model after checking that it is plain BPE."""
    model = found.get("model")
    if not isinstance(model, dict):
        raise InputError(f"'{place}' is not a tokenizer.json: it has no model", "to read a vocab.json, name its folder")
    if model.get("type", "BPE") != "BPE":
        raise InputError(f"'{place}' has a {str(model['type'])[:60]} model", "only byte-level BPE is supported")
    for name in sorted(_NOT_READ):
        if model.get(name):
            raise InputError(f"'{place}' has {name} {str(model[name])[:60]} in its model", "only plain BPE is read")
    return model


def _own_field(model: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    own = model.get(_OWN_FIELD)
    if own is None:
        return {}
    if not isinstance(own, dict) or own.get("format") != 1:
        raise InputError(f"'{place}' was written by another version of webtext", "update webtext")
    return own


def _pattern(pre_tokenizer: Any, own: Mapping[str, Any], place: str) -> str:
    """Return the pattern in our own field, which the pre-tokenizer must match, or else the pre-tokenizer's pattern."""
    named = own.get("pattern")
    if not isinstance(named, str):
        return pattern_of(pre_tokenizer, place)
    try:
        is_ours = pre_tokenizer == pre_tokenizer_of(pattern_name(named))
    except WebtextError:
        is_ours = False
    if not is_ours and pattern_of(pre_tokenizer, place) != named:
        raise InputError(f"'{place}': its pre-tokenizer doesn't match its pattern {named[:60]!r}", "write it again")
    return named


def _unicode_version(pattern: str, own: Mapping[str, Any], place: str) -> str:
    """Return the version named in our own field; the default if there is none or if the `regex` module decided."""
    named = own.get("unicode_version")
    if named is None or str(named).startswith("regex "):
        return UNICODE_VERSION
    try:
        return checked_version(pattern_name(pattern), str(named))
    except ConfigError as error:
        raise InputError(f"'{place}' uses Unicode {named}: {error.lines[0]}", "update webtext") from None


def _added_tokens(added: Any, ids: Mapping[str, int], place: str) -> tuple[dict[str, int], dict[str, dict[str, bool]]]:
    """Return names and ids of added tokens, and the flags of those that differ from FLAGS."""
    specials: dict[str, int] = {}
    flags: dict[str, dict[str, bool]] = {}
    if not isinstance(added or [], list):
        raise InputError(f"'{place}' has damaged added_tokens: {str(added)[:60]}", "download it again")
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
        if name not in ids and id_ != (turn := max(len(ids), max(specials.values(), default=-1) + 1)):
            raise InputError(
                f"'{place}': the added token {name[:60]!r} has the id {id_}, but Hugging Face's libraries use {turn}",
                "add it to the vocabulary with the id that it should have",
            )
        for flag in ("special", "lstrip", "rstrip", "single_word"):
            if found[flag] != FLAGS[flag]:
                raise InputError(
                    f"'{place}': the added token {name[:60]!r} has \"{flag}\": {str(found[flag]).lower()}",
                    "webtext recognises added tokens only if allowed_special names them, and only literally",
                    f'set "{flag}" to {str(FLAGS[flag]).lower()} in the file if that is what you want',
                )
        specials[name] = id_
        if found != FLAGS:
            flags[name] = found
    return specials, flags


def _merges(merges: Any, place: str) -> list[Pair]:
    """Read merges, written as "left right" or as [left, right]."""
    if not isinstance(merges, list):
        raise InputError(f"'{place}' has no merges", "write or download it again")
    pairs: list[Pair] = []
    for rank, merge in enumerate(merges):
        match merge.split(" ") if isinstance(merge, str) else merge:
            case [str(left), str(right)]:
                pairs.append((left, right))
            case _:
                raise InputError(f"'{place}': merge {rank} is {str(merge)[:60]!r}", "expected two tokens")
    return pairs
