"""Merging by rank and by a list: where they differ, the ids are kept, or saving fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.tokenizer import Tokenizer, Vocabulary, reference
from webtext.tokenizer.formats.ranks import about_ranks

BYTES = [bytes([byte]) for byte in range(256)]
A, B, C, D = b"abcd"


def test_a_token_that_its_own_merges_miss_is_never_produced() -> None:
    """'abc' (258) is merged from 'ab' and 'c', but 'bc' merges earlier: 'abc' ends as 'a', 'bc'."""
    odd = Vocabulary(tokens=[*BYTES, b"ab", b"bc", b"abc"], merges=[(B, C), (A, B), (256, C)])
    assert odd.unmerged() == [258]
    assert Tokenizer(odd).encode("abc") == [A, 257]
    whole = replace(odd, whole_pieces=True)
    assert (Tokenizer(whole).encode("abc"), whole.hash() != odd.hash()) == ([258], True)


def test_by_rank_a_token_may_merge_via_a_larger_one() -> None:
    """'abc' (256) comes before 'ab' (257): by rank 'abc' merges to 'ab','c', then 'abc'; by a list in id order not."""
    backwards = Vocabulary(tokens=[*BYTES, b"abc", b"ab"], merges=None)
    assert Tokenizer(backwards).encode("abcabc") == [256, 256]
    assert backwards.merges_by_rank() == [(A, B)]
    assert backwards.larger_first() == [256]
    assert backwards.unmerged() == []
    assert about_ranks(backwards).startswith("tokens merged via larger ids: 256 b'abc'; libraries that use a list of")


def test_such_a_rank_file_keeps_its_ids_here_and_is_refused_as_merges(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backwards = Tokenizer(Vocabulary(tokens=[*BYTES, b"abc", b"ab"], merges=None))
    backwards.save(tmp_path / "tokenizer.json")
    assert "libraries that use a list of merges return different ids" in caplog.messages[0]
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode("abcabc") == [256, 256]
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode("abcabc").ids == [257, C, 257, C]  # what the remark warns about
    with pytest.raises(InputError, match=r"merges alone don't produce every token: \['abc'\]"):
        backwards.save(tmp_path / "vocab.json")


vocabularies = st.lists(st.text("abc", min_size=2, max_size=5), unique=True, max_size=12).map(
    lambda tokens: Vocabulary(tokens=[*BYTES, *(token.encode() for token in tokens)], merges=None)
)


@given(ranks=vocabularies, text=st.text("abc", max_size=30))
def test_ranks_are_a_list_of_merges_unless_something_is_found(ranks: Vocabulary, text: str) -> None:
    """The theorem in `larger_first`: if no token needs a larger one, both rules return the same ids for every text."""
    listed = Vocabulary(tokens=ranks.tokens, merges=ranks.merges_by_rank())
    same = reference.encode(listed, text) == reference.encode(ranks, text)
    assert same or ranks.larger_first()


@given(
    ranks=vocabularies,
    pairs=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=12),
    text=st.text("abc", max_size=30),
)
def test_no_text_produces_what_merging_misses(ranks: Vocabulary, pairs: list[tuple[int, int]], text: str) -> None:
    """For lists of merges in any order, and by rank."""
    short = [A, B, C, *range(256, len(ranks.tokens))]
    merges = [(short[left % len(short)], short[right % len(short)]) for left, right in pairs]
    known = set(ranks.tokens)
    merges = [pair for pair in merges if ranks.tokens[pair[0]] + ranks.tokens[pair[1]] in known]
    for rules in (merges, None):
        vocabulary = Vocabulary(tokens=ranks.tokens, merges=rules)
        assert not set(Tokenizer(vocabulary).encode(text)) & set(vocabulary.unmerged())


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ([(B, C), (A, B), (256, C)], "a rank file can't represent these merges"),
        ([(A, B), (B, C)], "by rank would produce b'xyz', which no merge produces"),
    ],
)
def test_a_rank_file_is_refused_where_ranks_would_change_ids(
    tmp_path: Path, merges: list[tuple[int, int]], message: str
) -> None:
    """In the last case, 'xyz' has no merge, but tiktoken would produce it, because it doesn't merge complete pieces."""
    tokens = [*BYTES, b"ab", b"bc", b"abc" if len(merges) == 3 else b"xyz"]
    with pytest.raises(InputError, match=message):
        Tokenizer(Vocabulary(tokens=tokens, merges=merges)).save(tmp_path / "r.tiktoken")
    assert not (tmp_path / "r.tiktoken").exists()
