"""A readable reference implementation of byte-level BPE: train, encode, decode. Slow; the C++ returns equal results.

Read this file to learn what `native/` does. Byte-pair encoding is algorithm 1 of Sennrich et al. 2016
(arXiv:1508.07909); the GPT-2 paper, section 2.2, applies it to bytes. Ties are broken, and bytes ordered, as in HF
tokenizers' BpeTrainer.
"""

from __future__ import annotations

import collections
import heapq
import math
from collections.abc import Callable, Iterable, Sequence

from webtext.base.errors import InputError
from webtext.tokenizer.patterns.named import cut
from webtext.tokenizer.text import Text, bytes_of_piece, readable
from webtext.tokenizer.vocabulary import BYTE_ORDER, Vocabulary

Pair = tuple[int, int]


def train_merges(
    texts: Iterable[Text],
    n_tokens: int,
    pattern: str = "gpt2",
    min_frequency: int = 1,
    max_token_length: float = math.inf,
    base: Vocabulary | None = None,
) -> list[Pair]:
    """Count the pieces of the texts, encode them with `base` (by default, as single bytes) and learn merges."""
    if base is None:
        base = Vocabulary(tokens=[bytes([byte]) for byte in BYTE_ORDER], merges=[], pattern=pattern)
    cuts = (cut(base.pattern, readable(text), base.unicode_version) for text in texts)
    pieces = collections.Counter(bytes_of_piece(piece) for pieces in cuts for piece in pieces)
    words = list(map(piece_encoder(base), pieces))
    tokens = [*base.tokens, *[b""] * (base.size - len(base.tokens))]
    return merge_words(words, list(pieces.values()), tokens, n_tokens, min_frequency, max_token_length)


def merge_words(
    words: list[list[int]],
    counts: list[int],
    tokens: list[bytes],
    n_tokens: int,
    min_frequency: int,
    max_token_length: float = math.inf,
) -> list[Pair]:
    """Merge the most frequent pair (the smallest pair on ties) until there are `n_tokens` tokens.

    A pair is queued with its count and the words in which it was seen. Later merges can reduce that count, so a
    candidate with an outdated count is put back into the queue with the current one. Every merge creates a new token: a
    pair whose joined bytes are a token already is not merged, which happens only with a base that wasn't learned this
    way.
    """
    tokens, known = list(tokens), set(tokens)
    pair_counts: collections.Counter[Pair] = collections.Counter()
    queue: list[tuple[int, Pair, list[int]]] = []

    def note(changes: Iterable[tuple[Pair, int, int]]) -> None:
        """Apply (pair, word, +1 or -1) to the counts and queue every pair that became more frequent."""
        seen: dict[Pair, list[int]] = {}
        for pair, word, sign in changes:
            pair_counts[pair] += sign * counts[word]
            if sign > 0:
                seen.setdefault(pair, []).append(word)
        for pair, where in seen.items():
            n_bytes = len(tokens[pair[0]] + tokens[pair[1]])
            if pair_counts[pair] > 0 and (n_bytes == 2 or n_bytes < max_token_length):
                heapq.heappush(queue, (-pair_counts[pair], pair, sorted(set(where))))

    note((pair, word, 1) for word, symbols in enumerate(words) for pair in zip(symbols, symbols[1:], strict=False))
    merges: list[Pair] = []
    while queue and len(tokens) < n_tokens:
        count, pair, where = heapq.heappop(queue)
        if -count != pair_counts[pair]:
            heapq.heappush(queue, (-pair_counts[pair], pair, where))
            continue
        if -count < min_frequency:
            break
        joined = tokens[pair[0]] + tokens[pair[1]]
        if joined in known:
            continue
        tokens.append(joined)
        known.add(joined)
        merges.append(pair)
        note([change for word in where for change in _merge(words, word, pair, len(tokens) - 1)])
    return merges


def encode(vocabulary: Vocabulary, text: Text) -> list[int]:
    """Cut the text into pieces; in each, merge the pair of lowest rank (the leftmost on ties) until none is left."""
    encode_piece = piece_encoder(vocabulary)
    pieces = cut(vocabulary.pattern, readable(text), vocabulary.unicode_version)
    return [id_ for piece in pieces for id_ in encode_piece(bytes_of_piece(piece))]


def piece_encoder(vocabulary: Vocabulary) -> Callable[[bytes], list[int]]:
    """Return the function that encodes one piece: bytes to ids."""
    id_of = {token: id_ for id_, token in enumerate(vocabulary.tokens) if token}
    rank_of = {pair: rank for rank, pair in enumerate(vocabulary.merges)} if vocabulary.merges is not None else None

    def rank(left: bytes, right: bytes) -> float:
        if rank_of is None:
            return id_of.get(left + right, float("inf"))
        return rank_of.get((id_of[left], id_of[right]), float("inf"))

    def encode_piece(data: bytes) -> list[int]:
        if vocabulary.whole_pieces and data in id_of:
            return [id_of[data]]
        parts = [data[place : place + 1] for place in range(len(data))]
        while len(parts) > 1:
            ranks = [rank(left, right) for left, right in zip(parts, parts[1:], strict=False)]
            lowest = min(ranks)
            if lowest == float("inf"):
                break
            best = ranks.index(lowest)
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        return [id_of[part] for part in parts]

    return encode_piece


def decode_bytes(vocabulary: Vocabulary, ids: Sequence[int]) -> bytes:
    """Return the bytes of the tokens, joined. Raises InputError for an unknown id."""
    special = {id_: name.encode() for name, id_ in vocabulary.special_tokens.items()}
    known = special | {id_: token for id_, token in enumerate(vocabulary.tokens) if token}
    for position, id_ in enumerate(ids):
        if id_ not in known:
            raise InputError(f"unknown token id {id_} at position {position}")
    return b"".join(known[id_] for id_ in ids)


def _merge(words: list[list[int]], word: int, pair: Pair, token: int) -> list[tuple[Pair, int, int]]:
    """Replace the pair by the token in one word, left to right; return the neighbouring pairs removed and added."""
    symbols, merged, changes = words[word], list[int](), list[tuple[Pair, int, int]]()
    place = 0
    while place < len(symbols):
        if tuple(symbols[place : place + 2]) != pair:
            merged.append(symbols[place])
            place += 1
            continue
        if merged:
            changes += [((merged[-1], pair[0]), word, -1), ((merged[-1], token), word, 1)]
        merged.append(token)
        place += 2
        if place < len(symbols):
            changes += [((pair[1], symbols[place]), word, -1), ((token, symbols[place]), word, 1)]
    words[word] = merged
    return changes
