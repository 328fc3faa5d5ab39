"""Any bytes as a tokenizer.json (tokenizer/formats).

- Reading raises InputError and nothing else, with at most three lines.
- What is read gives the ids of Hugging Face's tokenizers for the same file, if they read it.
- Written and read again, it is the same vocabulary.
"""

from __future__ import annotations

import copy
import functools
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import tokenizers

from webtext.base.errors import InputError
from webtext.tokenizer import Tokenizer

TEXTS = [
    "",
    "a",
    "ab abc  abcd\n\nab's 1234 Zé中 <|x|>ab<|y|> !!ab",
    "<|x|",
    " \r\n a\tb",
    "ABab12'll don't x<|x|><|x|>",
]
MAX_BYTES = 1 << 14
KEYS = [
    *("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"),
    *("model", "type", "webtext", "format", "pattern", "unicode_version", "rules", "dropout", "unk_token", "fuse_unk"),
    *("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges", "vocab", "merges", "id"),
    *("content", "single_word", "lstrip", "rstrip", "normalized", "special", "add_prefix_space", "trim_offsets"),
    *("use_regex", "pretokenizers", "behavior", "invert", "Regex", "String", "normalizers"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 256, 257, 258, 300, 2**22 - 1, 2**22, 2**32, 2**64, 0.0, 0.5, 1e300),
    *("", " ", "0"),
    *("a", "b", "ab", "abc", "Ġ", "Ġa", "a b", "ab c", "a b c", "é", "Ã©", "中", "<|x|>", "<|y|>", "\ud800", "\x00"),
    *("BPE", "ByteLevel", "Sequence", "Split", "Isolated", "Removed", "WordPiece", "gpt2", "cl100k", "16.0.0"),
    "15.0.0",
    *(r"\w+", r"\s+", r"a|b", r"\p{L}+|\p{N}{1,2}", r"(?i:ab)|.", r"[^a]+", r"(", "a{1,2}+", r"^a|b$", r"\Z", ""),
    r"(?=a)",
    *([], {}, [[]], ["a", "b"], ["a b"], [["a", "b"]], {"a": 0}, {"Regex": "a"}, {"String": "a"}, "ranks", "merges"),
    *("NFC", "Digits", "decoders", "processors", "individual_digits", {"type": "NFC"}, {"type": "Lowercase"}),
    {"type": "Digits", "individual_digits": True},
    {"type": "Digits", "individual_digits": False},
    {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
    {"type": "Split", "pattern": {"String": "ab"}, "behavior": "Isolated", "invert": True},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    {"type": "Split", "pattern": {"Regex": r"\w+|\W"}, "behavior": "Isolated", "invert": False},
    {"id": 262, "content": "<|z|>", "special": False, "single_word": False, "lstrip": False, "rstrip": False},
    {"id": 300, "content": "<|z|>", "special": True, "single_word": False, "lstrip": False, "rstrip": False},
]


def check(data: bytes) -> None:
    path = _folder() / "tokenizer.json"
    path.write_bytes(data)
    ours = _loaded(path)
    if isinstance(ours, InputError):
        assert 1 <= len(ours.lines) <= 3
        return
    ids = [ours.encode(text, allowed_special="all") for text in TEXTS]
    if not (ours._vocabulary.normalizer or ours._vocabulary.prefix_space):
        assert [ours.decode_bytes(found) for found in ids] == [text.encode() for text in TEXTS]
    theirs = _hugging_face(data)
    if theirs is not None:
        for text, found in zip(TEXTS, ids, strict=True):
            assert theirs.encode(text, add_special_tokens=False).ids == found, text
    again = _folder() / "again.json"
    ours.save(again)
    assert Tokenizer.load(again)._vocabulary == ours._vocabulary


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Change a value or two of a JSON document; now and then its bytes."""
    chance = random.Random(seed)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if document is None or chance.random() < 0.1:
        return _other_bytes(data, max_size, chance)
    for _ in range(chance.choice((1, 1, 2, 4))):
        place = chance.choice(list(_containers(document)) or [[]])
        key = chance.choice([*(place if isinstance(place, dict) else range(len(place))), None])
        _change(place, key, chance)
    return json.dumps(document, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")[:max_size]


def _change(place: dict[str, Any] | list[Any], key: Any, chance: random.Random) -> None:
    value = copy.deepcopy(chance.choice([*VALUES, *KEYS])) if chance.random() < 0.8 else chance.randrange(-2, 600)
    if isinstance(place, dict):
        if key is not None and chance.random() < 0.3:
            value = place.pop(key)
            key = None if chance.random() < 0.5 else key + chance.choice("ab ")
        place[chance.choice([*KEYS, *filter(None, map(str, VALUES[21:37]))]) if key is None else key] = value
    elif key is None or chance.random() < 0.3:
        place.insert(chance.randrange(len(place) + 1), copy.deepcopy(place[key]) if key is not None else value)
    elif chance.random() < 0.3:
        del place[key]
    else:
        place[key] = value


def _containers(value: Any) -> Any:
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _containers(inner)


def _other_bytes(data: bytes, max_size: int, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    added = chance.choice(
        [b'"', b"{", b"]", b",", b"\xff", b"\xef\xbb\xbf", b"NaN", b"1e999", b"\\ud800", bytes([chance.randrange(256)])]
    )
    return (data[:at] + added + data[at + chance.randrange(3) :])[:max_size]


def _loaded(path: Path) -> Tokenizer | InputError:
    try:
        return Tokenizer.load(path)
    except InputError as error:
        return error


def _hugging_face(data: bytes) -> tokenizers.Tokenizer | None:
    """Return Hugging Face's tokenizer of the same file; None if they don't read it."""
    try:
        return tokenizers.Tokenizer.from_str(data.decode("utf-8-sig"))
    except Exception:
        return None


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="webtext-fuzz-"))
