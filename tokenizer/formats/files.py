"""Reading and writing tokenizer files; the path decides the format.

    tokenizer.json              Hugging Face; contains everything                    tokenizer_json.py
    folder                      GPT-2's vocab.json (or encoder.json) and merges.txt  gpt2.py
                                (or vocab.bpe); if it has a tokenizer.json, that is read instead
    *.tiktoken                  OpenAI's rank file                                   ranks.py

Paths may be fsspec URLs. Input is bounded in size and checked; anything wrong raises an InputError that names the file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping

from webtext.base.errors import ConfigError, InputError, WebtextError
from webtext.base.storage import Folder
from webtext.tokenizer import findings
from webtext.tokenizer.arguments import split_path
from webtext.tokenizer.formats import gpt2, ranks, tokenizer_json
from webtext.tokenizer.patterns.named import GPT2
from webtext.tokenizer.vocabulary import Vocabulary

MAX_FILE_BYTES = 128 << 20  # the largest tokenizer.json in use are about 35 MB
MAX_SQUARED_BYTES = 2**34  # sum over tokens: some work on a vocabulary is quadratic in their lengths
_BLOCK_BYTES = 1 << 20  # first read; later ones double the size, because `read(n)` allocates n bytes at once

SpecialTokens = Iterable[str] | Mapping[str, int]

_TOKENIZER_JSON = "tokenizer.json"
_VOCABULARY_NAMES = ("vocab.json", "encoder.json")
_MERGES_NAMES = ("merges.txt", "vocab.bpe")
_EXPECTED = "expected tokenizer.json, *.tiktoken, or a folder with vocab.json and merges.txt"


logger = logging.getLogger(__name__)


def load(
    path: str | os.PathLike[str], pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Vocabulary:
    """Read the tokenizer at `path`; `pattern` and `special_tokens` add what the file doesn't contain."""
    vocabulary = _load(path, pattern, special_tokens)
    if sum(len(token) ** 2 for token in vocabulary.tokens) > MAX_SQUARED_BYTES:
        raise InputError(
            f"'{os.fspath(path)}' has a token of {max(map(len, vocabulary.tokens)):,} bytes", "name a tokenizer file"
        )
    return vocabulary


def save(vocabulary: Vocabulary, path: str | os.PathLike[str]) -> None:
    """Write the tokenizer in the format that `path` implies; each file is written atomically.

    Raises InputError if the format would change ids; logs a warning if other libraries will return other ids.
    """
    parent, name = split_path(path)
    if name.endswith(".tiktoken"):
        parent.write_bytes(name, ranks.dump(vocabulary, parent.location(name)))
    elif name.endswith(".json"):
        parent.write_bytes(name, tokenizer_json.dump(vocabulary))
        for remark in findings.about_ranks(vocabulary):
            logger.warning("'%s': %s", os.fspath(path), remark)
    elif "." in name and not (parent.is_local and os.path.isdir(path)):
        raise ConfigError(f"'{path}' is not a known tokenizer format", _EXPECTED.replace("expected", "use", 1))
    else:
        folder = Folder(path)
        for other in (_TOKENIZER_JSON, *_VOCABULARY_NAMES[1:], *_MERGES_NAMES[1:]):
            if folder.exists(other):
                raise ConfigError(f"'{folder.location(other)}' belongs to another tokenizer", "name another folder")
        vocabulary_json, merges_txt = gpt2.dump(vocabulary, folder.location())
        folder.write_bytes(_VOCABULARY_NAMES[0], vocabulary_json)
        folder.write_bytes(_MERGES_NAMES[0], merges_txt)


def unsaid(vocabulary: Vocabulary, path: str | os.PathLike[str]) -> list[str]:
    """Return sentences about what the format of `path` can't store, with the argument to pass when reading."""
    name = split_path(path)[1]
    if name.endswith(".json"):
        return []
    said = []
    if name.endswith(".tiktoken"):
        said.append(f"a rank file doesn't store the pattern: read it with pattern={vocabulary.pattern!r}")
        if vocabulary.special_tokens:
            said.append(f"nor the special tokens: read it with special_tokens={dict(vocabulary.special_tokens)}")
    if vocabulary.extras:
        said.append(f"{', '.join(sorted(vocabulary.extras))} of tokenizer.json are left out")
    return said


def refuse_to_overwrite(path: str | os.PathLike[str], source: str | os.PathLike[str]) -> None:
    """Raise ConfigError if `path` is the source, or exists and isn't a tokenizer."""
    parent, name = split_path(path)
    folder = Folder(path)
    if folder.url == Folder(source).url:
        raise ConfigError(f"'{os.fspath(path)}' is both source and target", "name another target")
    is_file = name.endswith((".tiktoken", ".json"))
    if not (parent.exists(name) if is_file else any(map(folder.exists, (*_VOCABULARY_NAMES, *_MERGES_NAMES)))):
        return
    try:
        _load(path, GPT2 if name.endswith(".tiktoken") else None, None)
    except WebtextError:
        raise ConfigError(f"'{os.fspath(path)}' exists and is not a tokenizer", "remove it or name another") from None


def _load(path: str | os.PathLike[str], pattern: str | None, special_tokens: SpecialTokens | None) -> Vocabulary:
    parent, name = split_path(path)
    if name.endswith(".tiktoken"):
        return ranks.parse(_read(parent, name), parent.location(name), pattern, special_tokens)
    if name.endswith(".json"):
        return tokenizer_json.parse(_read(parent, name), parent.location(name), pattern, special_tokens)
    folder = Folder(path)
    if folder.exists(_TOKENIZER_JSON):
        return _load(folder.location(_TOKENIZER_JSON), pattern, special_tokens)
    if not folder.exists(""):
        raise InputError(f"there is no tokenizer '{folder.url}'", "check the path")
    found = [[name for name in names if folder.exists(name)] for names in (_VOCABULARY_NAMES, _MERGES_NAMES)]
    if not all(found):
        raise InputError(f"'{folder.url}' is not a tokenizer", _EXPECTED)
    for names in found:
        if len(names) > 1:
            raise InputError(f"'{folder.url}' contains both {names[0]} and {names[1]}", "remove one of them")
    vocabulary, merges = found[0][0], found[1][0]
    return gpt2.parse(
        (_read(folder, vocabulary), folder.location(vocabulary)),
        (_read(folder, merges), folder.location(merges)),
        pattern,
        special_tokens,
    )


def _read(folder: Folder, name: str) -> bytes:
    place = folder.location(name)
    data = b""
    with folder.open(name) as file:
        while len(data) <= MAX_FILE_BYTES and (block := file.read(max(len(data), _BLOCK_BYTES))):
            data += block
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"'{place}' is larger than {MAX_FILE_BYTES >> 20} MiB", "expected a tokenizer file")
    if not data:
        raise InputError(f"'{place}' is empty", "write or download it again")
    return data
