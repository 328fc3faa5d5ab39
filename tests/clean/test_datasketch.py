"""datasketch's signatures: equal to its own, and converted both ways."""

from __future__ import annotations

import numpy as np
import pytest
from datasketch import MinHash
from hypothesis import example, given, settings
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.clean.dedup.datasketch_signatures import from_minhash, permutations, sign_texts, to_minhash
from webtext.clean.dedup.reference import datasketch_signature, word_shingles

WIDTH, K = 5, 128
MIXED_ABC = 0xACEEB30B


def minhash_of(text: str, count: int = K) -> MinHash:
    minhash = MinHash(num_perm=count)
    minhash.update_batch([shingle.encode() for shingle in word_shingles(text, WIDTH)])
    return minhash


def test_a_shingle_is_hashed_by_sha1_then_mixed_then_permuted():
    """FIPS 180's example: SHA-1 of "abc" begins a9 99 3e 36; MurmurHash3's finalizer makes 0xaceeb30b of 0x363e99a9."""
    a, b = permutations(K).astype(np.uint64)
    assert sign_texts(["Abc!"])[0].tolist() == ((a * np.uint64(MIXED_ABC) + b) & np.uint64(0xFFFFFFFF)).tolist()


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8"), max_size=300), st.sampled_from([1, 4, 128, 200]))
@example("x" * 54 + " y z", 128)
@example("x" * 55, 128)
@example("x" * 63 + "é" * 40, 128)
@example("", 128)
@example("— 🎉", 128)
def test_signatures_equal_datasketchs_for_any_text(text, count):
    """Around 56 and 64 bytes SHA-1 pads into another block."""
    row = sign_texts([text], WIDTH, count)[0].tolist()
    assert row == minhash_of(text, count).hashvalues.tolist()
    assert row == datasketch_signature(text, WIDTH, *permutations(count))


def test_a_signature_is_converted_to_datasketch_and_back():
    texts = ["one two three four five six seven", "one two three four five six eight"]
    rows = sign_texts(texts)
    ours, theirs = [to_minhash(row) for row in rows], [minhash_of(text) for text in texts]
    assert ours[0] == theirs[0]
    assert ours[0].jaccard(theirs[1]) == theirs[0].jaccard(theirs[1]) == (rows[0] == rows[1]).mean()
    assert (from_minhash(theirs[1]) == rows[1]).all()
    ours[0].update(b"one more")
    theirs[0].update(b"one more")
    assert ours[0] == theirs[0]
    assert (sign_texts(texts) == rows).all()


@pytest.mark.parametrize("made", [{"seed": 2}, {"scheme": "legacy"}, {"scheme": "affine64"}])
def test_a_minhash_of_other_permutations_is_rejected(made):
    with pytest.raises(InputError, match="other permutations"):
        from_minhash(MinHash(num_perm=K, **made))


def test_real_texts_are_signed_as_datasketch_signs_them(shared_data):
    import lzma

    with lzma.open(shared_data / "corpora" / "multi.txt.xz", "rt", encoding="utf-8", errors="ignore") as file:
        texts = [file.read(4000) for _ in range(40)]
    assert (sign_texts(texts) == [minhash_of(text).hashvalues for text in texts]).all()
