"""Reading and writing tokenizer files: which format a path names, and the files themselves.

    tokenizer.json              Hugging Face; holds everything                       format_json.py
    folder                      GPT-2's vocab.json (or encoder.json) and merges.txt  format_gpt2.py
                                (or vocab.bpe); one with a tokenizer.json is read from that
    *.tiktoken                  OpenAI's rank file                                   format_ranks.py

Paths may be fsspec URLs. What is read is bounded in size and checked; whatever is wrong is an InputError naming the file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping

from webtext.base.errors import ConfigError, InputError, WebtextError
from webtext.base.storage import Folder
from webtext.tokenizer import findings, format_gpt2, format_json, format_ranks
from webtext.tokenizer.arguments import checked_path
from webtext.tokenizer.patterns import GPT2
from webtext.tokenizer.vocabulary import Vocabulary

MAX_FILE_BYTES = 128 << 20  # the largest tokenizer.json in use are about 35 MB
MAX_SQUARED_BYTES = 2**34  # sum over tokens: some work on a vocabulary is quadratic in their lengths
_BLOCK_BYTES = 1 << 20  # read first; then as much again as there is, since reading takes the memory it asks for

SpecialTokens = Iterable[str] | Mapping[str, int]

_TOKENIZER_JSON = "tokenizer.json"
_VOCABULARY_NAMES = ("vocab.json", "encoder.json")
_MERGES_NAMES = ("merges.txt", "vocab.bpe")
_EXPECTED = "expected tokenizer.json, *.tiktoken, or a folder with vocab.json and merges.txt"


logger = logging.getLogger(__name__)


def load(
    path: str | os.PathLike[str], pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Vocabulary:
    """Read the tokenizer at `path`; `pattern` and `special_tokens` say what the file does not."""
    vocabulary = _load(path, pattern, special_tokens)
    if sum(len(token) ** 2 for token in vocabulary.tokens) > MAX_SQUARED_BYTES:
        raise InputError(
            f"'{os.fspath(path)}' has a token of {max(map(len, vocabulary.tokens)):,} bytes", "name a tokenizer file"
        )
    return vocabulary


def save(vocabulary: Vocabulary, path: str | os.PathLike[str]) -> None:
    """Write the tokenizer in the format that `path` names; each file appears whole or not at all.

    InputError where the format would change ids; a logged warning where other libraries will read other ids from it.
    """
    parent, name = _split(path)
    if name.endswith(".tiktoken"):
        parent.write_bytes(name, format_ranks.dump(vocabulary, parent.location(name)))
    elif name.endswith(".json"):
        parent.write_bytes(name, format_json.dump(vocabulary))
        for remark in findings.about_ranks(vocabulary):
            logger.warning("'%s': %s", os.fspath(path), remark)
    elif "." in name and not (parent.is_local and os.path.isdir(path)):
        raise ConfigError(f"'{path}' names no format of tokenizers", _EXPECTED.replace("expected", "name", 1))
    else:
        folder = Folder(path)
        for other in (_TOKENIZER_JSON, *_VOCABULARY_NAMES[1:], *_MERGES_NAMES[1:]):
            if folder.exists(other):
                raise ConfigError(f"'{folder.location(other)}' is of another tokenizer", "name another folder")
        vocabulary_json, merges_txt = format_gpt2.dump(vocabulary, folder.location())
        folder.write_bytes(_VOCABULARY_NAMES[0], vocabulary_json)
        folder.write_bytes(_MERGES_NAMES[0], merges_txt)


def unsaid(vocabulary: Vocabulary, path: str | os.PathLike[str]) -> list[str]:
    """What the format that `path` names does not hold, and how to tell it when reading; a sentence each."""
    name = _split(path)[1]
    if name.endswith(".json"):
        return []
    said = []
    if name.endswith(".tiktoken"):
        said.append(f"a rank file names no pattern: read it with pattern={vocabulary.pattern!r}")
        if vocabulary.special_tokens:
            said.append(f"nor special tokens: read it with special_tokens={dict(vocabulary.special_tokens)}")
    if vocabulary.extras:
        said.append(f"{', '.join(sorted(vocabulary.extras))} of tokenizer.json are left out")
    return said


def refuse_to_overwrite(path: str | os.PathLike[str], source: str | os.PathLike[str]) -> None:
    """ConfigError when `path` is the source, or holds a file that is no tokenizer."""
    parent, name = _split(path)
    folder = Folder(path)
    if folder.url == Folder(source).url:
        raise ConfigError(f"'{os.fspath(path)}' is both source and target", "name another target")
    is_file = name.endswith((".tiktoken", ".json"))
    if not (parent.exists(name) if is_file else any(map(folder.exists, (*_VOCABULARY_NAMES, *_MERGES_NAMES)))):
        return
    try:
        _load(path, GPT2 if name.endswith(".tiktoken") else None, None)
    except WebtextError:
        raise ConfigError(f"'{os.fspath(path)}' exists and is no tokenizer", "remove it, or name another") from None


def _load(path: str | os.PathLike[str], pattern: str | None, special_tokens: SpecialTokens | None) -> Vocabulary:
    parent, name = _split(path)
    if name.endswith(".tiktoken"):
        return format_ranks.parse(_read(parent, name), parent.location(name), pattern, special_tokens)
    if name.endswith(".json"):
        return format_json.parse(_read(parent, name), parent.location(name), pattern, special_tokens)
    folder = Folder(path)
    if folder.exists(_TOKENIZER_JSON):
        return _load(folder.location(_TOKENIZER_JSON), pattern, special_tokens)
    if not folder.exists(""):
        raise InputError(f"there is no tokenizer '{folder.url}'", "check the path")
    found = [[name for name in names if folder.exists(name)] for names in (_VOCABULARY_NAMES, _MERGES_NAMES)]
    if not all(found):
        raise InputError(f"'{folder.url}' is no tokenizer", _EXPECTED)
    for names in found:
        if len(names) > 1:
            raise InputError(f"'{folder.url}' holds both {names[0]} and {names[1]}", "remove the one not meant")
    vocabulary, merges = found[0][0], found[1][0]
    return format_gpt2.parse(
        (_read(folder, vocabulary), folder.location(vocabulary)),
        (_read(folder, merges), folder.location(merges)),
        pattern,
        special_tokens,
    )


def _split(path: str | os.PathLike[str]) -> tuple[Folder, str]:
    """The folder a path lies in, and its last name."""
    parent, slash, name = checked_path(path).rstrip("/").rpartition("/")
    return Folder(parent or slash or "."), name


def _read(folder: Folder, name: str) -> bytes:
    place = folder.location(name)
    data = b""
    with folder.open(name) as file:
        while len(data) <= MAX_FILE_BYTES and (block := file.read(max(len(data), _BLOCK_BYTES))):
            data += block
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"'{place}' has more than {MAX_FILE_BYTES >> 20} MiB", "name a tokenizer file")
    if not data:
        raise InputError(f"'{place}' is empty", "write or download it again")
    return data
