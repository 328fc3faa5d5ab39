"""Inputs of the tokenizer's bench: corpora split into documents, hostile texts, vocabularies by name."""

from __future__ import annotations

import functools
import lzma
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DOCUMENT_BYTES = 4096
SEPARATOR = b"\n\xff\xfe\n"  # can't occur in UTF-8 text


@dataclass(frozen=True)
class NamedVocabulary:
    """A rank file and its pre-tokenization rule; `scheme` is gigatoken's name of that rule."""

    file: str
    pattern: str
    scheme: str


GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"""
    r"""\s+(?!\S)|\s"""
)
O200K = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
LLAMA3 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"""
    r"""\s+(?!\S)|\s+"""
)
VOCABULARIES = {
    "gpt2": NamedVocabulary("r50k_base.tiktoken", GPT2, "gpt2"),
    "cl100k": NamedVocabulary("cl100k_base.tiktoken", CL100K, "gpt4"),
    "o200k": NamedVocabulary("o200k_base.tiktoken", O200K, "o200k"),
    "llama3": NamedVocabulary("cl100k_base.tiktoken", LLAMA3, "gpt4"),
    "qwen2": NamedVocabulary("cl100k_base.tiktoken", LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"), "qwen2"),
}
"""Llama 3's and Qwen 2's tokens aren't published as rank files, so their patterns are timed with those of cl100k."""


class Texts:
    """One corpus in the forms that engines take; each form is made on first use, outside of all timing."""

    def __init__(self, data: bytes, ids_file: Path) -> None:
        self.data = data
        self._ids_file = ids_file

    @functools.cached_property
    def text(self) -> str:
        """The entire corpus as one text."""
        return self.data.decode()

    @functools.cached_property
    def documents(self) -> list[str]:
        """The documents: complete lines, at least 4,096 bytes each."""
        return [part.decode() for part in cut_documents(self.data)]

    @functools.cached_property
    def joined_documents(self) -> bytes:
        """The documents in one buffer, for a trainer that takes one."""
        return SEPARATOR.join(cut_documents(self.data))

    @functools.cached_property
    def bounds(self) -> NDArray[np.int64]:
        """Begin and end of the only text in the buffer."""
        return np.array([0, len(self.data)], np.int64)

    def room(self, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
        """Return a buffer for ids, with room for one per byte and 8 more; its pages have been touched."""
        return np.ones(len(self.data) + 8, dtype)

    def ids(self, dtype: type[np.unsignedinteger[Any]] = np.uint32) -> NDArray[Any]:
        """Return the right ids of all documents, concatenated."""
        return np.load(self._ids_file).astype(dtype)


def cut_documents(data: bytes) -> list[bytes]:
    """Split a buffer into documents, each cut at the first line end at or after its 4,096th byte.

    >>> [len(part) for part in cut_documents(b"x" * 4095 + b"\\n" + b"yz\\n")]
    [4096, 3]
    """
    documents, start = [], 0
    while start < len(data):
        end = data.find(b"\n", start + DOCUMENT_BYTES - 1) + 1 or len(data)
        documents.append(data[start:end])
        start = end
    return documents


def unpack(source: Path, target: Path, max_bytes: int | None) -> None:
    """Decompress a corpus, or its start up to a line end, to a file."""
    with lzma.open(source) as file:
        data = file.read(-1 if max_bytes is None else max_bytes)
    target.write_bytes(data if max_bytes is None else data[: data.rfind(b"\n") + 1])


def hostile_texts(n: int) -> dict[str, Callable[[], str]]:
    """Return functions that make hostile texts of n characters, by name; random ones are the same in every run."""

    def randomly(first: int, last: int) -> Callable[[], str]:
        return lambda: "".join(map(chr, random.Random(0).choices(range(first, last + 1), k=n)))

    def scalars() -> str:
        drawn = random.Random(0).choices(range(sys.maxunicode - 0x7FF), k=n)
        return "".join(chr(value + 0x800 * (value >= 0xD800)) for value in drawn)

    def words(mean: int) -> Callable[[], str]:
        letters = [*"abcdefghijklmnopqrstuvwxyz", " "]
        return lambda: "".join(random.Random(0).choices(letters, [1] * 26 + [26 / (mean - 1)], k=n))

    repeated = {"letter a": "a", "blanks": " ", "^": "^", "newline and blank": "\n ", "a and U+0301": "a\u0301"}
    more = {"apostrophe and s": "'s", "ab": "ab", "blank and a": " a", "newlines": "\n", "zero": "0"}
    texts = {name: (lambda unit=unit: (unit * n)[:n]) for name, unit in (repeated | more).items()}
    return texts | {
        "random words": words(8),
        "random long words": words(40),
        "random letters": randomly(0x61, 0x7A),
        "random digits": randomly(0x30, 0x39),
        "random ASCII": randomly(0x20, 0x7E),
        "random Latin-1": randomly(0x00, 0xFF),
        "random Latin-1 letters": randomly(0xD8, 0xF6),
        "random Cyrillic letters": randomly(0x410, 0x44F),
        "random CJK": randomly(0x4E00, 0x9FFF),
        "random emoji": randomly(0x1F300, 0x1F64F),
        "random code points": scalars,
    }


_ALPHABETS = (
    *("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "!?.,;:-_()[]{}#$%&*+/<=>@|~\\^"),
    *(
        " \t\n\r\v\f\x85\xa0\u2000\u2028\u3000\u180e\u1680\x1c\x1d\x1e\x1f",
        "'\u2019`\"",
        "\x00\x01\x7f\u200b\ufeff\xad",
    ),
    *(
        "àéîõüßñçÅÆØſıİK",
        "абвгдЁЖЗ",
        "漢字日本語中文한국어かなカナ",
        "\u0301\u0300\u0308\u093f\u0947\u200d\ufe0f\u20e3",
    ),
    *("😀👩💻🇩🇪👍🏽", "ⅷⅫ①½²³٣५", "ǅǈᾈʰˇªº", "𝐀𝟘𐍈𠀀"),
)
_WORDS = (
    *("'s", "'S", "'t", "'ll", "'LL", "'ve", "'re", "'d", "'m", "'ſ", "don't", "I'M", "<|endoftext|>", "<|im_start|>"),
    *("http://", "12", "1234", " the", " and", " été", "naïve", "Hello", "HELLO", "helloWorld", "XMLHttp", "ǅabc"),
    *("  ", "   ", "\n\n", "\r\n", " \n", "\n ", "\t\t"),
)


def ugly_texts(n: int) -> list[str]:
    """Return short texts of corner cases: scripts, cases, blanks, marks, contractions, any character."""
    random_ = random.Random(0)

    def part() -> str:
        kind = random_.random()
        if kind < 0.35:
            return random_.choice(_WORDS)
        if kind < 0.95:
            return random_.choice(random_.choice(_ALPHABETS)) * (1 if kind < 0.9 else random_.randint(2, 40))
        value = random_.randrange(sys.maxunicode - 0x7FF)
        return chr(value + 0x800 * (value >= 0xD800))

    return ["".join(part() for _ in range(random_.choice((1, 2, 3, 5, 8, 13, 30, 80)))) for _ in range(n)]
