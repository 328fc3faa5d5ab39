"""Reading and writing tokenizer files: which format a path names, and the files themselves.

    tokenizer.json              Hugging Face; holds everything                       format_json.py
    folder                      GPT-2's vocab.json (or encoder.json) and merges.txt  format_gpt2.py
                                (or vocab.bpe); one with a tokenizer.json is read from that
    *.tiktoken                  OpenAI's rank file                                   format_ranks.py

Paths may be fsspec URLs. What is read is bounded in size and checked; whatever is wrong is an InputError naming the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from webtext.base.errors import ConfigError, InputError
from webtext.base.storage import Folder
from webtext.tokenizer import format_gpt2, format_json, format_ranks
from webtext.tokenizer.vocabulary import Vocabulary

MAX_FILE_BYTES = 256 << 20  # the largest tokenizer.json in use are about 35 MB

SpecialTokens = Iterable[str] | Mapping[str, int]

_TOKENIZER_JSON = "tokenizer.json"
_VOCABULARY_NAMES = ("vocab.json", "encoder.json")
_MERGES_NAMES = ("merges.txt", "vocab.bpe")
_EXPECTED = "expected tokenizer.json, *.tiktoken, or a folder with vocab.json and merges.txt"


def load(
    path: str | os.PathLike[str], pattern: str | None = None, special_tokens: SpecialTokens | None = None
) -> Vocabulary:
    """Read the tokenizer at `path`; `pattern` and `special_tokens` say what the file does not."""
    parent, name = _split(path)
    if name.endswith(".tiktoken"):
        return format_ranks.parse(_read(parent, name), parent.location(name), pattern, special_tokens)
    if name.endswith(".json"):
        return format_json.parse(_read(parent, name), parent.location(name), pattern, special_tokens)
    folder = Folder(path)
    if folder.exists(_TOKENIZER_JSON):
        return load(folder.location(_TOKENIZER_JSON), pattern, special_tokens)
    if not folder.exists(""):
        raise InputError(f"there is no tokenizer '{folder.url}'", "check the path")
    vocabulary, merges = (
        next((name for name in names if folder.exists(name)), None) for names in (_VOCABULARY_NAMES, _MERGES_NAMES)
    )
    if vocabulary is None or merges is None:
        raise InputError(f"'{folder.url}' is no tokenizer", _EXPECTED)
    return format_gpt2.parse(
        (_read(folder, vocabulary), folder.location(vocabulary)),
        (_read(folder, merges), folder.location(merges)),
        pattern,
        special_tokens,
    )


def save(vocabulary: Vocabulary, path: str | os.PathLike[str]) -> None:
    """Write the tokenizer in the format that `path` names; each file appears whole or not at all."""
    parent, name = _split(path)
    if name.endswith(".tiktoken"):
        parent.write_bytes(name, format_ranks.dump(vocabulary, parent.location(name)))
    elif name.endswith(".json"):
        parent.write_bytes(name, format_json.dump(vocabulary))
    elif "." in name and not (parent.is_local and os.path.isdir(path)):
        raise ConfigError(f"'{path}' names no format of tokenizers", _EXPECTED.replace("expected", "name", 1))
    else:
        folder = Folder(path)
        vocabulary_json, merges_txt = format_gpt2.dump(vocabulary, folder.location())
        folder.write_bytes(_VOCABULARY_NAMES[0], vocabulary_json)
        folder.write_bytes(_MERGES_NAMES[0], merges_txt)


def _split(path: str | os.PathLike[str]) -> tuple[Folder, str]:
    """The folder a path lies in, and its last name."""
    parent, slash, name = os.fspath(path).rstrip("/").rpartition("/")
    return Folder(parent or slash or "."), name


def _read(folder: Folder, name: str) -> bytes:
    place = folder.location(name)
    with folder.open(name) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"'{place}' has more than {MAX_FILE_BYTES >> 20} MiB", "name a tokenizer file")
    if not data:
        raise InputError(f"'{place}' is empty", "write or download it again")
    return data
