"""GPT-2's two files: a JSON object from token to id, and a list of merges, one per line.

Tokens are written in visible characters, one per byte (`byte_characters`). tokenizer.json writes them the same way and
uses the functions here, also those that read untrusted JSON within bounds.
"""

from __future__ import annotations

import collections
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from webtext.base.errors import ConfigError, InputError
from webtext.tokenizer.formats.added_tokens import read_added_tokens
from webtext.tokenizer.patterns.named import GPT2, REGEXES, UNICODE_VERSION, pattern_name
from webtext.tokenizer.vocabulary import MAX_ID, Vocabulary, byte_characters, special_ids

MAX_VALUES = 1 << 23
"""Values per file; the largest tokenizer.json in use have two million. Bounds memory: a value takes about 64 bytes."""

_SPECIAL_NAME = re.compile(r"<.*>|\[.*\]", re.DOTALL)  # names of tokens that need no merge
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_HEADER = "#version:"
_SKIPPED = "#version"  # tokenizers 0.23, BPE::read_file: such a line is a header anywhere in the file
_SAVE_AS_JSON = "save as tokenizer.json"

# How transformers' classes prepare and cut a text, by tokenizer_class: pattern and normalizer.
_CLASSES: dict[str, tuple[str, Literal["NFC"] | None]] = {
    **dict.fromkeys(("GPT2", "CodeGen", "Whisper"), (GPT2, None)),
    "Qwen2": ("qwen2", "NFC"),
}
_CLASS = re.compile(r"(.*?)Tokenizer(Fast)?")
_GPT2_MERGES = "04e3597d7996f292ca9b8b7285ca4d58a6ae171ac47d73fc7140ceb0c7a6bbc0"
_OWN_HEADER = f"{_HEADER} 0.2 webtext gpt2"
"""First line of merges that we write; GPT-2's own are recognised by the SHA-256 of their lines."""

Named = tuple[bytes, str]  # a file's bytes and its location
Pair = tuple[str, str]


def parse(
    vocabulary: Named,
    merges: Named,
    pattern: str | None,
    special_tokens: Iterable[str] | Mapping[str, int] | None,
    config: Mapping[str, Any] | None = None,
) -> Vocabulary:
    """Read both files, and what a tokenizer_config.json beside them says: its class decides the pattern.

    A token without a merge is special if its name looks like it (<...>, [...]), else InputError. So is a pattern that
    no file states, and none is given.
    """
    (vocabulary_data, place), (merges_data, merges_place) = vocabulary, merges
    ids = checked_ids(parse_json(vocabulary_data, place), place)
    header, lines = _lines(merges_data, merges_place)
    config = config if config and header != _OWN_HEADER else {}
    own, normalizer = _rule(header, lines, config)
    if own is None and pattern is None:
        raise InputError(
            f"'{place}' and '{merges_place}' don't state the pattern, and no tokenizer_class beside them does",
            f"pass the one they were made with: pattern='gpt2', {', '.join(map(repr, list(REGEXES)[1:]))} or an expression",
            "or: webtext tokenizer convert FOLDER tokenizer.json --pattern NAME",
        )
    if own is not None and pattern is not None and pattern_name(pattern) != own:
        raise ConfigError(f"'{place}' has the pattern {own!r}", "leave out pattern=")
    prefix_space = config.get("add_prefix_space") is True
    if prefix_space and own != GPT2:
        raise InputError(f"'{place}' has add_prefix_space with the pattern {own!r}", "only GPT-2's is read with it")
    specials, of_added = read_added_tokens(_added(config, place), ids, place)
    pairs = [_pair(line, merges_place) for line in lines if line]
    made = {left + right for left, right in pairs}
    single = byte_characters()[0]
    left_over = [token for token in ids if token not in made and token not in single]
    specials |= {token: ids[token] for token in left_over if _SPECIAL_NAME.fullmatch(token)}
    specials |= named_specials(special_tokens, ids | specials)
    unknown = [token for token in left_over if token not in specials]
    if unknown:
        raise InputError(
            f"'{merges_place}' has no merge for {len(unknown):,} tokens of '{place}', the first {unknown[0]!r}",
            "it may be cut short: write or download both again (or name them in special_tokens)",
        )
    read = make_vocabulary(ids, pairs, specials, pattern=own or pattern or "", whole_pieces=False, place=merges_place)
    return replace(read, normalizer=normalizer, prefix_space=prefix_space, **of_added)


def _rule(header: str, lines: Sequence[str], config: Mapping[str, Any]) -> tuple[str | None, Literal["NFC"] | None]:
    """Return the pattern that the files state (None if they don't), and the normalizer."""
    class_ = _CLASS.fullmatch(str(config.get("tokenizer_class")))
    if class_ and class_[1] in _CLASSES:
        return _CLASSES[class_[1]]
    is_known = header == _OWN_HEADER or _hash(lines) == _GPT2_MERGES
    return (GPT2 if is_known else None), None


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(filter(None, lines)).encode()).hexdigest()


def _added(config: Mapping[str, Any], place: str) -> list[Any]:
    """Return the added tokens in the form of a tokenizer.json, by id."""
    found = config.get("added_tokens_decoder") or {}
    try:
        return [{**found[id_], "id": int(id_)} for id_ in sorted(found, key=int)]
    except (ValueError, TypeError):
        raise InputError(f"'{place}' has a damaged tokenizer_config.json beside it", "download it again") from None


def dump(vocabulary: Vocabulary, place: str) -> tuple[bytes, bytes]:
    """Return both files' bytes. Raises InputError if reading them back would give other ids."""
    if vocabulary.preparation:
        raise InputError(f"'{place}': vocab.json and merges.txt can't store {vocabulary.preparation}", _SAVE_AS_JSON)
    if vocabulary.pattern != GPT2 or not vocabulary.has_default_version:
        raise InputError(
            f"'{place}': vocab.json and merges.txt can't store the pattern and the Unicode version", _SAVE_AS_JSON
        )
    ids, merges = written(vocabulary)
    made = {left + right for left, right in merges}
    lost = sorted(set(ids) - made - byte_characters()[0].keys() - vocabulary.special_tokens.keys())
    if lost or (vocabulary.whole_pieces and vocabulary.unmerged()):
        raise InputError(f"'{place}': merges alone don't produce every token: {lost[:1]}", _SAVE_AS_JSON)
    hidden = [name for name in vocabulary.special_tokens if name in made or not _SPECIAL_NAME.fullmatch(name)]
    if hidden:
        raise InputError(
            f"'{place}': vocab.json and merges.txt can't mark {hidden[0]!r} as a special token",
            f"{_SAVE_AS_JSON}, or name it like <...> or [...]",
        )
    if any(left.startswith(_SKIPPED) for left, _ in merges):
        raise InputError(f"'{place}': other libraries skip merges that begin with '{_SKIPPED}'", _SAVE_AS_JSON)
    lines = [f"{left} {right}" for left, right in merges]
    header = f"{_HEADER} 0.2" if _hash(lines) == _GPT2_MERGES else _OWN_HEADER
    return dump_json(ids), "".join(f"{line}\n" for line in [header, *lines]).encode()


def parse_json(data: bytes, place: str) -> dict[str, Any]:
    """Return the JSON object in a file. Raises InputError if there is none, or for repeated keys, NaN and infinity."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise InputError(f"'{place}' has more than {MAX_VALUES:,} JSON values", "expected a tokenizer file")
    try:
        found = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_without_duplicates, parse_constant=_refuse)
        if _SURROGATE.search(data):
            json.dumps(found, ensure_ascii=False).encode()  # raises for half a surrogate pair, which can't be written
    except (ValueError, RecursionError) as error:  # ValueError: bad UTF-8, bad JSON, an int of more than 4,300 digits
        raise InputError(f"'{place}' is not valid JSON: {str(error)[:200]}", "write or download it again") from None
    if not isinstance(found, dict):
        raise InputError(f"'{place}' is a JSON {type(found).__name__}, not an object", "expected a tokenizer file")
    return found


def dump_json(value: Any) -> bytes:
    """Return JSON as bytes, with one value per line."""
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def checked_ids(ids: Any, place: str) -> dict[str, int]:
    """Return a vocabulary read from JSON after checking it."""
    if not isinstance(ids, dict) or not ids:
        raise InputError(f"'{place}' has no vocabulary", "expected a JSON object from token to id")
    for token, id_ in ids.items():
        if type(id_) is not int or not 0 <= id_ < MAX_ID:
            raise InputError(f"'{place}': the id of {token!r} is {id_!r}", f"expected an integer below {MAX_ID:,}")
    return ids


def named_specials(names: Iterable[str] | Mapping[str, int] | None, ids: Mapping[str, int]) -> dict[str, int]:
    """Return the caller's special tokens with their ids in the file, or else with the ids after the largest."""
    if names is None:
        return {}
    if isinstance(names, Mapping):
        for name, id_ in names.items():
            if ids.get(name, id_) != id_:
                raise InputError(
                    f"the special token {name!r} has the id {ids[name]} in the file, not {id_}", "leave its id out"
                )
        return dict(names)
    wanted = special_ids(names, 0)
    new = [name for name in wanted if name not in ids]
    return {name: ids[name] for name in wanted if name in ids} | special_ids(new, max(ids.values(), default=-1) + 1)


def make_vocabulary(
    ids: Mapping[str, int],
    merges: Sequence[Pair] | None,
    specials: Mapping[str, int],
    *,
    pattern: str,
    unicode_version: str = UNICODE_VERSION,
    whole_pieces: bool,
    place: str,
) -> Vocabulary:
    """Create a Vocabulary from tokens as they are written in a file. Raises InputError for inconsistent ids."""
    made = {left + right for left, right in merges or ()}
    for name, id_ in specials.items():
        if ids.get(name) == id_ and (name in made or name in byte_characters()[0]):
            raise InputError(
                f"'{place}': the special token {name!r} (id {id_}) is also a token of text", "give it another name"
            )
    texts = {token: id_ for token, id_ in ids.items() if specials.get(token) != id_}
    unreachable = {token: texts.pop(token) for token in list(texts) if _bytes(token) is None}
    tokens = [b""] * (max(texts.values(), default=-1) + 1)
    for token, id_ in texts.items():
        if tokens[id_]:
            raise InputError(f"'{place}': {token!r} has the id {id_} of another token", "write or download it again")
        tokens[id_] = _bytes(token) or b""
    pairs = None
    if merges is not None:
        if unreachable:
            merges = [pair for pair in merges if not unreachable.keys() & pair]
        try:
            pairs = [(texts[left], texts[right]) for left, right in merges]
        except KeyError as error:
            raise InputError(
                f"'{place}': a merge names {error.args[0]!r}, which is not a token", "write or download it again"
            ) from None
    return Vocabulary(
        tokens=tokens,
        merges=pairs,
        pattern=pattern,
        unicode_version=unicode_version,
        special_tokens=specials,
        whole_pieces=whole_pieces,
        unreachable=unreachable,
    )


def written(vocabulary: Vocabulary) -> tuple[dict[str, int], list[Pair]]:
    """Return tokens (special ones last) and merges as they are written in a file."""
    names = _names(vocabulary)
    merges = vocabulary.merges if vocabulary.merges is not None else vocabulary.merges_by_rank()
    return written_ids(vocabulary), [(names[left], names[right]) for left, right in merges]


def written_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Return the ids of tokens (special ones last) by their names in a file. InputError if two have one name."""
    ids = {name: id_ for id_, name in enumerate(_names(vocabulary)) if name}
    for name, id_ in vocabulary.named.items():
        if ids.setdefault(name, id_) != id_:
            raise InputError(f"the special token {name!r} is also a token of text", "give it another name")
    return ids


def _names(vocabulary: Vocabulary) -> list[str]:
    character_of = byte_characters()[1].__getitem__
    return ["".join(map(character_of, token)) for token in vocabulary.tokens]


def _bytes(token: str) -> bytes | None:
    """Return a token's bytes; None if it isn't written in characters for bytes, so that no text produces it."""
    try:
        return bytes(map(byte_characters()[0].__getitem__, token))
    except KeyError:
        return None


def _lines(data: bytes, place: str) -> tuple[str, list[str]]:
    """Return the header, '' for none, and the other lines."""
    try:
        lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"'{place}' is not valid UTF-8: {error}", "write or download it again") from None
    return (lines[0], lines[1:]) if lines[0].startswith(_HEADER) else ("", lines)


def _pair(line: str, place: str) -> Pair:
    left, blank, right = line.partition(" ")
    if not left or not right or " " in right:
        raise InputError(f"'{place}' has the line {line[:60]!r}", "expected two tokens separated by a space")
    return left, right


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = collections.Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:60]!r} occurs twice in one object")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")
