"""Learning merges from texts: count the pieces, then merge the most frequent pair again and again.

The merges equal those of HF tokenizers' BpeTrainer over a ByteLevel pre-tokenizer with the whole byte alphabet. Counts
have 64 bits. Texts are read once and not kept; memory grows with the number of distinct pieces only.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Iterator, Mapping

from webtext.base.errors import ConfigError
from webtext.tokenizer import _trainer
from webtext.tokenizer.patterns import GPT2, cut, pattern_name
from webtext.tokenizer.text import Text, bytes_of_piece, encodable, readable
from webtext.tokenizer.vocabulary import BYTE_ORDER, EOT, MAX_ID, Vocabulary, special_ids

GPT2_VOCAB_SIZE = 50_257  # GPT-2 paper, section 2.3: 256 bytes, 50,000 merges, <|endoftext|>
_BATCH_CHARACTERS = 1 << 22


def train_vocabulary(
    texts: Iterable[Text],
    *,
    vocab_size: int = GPT2_VOCAB_SIZE,
    pattern: str = GPT2,
    special_tokens: Iterable[str] | Mapping[str, int] = (EOT,),
    min_frequency: int = 1,
    threads: int | None = None,
    superwords: int = 0,
) -> Vocabulary:
    """A vocabulary of `vocab_size` tokens: the 256 bytes, one per merge, then the special tokens.

    It is smaller when no pair is left that occurs `min_frequency` times. Special tokens in texts are text. The last
    `superwords` of the merges join words.
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
    counts = count_pieces(texts, pattern_name(pattern), thread_count(threads))
    merges = _trainer.train(counts, n_tokens, min_frequency)
    tokens = tokens_of(merges)
    return Vocabulary(
        tokens=tokens, merges=merges, pattern=pattern, special_tokens=special_ids(specials, first=len(tokens))
    )


def _with_superwords(
    texts: Iterable[Text],
    superwords: int,
    *,
    vocab_size: int,
    pattern: str,
    special_tokens: Iterable[str] | Mapping[str, int],
    min_frequency: int,
    threads: int | None,
) -> Vocabulary:
    from webtext.tokenizer.superwords import add_superwords, check_request

    check_request(texts, superwords, pattern_name(pattern))
    base = train_vocabulary(
        texts,
        vocab_size=vocab_size - superwords,
        pattern=pattern,
        special_tokens=special_tokens,
        min_frequency=min_frequency,
        threads=threads,
    )

    def batches() -> Iterator[list[Text]]:
        return ([encodable(text) for text in batch] for batch in _batches(texts))

    return add_superwords(base, batches, superwords, min_frequency=min_frequency, threads=thread_count(threads))


def count_pieces(texts: Iterable[Text], pattern: str, threads: int) -> _trainer.PieceCounts:
    """How often each piece of the texts occurs."""
    counts = _trainer.PieceCounts()
    for batch in _batches(texts):
        if pattern != GPT2:
            pieces = collections.Counter(piece for text in batch for piece in cut(pattern, readable(text)))
            counts.add_pieces([bytes_of_piece(piece) for piece in pieces], list(pieces.values()))
            continue
        try:
            counts.add_texts(batch, threads=threads)
        except UnicodeEncodeError:  # raised before anything is counted
            counts.add_texts([encodable(text) for text in batch], threads=threads)
    return counts


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


def thread_count(threads: int | None) -> int:
    """The number asked for, or one per core that this process may use; ConfigError below one."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise ConfigError(f"threads is {threads}", "expected 1 or more, or None for one per core")
    return threads


def _batches(texts: Iterable[Text]) -> Iterator[list[Text]]:
    if isinstance(texts, str | bytes):
        raise ConfigError("texts is one string", "give an iterable of texts, e.g. [text]")
    batch: list[Text] = []
    n_characters = 0
    for text in texts:
        batch.append(text)
        n_characters += len(text)
        if n_characters >= _BATCH_CHARACTERS:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch
