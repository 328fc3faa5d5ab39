"""Hugging Face's tokenizer.json: everything about a tokenizer in one file, read by `tokenizers` and `transformers`.

Our files have one more field, "webtext" in the model (Hugging Face's libraries ignore it there, but reject it at the
top). It contains the pattern, the Unicode version, and whether merging uses the list of merges or ranks.

A file is read only if `encode(text, allowed_special="all")` returns the ids that Hugging Face's libraries return with
`add_special_tokens=False`, and `decode` their text (where they take the name "é" for a byte, it stays "é"). So
truncation, padding, normalizers other than NFC, decoders other than ByteLevel, and added tokens with special matching
rules are rejected. What doesn't affect these ids, such as the post-processor, is kept in `Vocabulary.extras` and written
back. Added tokens that aren't special are always recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from webtext.base.errors import ConfigError, InputError, WebtextError
from webtext.tokenizer.formats.added_tokens import FLAGS, read_added_tokens
from webtext.tokenizer.formats.gpt2 import (
    Pair,
    checked_ids,
    dump_json,
    make_vocabulary,
    named_specials,
    parse_json,
    written,
)
from webtext.tokenizer.formats.pre_tokenizers import byte_level, pattern_of, pre_tokenizer_of, steps_of
from webtext.tokenizer.patterns.named import UNICODE_VERSION, checked_version, pattern_name
from webtext.tokenizer.vocabulary import Vocabulary

_OWN_FIELD = "webtext"
_NOT_READ = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")  # unless null, "", 0, false
_EXPECTED = "Hugging Face's libraries apply it and webtext does not, so ids or texts would differ"
_KEPT = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def parse(
    data: bytes, place: str, pattern: str | None, special_tokens: Iterable[str] | Mapping[str, int] | None
) -> Vocabulary:
    """Read a tokenizer.json. Raises InputError if it isn't plain byte-level BPE."""
    found = parse_json(data, place)
    model = _model(found, place)
    _check_parts(found, place)
    normalizer: Literal["NFC"] | None = "NFC" if steps_of(found.get("normalizer"), "normalizers") else None
    own = _own_field(model, place)
    own_pattern, prefix_space = _pattern(found.get("pre_tokenizer"), own, place)
    if pattern is not None and pattern_name(pattern) != pattern_name(own_pattern):
        raise ConfigError(f"'{place}' names its own pattern {own_pattern!r}", "leave out pattern=")

    ids = checked_ids(model.get("vocab"), place)
    specials, of_added = read_added_tokens(found.get("added_tokens"), ids, place)
    specials |= named_specials(special_tokens, ids | specials)
    by_rank = own.get("rules") == "ranks"
    vocabulary = make_vocabulary(
        ids,
        None if by_rank else _merges(model.get("merges"), place),
        specials,
        pattern=own_pattern,
        unicode_version=_unicode_version(own_pattern, own, place),
        whole_pieces=by_rank or bool(model.get("ignore_merges")),
        place=place,
    )
    vocabulary = replace(vocabulary, normalizer=normalizer, prefix_space=prefix_space, **of_added)
    usual = _usual_parts(vocabulary)
    extras = {key: found[key] for key in _KEPT if found.get(key) not in (None, usual[key])}
    return replace(vocabulary, extras=extras)


def dump(vocabulary: Vocabulary) -> bytes:
    """Return the file's bytes. For a rank vocabulary, `merges` is the list that its order of ids implies."""
    ids, merges = written(vocabulary)
    parts = {key: vocabulary.extras.get(key, part) for key, part in _usual_parts(vocabulary).items()}
    return dump_json(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": id_, "content": name}
                | FLAGS
                | {"normalized": name in vocabulary.late, "special": name not in vocabulary.always}
                for name, id_ in sorted(vocabulary.special_tokens.items(), key=lambda item: item[1])
            ],
            **parts,
            "model": {
                "type": "BPE",
                _OWN_FIELD: {
                    "format": 1,  # integer: version of this object
                    "pattern": vocabulary.pattern,  # string: name of a pattern, or a regular expression
                    "unicode_version": vocabulary.unicode_version,  # string: Unicode version of letters and numbers
                    "rules": "ranks" if vocabulary.merges is None else "merges",  # string: `merges` or `ranks`
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


def _usual_parts(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the parts as they are written unless they were read in another form."""
    normalizer = {"type": vocabulary.normalizer} if vocabulary.normalizer else None
    pre_tokenizer = pre_tokenizer_of(vocabulary.pattern, vocabulary.prefix_space)
    return dict(zip(_KEPT, (normalizer, pre_tokenizer, None, byte_level(use_regex=True)), strict=True))


def _check_parts(found: Mapping[str, Any], place: str) -> None:
    """Raise InputError for a part that `encode` and `decode` don't apply, so that ids or texts would differ."""
    if found.get("version", "1.0") != "1.0":
        raise InputError(f"'{place}' has the version {str(found['version'])[:60]}", "expected 1.0")
    for key, read in (("normalizer", "NFC"), ("decoder", "ByteLevel")):
        for step in steps_of(found.get(key), f"{key}s"):
            part = step.get("type", step) if isinstance(step, dict) else step
            if part != read:
                remedy = f'set "{key}" to null in the file if its effect isn\'t needed'
                raise InputError(f"'{place}' has the {key} {str(part)[:60]}", _EXPECTED, remedy)
    for key in ("truncation", "padding"):
        if found.get(key) is not None:
            remedy = f'set "{key}" to null in the file'
            raise InputError(f"'{place}' has {key}: {str(found[key])[:60]}", _EXPECTED, remedy)


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


def _pattern(pre_tokenizer: Any, own: Mapping[str, Any], place: str) -> tuple[str, bool]:
    """Return the pattern in our own field, which the pre-tokenizer must match, or else the pre-tokenizer's pattern.

    Also return whether it puts a space before a text.
    """
    named = own.get("pattern")
    if not isinstance(named, str):
        return pattern_of(pre_tokenizer, place)
    try:
        if pre_tokenizer == pre_tokenizer_of(pattern_name(named)):
            return named, False
    except WebtextError:
        pass
    pattern, prefix_space = pattern_of(pre_tokenizer, place)
    if pattern != named:
        raise InputError(f"'{place}': its pre-tokenizer doesn't match its pattern {named[:60]!r}", "write it again")
    return named, prefix_space


def _unicode_version(pattern: str, own: Mapping[str, Any], place: str) -> str:
    """Return the version named in our own field; the default if there is none or if the `regex` module decided."""
    named = own.get("unicode_version")
    if named is None or str(named).startswith("regex "):
        return UNICODE_VERSION
    try:
        return checked_version(pattern_name(pattern), str(named))
    except ConfigError as error:
        raise InputError(f"'{place}' uses Unicode {named}: {error.lines[0]}", "update webtext") from None


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
