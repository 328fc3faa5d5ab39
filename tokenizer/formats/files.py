"""Reading and writing tokenizer files; the path decides the format.

    tokenizer.json  Hugging Face; contains everything                                    tokenizer_json.py
    folder          tokenizer.json, and tokenizer_config.json for transformers           libraries.py
                    to read also: vocab.json (encoder.json) and merges.txt (vocab.bpe)
    vocab.json      and merges.txt next to it (next to encoder.json: vocab.bpe)          gpt2.py
    *.tiktoken      OpenAI's rank file                                                   ranks.py

Paths may be fsspec URLs. Input is bounded in size and checked; anything wrong raises an InputError that names the file.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from webtext.base.errors import ConfigError, InputError, WebtextError
from webtext.base.storage import Folder
from webtext.tokenizer.arguments import MAX_INT, checked_int, split_path
from webtext.tokenizer.formats import gpt2, libraries, ranks, tokenizer_json
from webtext.tokenizer.patterns.named import GPT2
from webtext.tokenizer.vocabulary import Vocabulary

MAX_FILE_BYTES = 128 << 20  # the largest tokenizer.json in use are about 35 MB
MAX_SQUARED_BYTES = 2**34  # sum over tokens: some work on a vocabulary is quadratic in their lengths
_BLOCK_BYTES = 1 << 20  # first read; later ones double the size, because `read(n)` allocates n bytes at once

SpecialTokens = Iterable[str] | Mapping[str, int]

_TOKENIZER_JSON = "tokenizer.json"
_MERGES_OF = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}
_CONFIGS = ("special_tokens_map.json", "tokenizer_config.json")  # the second counts where they differ
_ADDED = "added_tokens.json"  # of older folders
_TEMPLATE = "chat_template.jinja"
_EXPECTED = "expected tokenizer.json, *.tiktoken, vocab.json with merges.txt, or a folder with one of them"

logger = logging.getLogger(__name__)


def load(
    path: str | os.PathLike[str], pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Vocabulary:
    """Read the tokenizer at `path`; `pattern` and `special_tokens` add what the file doesn't contain."""
    vocabulary = _load(path, pattern, special_tokens)
    tokens = vocabulary.tokens
    longest = max(map(len, tokens), default=0)
    if longest**2 * len(tokens) > MAX_SQUARED_BYTES < sum(len(token) ** 2 for token in tokens):
        raise InputError(f"'{os.fspath(path)}' has a token of {longest:,} bytes", "name a tokenizer file")
    return vocabulary


def save(vocabulary: Vocabulary, path: str | os.PathLike[str], model_max_length: int | None = None) -> None:
    """Write the tokenizer in the format that `path` implies; each file is written atomically. Raises as `dumped` does.

    Logs a warning if other libraries will return other ids.
    """
    folder, files = dumped(vocabulary, path, model_max_length)
    for name, data in files.items():
        folder.write_bytes(name, data)
    if not name.endswith(".tiktoken") and (remark := ranks.about_ranks(vocabulary)):
        logger.warning("'%s': %s", path, remark)


def dumped(
    vocabulary: Vocabulary, path: str | os.PathLike[str], model_max_length: int | None = None
) -> tuple[Folder, dict[str, bytes]]:
    """Return the folder that `save` writes to, and its files by name. Raises InputError if ids would change in that format."""
    parent, name = split_path(path)
    place = parent.location(name)
    if model_max_length is not None and name.endswith((".tiktoken", ".json")):
        raise ConfigError(f"'{os.fspath(path)}' can't store model_max_length", "name a folder")
    if name.endswith(".tiktoken"):
        return parent, {name: ranks.dump(vocabulary, place)}
    if name in _MERGES_OF:
        return parent, dict(zip((name, _MERGES_OF[name]), gpt2.dump(vocabulary, place), strict=True))
    if name.endswith(".json"):
        return parent, {name: tokenizer_json.dump(vocabulary)}
    if "." in name and not (parent.is_local and os.path.isdir(path)):
        raise ConfigError(f"'{path}' is not a known tokenizer format", _EXPECTED.replace("expected", "use", 1))
    folder = Folder(path)
    for other in (*_MERGES_OF, *_MERGES_OF.values(), _CONFIGS[0], _TEMPLATE):
        if folder.exists(other):
            raise ConfigError(f"'{folder.location(other)}' belongs to another tokenizer", "name another folder")
    config = libraries.config_of(vocabulary)
    if model_max_length is not None:
        config["model_max_length"] = checked_int("model_max_length", model_max_length, 1, MAX_INT, "1 id or more")
    _, files = dumped(vocabulary, folder.location(_TOKENIZER_JSON))
    return folder, files | {_CONFIGS[1]: gpt2.dump_json({"tokenizer_class": "PreTrainedTokenizerFast", **config})}


def unsaid(vocabulary: Vocabulary, path: str | os.PathLike[str]) -> list[str]:
    """Return sentences about properties that the format of `path` can't store, with the argument to pass when reading."""
    name, said = split_path(path)[1], []
    lost = vocabulary.extras.get("tokenizer_config", {}).keys() & {"chat_template"}
    if name.endswith(".tiktoken") or name in _MERGES_OF:
        lost |= vocabulary.extras.keys() - {"tokenizer_config", "pre_tokenizer"}
    elif not name.endswith(".json"):
        return []
    if name.endswith(".tiktoken"):
        said.append(f"a rank file doesn't store the pattern: read it with pattern={vocabulary.pattern!r}")
        if vocabulary.special_tokens:
            said.append(f"nor the special tokens: read it with special_tokens={dict(vocabulary.special_tokens)}")
    if lost:
        said.append(f"{', '.join(sorted(lost))}: left out; a folder stores everything")
    return said


def refuse_to_overwrite(path: str | os.PathLike[str]) -> None:
    """Raise ConfigError if `path` exists and isn't a tokenizer."""
    parent, name = split_path(path)
    folder = Folder(path)
    is_file = name.endswith((".tiktoken", ".json"))
    if not parent.exists(name) if is_file else not any(map(folder.exists, (_TOKENIZER_JSON, *_MERGES_OF))):
        return
    for pattern in (None, GPT2):  # for files that don't state one
        with contextlib.suppress(WebtextError):
            _load(path, pattern, None)
            return
    raise ConfigError(f"'{os.fspath(path)}' exists and is not a tokenizer", "remove it or name another")


def _load(path: str | os.PathLike[str], pattern: str | None, special_tokens: SpecialTokens | None) -> Vocabulary:
    parent, name = split_path(path)
    if name.endswith(".tiktoken"):
        return ranks.parse(_read(parent, name), parent.location(name), pattern, special_tokens)
    if name in _MERGES_OF:
        return _load_pair(parent, name, _MERGES_OF[name], pattern, special_tokens)
    if name.endswith(".json"):
        return tokenizer_json.parse(_read(parent, name), parent.location(name), pattern, special_tokens)
    folder = Folder(path)
    if folder.exists(_TOKENIZER_JSON):
        vocabulary = _load(folder.location(_TOKENIZER_JSON), pattern, special_tokens)
    else:
        vocabulary = _load_pair(folder, *_names_of_pair(folder), pattern, special_tokens)
    config = _read_config(folder)
    return replace(vocabulary, extras={**vocabulary.extras, "tokenizer_config": config}) if config else vocabulary


def _names_of_pair(folder: Folder) -> tuple[str, str]:
    """Return the names of the vocabulary and of the merges in a folder."""
    if not folder.exists(""):
        raise InputError(f"there is no tokenizer '{folder.url}'", "check the path")
    found = [list(filter(folder.exists, names)) for names in (_MERGES_OF, _MERGES_OF.values())]
    if not all(found):
        raise InputError(f"'{folder.url}' is not a tokenizer", _EXPECTED)
    for names in found:
        if len(names) > 1:
            raise InputError(f"'{folder.url}' contains both {names[0]} and {names[1]}", "remove one of them")
    return found[0][0], found[1][0]


def _load_pair(
    folder: Folder, vocabulary: str, merges: str, pattern: str | None, special_tokens: SpecialTokens | None
) -> Vocabulary:
    files = [(_read(folder, name), folder.location(name)) for name in (vocabulary, merges)]
    config = _raw_config(folder)
    if "added_tokens_decoder" not in config and folder.exists(_ADDED):
        found = gpt2.parse_json(_read(folder, _ADDED), folder.location(_ADDED))
        config["added_tokens_decoder"] = {id_: {"content": name, "special": True} for name, id_ in found.items()}
    return gpt2.parse(files[0], files[1], pattern, special_tokens, config)


def _raw_config(folder: Folder) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name in filter(folder.exists, _CONFIGS):
        config |= gpt2.parse_json(_read(folder, name), folder.location(name))
    return config


def _read_config(folder: Folder) -> dict[str, Any]:
    """Return the facts from transformers' files about the tokenizer in the folder that are written again."""
    config = _raw_config(folder)
    if folder.exists(_TEMPLATE):
        try:
            config["chat_template"] = _read(folder, _TEMPLATE).decode()
        except UnicodeDecodeError as error:
            place = folder.location(_TEMPLATE)
            raise InputError(f"'{place}' is not valid UTF-8: {error}", "write or download it again") from None
    return libraries.kept_config(config)


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
