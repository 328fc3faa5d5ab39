"""The count tables compared with probabilities worked out by hand and with a plain Python count."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.train.data.windows import Windows
from webtext.train.evaluate import baseline
from webtext.train.evaluate.baseline import count_baselines


def held_out(*streams: list[int]) -> Windows:
    return Windows([np.array([0, *stream]) for stream in streams], context=5, stride=None)


def test_unigram_by_hand() -> None:
    """Training 0 1 1 2 with a vocabulary of 4: p(1) = (2 + 1) / (4 + 4), p(3) = 1 / 8."""
    tables = count_baselines([np.array([0, 1, 1, 2])], held_out([1, 3]), vocab_size=4)
    assert tables.unigram_loss == pytest.approx(-(math.log(3 / 8) + math.log(1 / 8)) / 2)
    assert tables.unigram_perplexity == pytest.approx(math.sqrt(64 / 3))


def test_a_chain_without_choice_is_certain_to_the_bigram() -> None:
    """1 always follows 0 and 0 always follows 1, so EM gives all weight to the bigram: perplexity 1."""
    chain = [0, 1] * 50
    tables = count_baselines([np.array(chain)], held_out(chain[1:]), vocab_size=2)
    assert tables.bigram_perplexity == pytest.approx(1, abs=1e-3)
    assert tables.unigram_perplexity == pytest.approx(2, abs=1e-3)


def test_histories_without_training_pairs_use_the_unigram() -> None:
    tables = count_baselines([np.array([1, 1, 1, 2])], held_out([2, 3]), vocab_size=4)
    assert tables.bigram_loss == pytest.approx(tables.unigram_loss)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_counts_are_those_of_a_plain_count_and_the_bigram_is_no_worse(train: list[int], held: list[int]) -> None:
    """Counted in pieces of three tokens, so that pairs across pieces show. EM only approaches a weight of 0: 1e-4."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baseline, "TOKENS_AT_ONCE", 3)
        patch.setattr(baseline, "_interpolated", lambda p_bigram, *_: p_bigram + 1e-9)
        counted = count_baselines([np.array(train)], held_out(held), vocab_size=6)
    pairs, firsts = Counter(pairwise(train)), Counter(train[:-1])
    before = [0, *held[:-1]]
    plain = [pairs[pair] / max(1, firsts[pair[0]]) + 1e-9 for pair in zip(before, held, strict=True)]
    assert counted.bigram_loss == pytest.approx(-sum(map(math.log, plain)) / len(held))
    tables = count_baselines([np.array(train)], held_out(held), vocab_size=6)
    assert tables.bigram_loss <= tables.unigram_loss + 1e-4
