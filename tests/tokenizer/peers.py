"""Peer libraries with any pattern and vocabulary, and comparisons with them on many texts in one call."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, models, pre_tokenizers

from webtext.tokenizer import Tokenizer, Vocabulary
from webtext.tokenizer.formats.gpt2 import written

SEPARATOR = "<|separator|>"
"""A special token of the peers: they first cut text at it, so the parts between are independent texts."""

_TEXTS_PER_CALL = 50_000
_THREADS = 2


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A pattern by our name, and its expression for each peer."""

    name: str
    tiktoken: str
    hf: str | None = None
    """None means the ByteLevel pre-tokenizer's own pattern."""


GPT2_RULE = Rule(
    name="gpt2", tiktoken=r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
)
_CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
_O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ]
)
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
RULES = [
    GPT2_RULE,
    Rule(name="cl100k", tiktoken=_CL100K, hf=_CL100K.replace("{1,3}+", "{1,3}")),  # in Oniguruma {1,3}+ repeats
    Rule(name="o200k", tiktoken=_O200K, hf=_O200K),
    Rule(name="llama3", tiktoken=_LLAMA3, hf=_LLAMA3),
    Rule(name="qwen2", tiktoken=_QWEN2, hf=_QWEN2),
]
"""From tiktoken 0.14's openai_public.py, and from the tokenizer.json of Llama 3 and Qwen 2."""


def pairs_vocabulary(*, reverse: bool) -> Vocabulary:
    """Return a vocabulary of all bytes and all 65,536 pairs of bytes, so that ids show where a text was cut.

    Pairs across a character boundary merge first. A cut inside "abc" is still invisible if the pair next to it would
    have merged anyway; the reverse order of the pairs makes it visible.
    """
    pairs = sorted((bytes([a, b]) for a in range(256) for b in range(256)), reverse=reverse)
    pairs.sort(key=lambda pair: 0x80 <= pair[1] < 0xC0)
    return Vocabulary(tokens=[*(bytes([byte]) for byte in range(256)), *pairs], merges=None, whole_pieces=True)


def tiktoken_of(vocabulary: Vocabulary, rule: Rule) -> tiktoken.Encoding:
    """Return tiktoken with the vocabulary's ranks; the separator has the id after the largest."""
    ranks = {token: rank for rank, token in enumerate(vocabulary.tokens) if token}
    specials = {SEPARATOR: len(vocabulary.tokens)}
    return tiktoken.Encoding(rule.name, pat_str=rule.tiktoken, mergeable_ranks=ranks, special_tokens=specials)


def hf_of(vocabulary: Vocabulary, rule: Rule) -> tokenizers.Tokenizer:
    """Return HF tokenizers with the vocabulary's merges; the separator has the id after the largest."""
    ids, merges = written(Vocabulary(tokens=vocabulary.tokens, merges=vocabulary.merges))
    hf = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=vocabulary.whole_pieces))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.hf is None)
    if rule.hf is None:
        hf.pre_tokenizer = byte_level
    else:
        hf.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(rule.hf), "isolated"), byte_level])
    hf.add_special_tokens([AddedToken(SEPARATOR, normalized=False)])
    return hf


def assert_ids_equal_tiktoken(ours: Tokenizer, peer: tiktoken.Encoding, texts: Sequence[str]) -> None:
    """Assert that both return the same ids for every text; the error names the first text with other ids."""
    separator = peer.encode_single_token(SEPARATOR)

    def compare(chunk: Sequence[str]) -> None:
        ids = peer.encode_to_numpy(SEPARATOR.join(chunk) + SEPARATOR, allowed_special={SEPARATOR})
        is_separator = ids == separator
        ends = np.flatnonzero(is_separator) - np.arange(len(chunk))
        tokens, offsets = ours.encode_flat(chunk, threads=1)
        if not np.array_equal(ends, offsets[1:]) or not np.array_equal(ids[~is_separator], tokens):
            for text in chunk:
                assert ours.encode(text) == peer.encode_ordinary(text), repr(text)
            raise AssertionError("a batch and its single texts have different ids")

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(compare, _chunks(texts)))


def assert_ids_equal_hf(ours: Tokenizer, peer: tokenizers.Tokenizer, texts: Sequence[str]) -> None:
    """Assert that both return the same ids for every text; the error names the first text with other ids."""
    for chunk in _chunks(texts):
        expected = peer.encode_batch_fast(list(chunk), add_special_tokens=False)
        for text, ids, encoding in zip(chunk, ours.encode_batch(chunk), expected, strict=True):
            assert ids == encoding.ids, repr(text)


def _chunks(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[start : start + _TEXTS_PER_CALL] for start in range(0, len(texts), _TEXTS_PER_CALL)]
