"""The native MinHash core against its readable twin, against datasketch, and against hostile input."""

from __future__ import annotations

import itertools
import math
import random
import sys

import numpy as np
import pytest
from datasketch import MinHash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import minhash as reference
from reference.minhash import hash_shingle, permutations, word_shingles
from reference.words import dedup_key

from webtext.clean import _minhash
from webtext.clean.dedup.sign import minhash_of

K = 128


def flat(texts: list[str] | list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in encoded])]).astype(np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


def sign(texts: list[str], count: int = K, path: str = "") -> np.ndarray:
    return _minhash.sign(*flat(texts), 5, *permutations(count), path)[0]


def sets_of(texts: list[str], width: int = 5) -> list[np.ndarray]:
    values, offsets = _minhash.shingle_sets(*flat(texts), width)
    return [values[start:end] for start, end in itertools.pairwise(offsets)]


def words(count: int, seed: int) -> list[str]:
    source = random.Random(seed)
    return [f"w{source.randrange(10**9)}" for _ in range(count)]


def test_broders_example_a_rose_is_a_rose_is_a_rose():
    """Broder 1997, section 2: (a,rose,is,a,rose,is,a,rose) has the 4-shingles {a rose is a, rose is a rose, is a rose is}."""
    (shingles,) = sets_of(["A rose is a rose is a rose."], width=4)
    assert len(shingles) == 3
    assert _minhash.sign(*flat(["A rose is a rose is a rose."]), 4, *permutations(K))[1].tolist() == [5]


def test_jaccard_counts_common_shingles():
    """8 words make 4 shingles of 5; changing the last word changes 1: 3 common of 5."""
    left, right = sets_of(["a b c d e f g h", "a b c d e f g X"])
    assert reference.jaccard(left, right) == 3 / 5


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_native_key_equals_the_readable_rule_for_every_character(step):
    assigned = itertools.chain(range(0xD800), range(0xE000, 0x32000), range(0xE0000, 0xE0200), [sys.maxunicode])
    characters = [chr(code) for code in assigned][::step]
    for start in range(0, len(characters), 64):
        # Between "x" and "y" every kind shows what it does to the word before and after it; "が" ends in a mark.
        text = "".join(f"x{character}y{character} が{character}" for character in characters[start : start + 64])
        assert _minhash.key(text.encode()).decode() == dedup_key(text)


@settings(max_examples=80)
@given(st.text(max_size=200))
def test_native_equals_twin_for_any_text(text):
    assert _minhash.key(text.encode()).decode() == dedup_key(text)
    assert (sign([text], 40)[0] == reference.signature(text, 5, 40)).all()
    assert (sets_of([text])[0] == reference.shingle_set(text, 5)).all()


@settings(max_examples=100)
@given(st.binary(max_size=60))
def test_bytes_that_are_not_utf8_end_a_word(data):
    assert _minhash.key(data).decode() == dedup_key(data.decode(errors="replace").replace("\ufffd", " "))


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=6), st.integers(1, 200))
def test_every_simd_path_gives_equal_signatures(texts, count):
    expected = sign(texts, count, "portable")
    assert all((sign(texts, count, path) == expected).all() for path in _minhash.simd_paths())


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=6))
def test_a_text_has_the_same_signature_in_any_batch(texts):
    assert all((row == sign([text])[0]).all() for row, text in zip(sign(texts), texts, strict=True))


def test_golden_signature_guards_the_code_version():
    """If this fails, signatures changed: raise CODE_VERSION in clean/dedup/sign.py."""
    row = sign(["The quick brown fox jumps over the lazy dog; l'été dernier, 日本語。"])[0, :8]
    assert row.tolist() == [740698321, 89500321, 987684647, 1358239583, 247483484, 322965144, 37071180, 330125996]


def test_case_unicode_form_and_layout_do_not_matter_to_the_key():
    assert dedup_key("Café  ﬁn\n\n— “STRASSE”") == dedup_key("cafe\u0301 fin straße")


def test_scripts_without_spaces_are_cut_into_characters():
    assert dedup_key("日本語とGPT2") == "日 本 語 と gpt2"
    assert dedup_key("สวัสดี ok") == "ส วั ส ดี ok"
    assert len(dedup_key("나는 학생").split()) == 2


def test_estimates_are_within_the_theoretical_error_of_datasketch_and_of_the_truth():
    """Variance of the estimate is J (1 - J) / k (Broder 1997): over 60 pairs the RMSE must be below 1.35 of its root;
    by chi-square with 60 degrees of freedom the chance of more is about 10^-4. datasketch must meet the same bound."""
    from datasketch import MinHash

    errors: dict[str, list[float]] = {"webtext": [], "datasketch": []}
    for pair in range(60):
        base = words(300, pair)
        edited = list(base)
        for position in random.Random(pair).sample(range(300), pair // 3):
            edited[position] = "edited"
        texts = [" ".join(base), " ".join(edited)]
        left, right = sets_of(texts)
        truth = reference.jaccard(left, right)
        scale = math.sqrt(max(truth * (1 - truth), 1e-3) / K)
        rows = sign(texts)
        errors["webtext"].append(((rows[0] == rows[1]).mean() - truth) / scale)
        peers = [MinHash(num_perm=K, seed=pair), MinHash(num_perm=K, seed=pair)]
        for peer, shingles in zip(peers, (left, right), strict=True):
            peer.update_batch([value.tobytes() for value in shingles])
        errors["datasketch"].append((peers[0].jaccard(peers[1]) - truth) / scale)
    assert all(math.sqrt(np.mean(np.square(error))) < 1.35 for error in errors.values()), errors


def test_empty_texts_and_texts_without_words_have_no_shingle():
    signatures, n_shingles = _minhash.sign(*flat(["", "  \n", "🎉🎉 … —", "\u0301\u0301", "word"]), 5, *permutations(K))
    assert n_shingles.tolist() == [0, 0, 0, 0, 1]
    assert (signatures[:4] == 0xFFFFFFFF).all()
    assert reference.jaccard(sets_of([""])[0], sets_of([""])[0]) == 0.0


def test_fewer_words_than_a_shingle_are_one_shingle_of_all():
    left, right, other = sets_of(["one two three", "One, two: three!", "one two"])
    assert len(left) == 1
    assert (left == right).all()
    assert left[0] != other[0]


@pytest.mark.usefixtures("linear_time")
def test_one_word_of_ten_megabytes_is_one_shingle_in_linear_time():
    assert [len(found) for found in sets_of(["x" * 10_000_000, "é" * 5_000_000, "語" * 100_000])] == [1, 1, 1]


def test_words_of_every_length_hash_alike_at_any_position():
    texts = [" " * shift + "a" * length + " tail" for length in range(40) for shift in range(9)]
    for text, found in zip(texts, sets_of(texts), strict=True):
        assert (found == reference.shingle_set(text, 5)).all()


def test_wrong_buffers_are_rejected():
    data, offsets = flat(["some text"])
    with pytest.raises(ValueError, match="offsets"):
        _minhash.sign(data, offsets + 1, 5, *permutations(K))
    with pytest.raises(ValueError, match="offsets"):
        _minhash.shingle_sets(data, offsets[::-1].copy(), 5)
    with pytest.raises(ValueError, match="at least one word"):
        _minhash.sign(data, offsets, 0, *permutations(K))
    with pytest.raises(ValueError, match="no path 'abacus'"):
        _minhash.sign(data, offsets, 5, *permutations(K), "abacus")
    with pytest.raises(ValueError, match="of one length"):
        _minhash.sign(data, offsets, 5, permutations(3)[0], permutations(4)[1])


def by_datasketch(text: str, count: int = K) -> MinHash:
    minhash = MinHash(num_perm=count, hashfunc=hash_shingle)
    minhash.update_batch(word_shingles(text, 5))
    return minhash


def test_a_shingle_is_hashed_then_mixed_then_permuted():
    """The high half of the only shingle's hash, MurmurHash3's finalizer, then x -> a x + b mod 2^32."""
    a, b = permutations(K).astype(np.uint64)
    mixed = hash_shingle("abc")
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ mixed >> shift) * factor & 0xFFFFFFFF
    assert minhash_of("Abc!").tolist() == ((a * np.uint64(mixed) + b) & np.uint64(0xFFFFFFFF)).tolist()


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8"), max_size=300), st.sampled_from([1, 4, 128, 200]))
@example("", 128)
@example("— 🎉", 128)
@example("日本語とGPT2" * 9, 128)
def test_a_signature_has_the_values_of_datasketchs_minhash_with_our_hash_function(text, count):
    assert minhash_of(text, count=count).tolist() == by_datasketch(text, count).hashvalues.tolist()


def test_the_permutations_are_datasketchs():
    assert all((permutations(n) == MinHash(num_perm=n).permutations).all() for n in (1, 5, 128, 4096))


def test_a_signature_becomes_a_datasketch_minhash():
    texts = ["one two three four five six seven", "one two three four five six eight"]
    rows = [minhash_of(text) for text in texts]
    ours = [MinHash(hashvalues=row, scheme="affine32", hashfunc=hash_shingle) for row in rows]
    theirs = by_datasketch(texts[1])
    assert ours[0].jaccard(theirs) == (rows[0] == rows[1]).mean()
    ours[0].update("one more")
    theirs.update("one more")
    assert ours[1] == by_datasketch(texts[1])
    assert ours[0].jaccard(theirs) == (ours[0].hashvalues == theirs.hashvalues).mean()


def test_real_texts_are_signed_as_datasketch_signs_them(shared_data):
    import lzma

    with lzma.open(shared_data / "corpora" / "multi.txt.xz", "rt", encoding="utf-8", errors="ignore") as file:
        texts = [file.read(4000) for _ in range(40)]
    assert (sign(texts) == [by_datasketch(text).hashvalues for text in texts]).all()
