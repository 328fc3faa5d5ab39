"""Learning merges from texts: count the pieces, then merge the most frequent pair again and again.

The merges equal those of HF tokenizers' BpeTrainer over a ByteLevel pre-tokenizer with the whole byte alphabet. Counts
have 64 bits. Texts are read once and not kept (`counts.py`); merging needs memory for the distinct pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from webtext.base.errors import ConfigError
from webtext.tokenizer.counts import PieceCounts, thread_count
from webtext.tokenizer.patterns import GPT2, pattern_name
from webtext.tokenizer.text import Text
from webtext.tokenizer.vocabulary import BYTE_ORDER, EOT, MAX_ID, Vocabulary, special_ids

GPT2_VOCAB_SIZE = 50_257  # GPT-2 paper, section 2.3: 256 bytes, 50,000 merges, <|endoftext|>


def train_vocabulary(
    texts: Iterable[Text] | PieceCounts,
    *,
    vocab_size: int = GPT2_VOCAB_SIZE,
    pattern: str = GPT2,
    special_tokens: Iterable[str] | Mapping[str, int] = (EOT,),
    min_frequency: int = 1,
    threads: int | None = None,
    superwords: int = 0,
) -> Vocabulary:
    """A vocabulary of `vocab_size` tokens: the 256 bytes, one per merge, then the special tokens.

    `texts` may be counts of their pieces, made earlier with the same pattern. The vocabulary is smaller when no pair is
    left that occurs `min_frequency` times. Special tokens in texts are text. The last `superwords` of the merges join
    words; they need the texts themselves, to be read several times.
    """
    if superwords:
        return _with_superwords(
            texts,
            superwords,
            vocab_size=vocab_size,
            pattern=pattern,
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            threads=threads,
        )
    specials = list(special_ids(special_tokens, 0))
    n_tokens = vocab_size - len(specials)
    if not 256 <= n_tokens < MAX_ID:
        raise ConfigError(
            f"vocab_size is {vocab_size}", f"expected {256 + len(specials)} or more: 256 bytes and the special tokens"
        )
    if min_frequency < 1:
        raise ConfigError(f"min_frequency is {min_frequency}", "expected 1 or more")
    if not isinstance(texts, PieceCounts):
        counts = PieceCounts(pattern, threads=threads)
        counts.add(texts)
    elif texts.pattern == pattern_name(pattern):
        counts = texts
    else:
        raise ConfigError(f"the counts are of pieces of {texts.pattern!r}, not of {pattern!r}", "name their pattern")
    merges = counts.train(n_tokens, min_frequency)
    tokens = tokens_of(merges)
    return Vocabulary(
        tokens=tokens, merges=merges, pattern=pattern, special_tokens=special_ids(specials, first=len(tokens))
    )


def _with_superwords(
    texts: Iterable[Text] | PieceCounts,
    superwords: int,
    *,
    vocab_size: int,
    pattern: str,
    special_tokens: Iterable[str] | Mapping[str, int],
    min_frequency: int,
    threads: int | None,
) -> Vocabulary:
    from webtext.tokenizer.superwords import add_superwords, check_request, reader

    if isinstance(texts, PieceCounts):
        raise ConfigError("superwords need the texts, not counts of their pieces", "give an iterable of texts")
    check_request(superwords, pattern_name(pattern))
    read = reader(texts)
    base = train_vocabulary(
        texts,
        vocab_size=vocab_size - superwords,
        pattern=pattern,
        special_tokens=special_tokens,
        min_frequency=min_frequency,
        threads=threads,
    )
    return add_superwords(base, read, superwords, min_frequency=min_frequency, threads=thread_count(threads))


def tokens_of(merges: Iterable[tuple[int, int]]) -> list[bytes]:
    """The bytes of all tokens: the single bytes in GPT-2's order, then what each merge joins, once."""
    tokens = [bytes([byte]) for byte in BYTE_ORDER]
    known = set(tokens)
    for left, right in merges:
        token = tokens[left] + tokens[right]
        if token not in known:
            known.add(token)
            tokens.append(token)
    return tokens
