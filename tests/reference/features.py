"""The features of a text: hashed n-grams of its words and bytes. The readable twin of `clean/native/ngrams/features.hpp`.

Words are those of the dedup key, so case, punctuation and layout don't matter. An n-gram counts once, however often it
occurs: repeating a phrase doesn't change a score. Bytes are taken from each character on: in English, six characters.
"""

from __future__ import annotations

from reference.minhash import hash_window, hash_word, mix
from reference.words import dedup_key, ngrams_of

WORDS, BYTES = (1, 2), 6
_BYTE_SEED = 0xD1B54A32D192ED03  # tells n-grams of bytes from those of words


def features_of(text: str, bits: int) -> list[int]:
    """Return the features of a text, each below 2^bits, in order of first occurrence; none without a word.

    >>> len(features_of("To vote is to vote", 18))  # 3 words, 3 pairs of words, 11 runs of bytes
    17
    """
    found = [
        hash_window([hash_word(word.encode()) for word in gram.split()]) for n in WORDS for gram in ngrams_of(text, n)
    ]
    key = dedup_key(text).encode()
    starts = [i for i in range(len(key) - BYTES + 1) if key[i] & 0xC0 != 0x80]
    found += [mix(int.from_bytes(key[i : i + BYTES], "little") ^ _BYTE_SEED) for i in starts]
    return list(dict.fromkeys(hashed >> (64 - bits) for hashed in found))
