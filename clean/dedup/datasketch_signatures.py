"""datasketch's signatures, computed natively: the values of its `MinHash` (version 2, scheme `affine32`, SHA-1).

    MinHash(num_perm=k).update_batch(shingle.encode() for shingle in word_shingles(text, width))

has the hash values `sign_texts([text], width, k)[0]`; `to_minhash` and `from_minhash` convert between the two.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from webtext.base.errors import InputError, missing_extra
from webtext.clean import _minhash

if TYPE_CHECKING:
    from datasketch import MinHash

SCHEME = "affine32"
SEED = 1  # datasketch's default
HashValues = npt.NDArray[np.uint32]


@functools.lru_cache(maxsize=8)
def permutations(count: int) -> HashValues:
    """Return datasketch's factors and increments of x -> a * x + b mod 2^32, uint32 [2, count].

    They are drawn as datasketch draws them, from numpy's legacy generator, whose stream is frozen.
    """
    random = np.random.RandomState(SEED)
    a = random.randint(0, 1 << 31, count, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return np.array([a, random.randint(0, 1 << 32, count, dtype=np.uint32)])


def sign_flat(
    texts: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], shingle_words: int, count: int
) -> HashValues:
    """Return the hash values [n, count] of concatenated texts; all bits are set for a text without words."""
    signatures: HashValues = _minhash.sign_as_datasketch(texts, offsets, shingle_words, *permutations(count))
    return signatures


def sign_texts(texts: Sequence[str], shingle_words: int = 5, count: int = 128) -> HashValues:
    """Return the hash values [n, count] of the texts' word shingles.

    >>> sign_texts(["a rose is a rose"], count=4).tolist()
    [[2280271385, 1608066123, 2685699881, 1118959475]]
    """
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return sign_flat(np.frombuffer(b"".join(encoded), np.uint8), offsets, shingle_words, count)


def to_minhash(hash_values: HashValues) -> MinHash:
    """Return a datasketch MinHash with a copy of `hash_values`, which is one row of `sign_flat`'s result."""
    try:
        from datasketch import MinHash
    except ImportError:
        raise missing_extra("datasketch", "lsh") from None
    return MinHash(
        seed=SEED,
        hashvalues=np.array(hash_values, np.uint32),
        permutations=permutations(len(hash_values)),
        scheme=SCHEME,
    )


def from_minhash(minhash: MinHash) -> HashValues:
    """Return the hash values of a datasketch MinHash; raises InputError if its permutations differ from ours."""
    scheme = getattr(minhash, "scheme", "legacy")
    if scheme != SCHEME or not np.array_equal(minhash.permutations, permutations(len(minhash))):
        raise InputError(
            f"a MinHash of scheme '{scheme}' and seed {minhash.seed} was made with other permutations",
            f"make it with datasketch 2 or later, scheme '{SCHEME}' and seed {SEED}, which are its defaults",
        )
    return np.array(minhash.hashvalues, np.uint32)
