"""Every token after a stream's first is predicted once, whatever the stride, the limit and the number of processes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.train.data.windows import Windows

EOT = 99


def test_windows_by_hand() -> None:
    """Seven tokens after an end-of-text, context 4, stride 2: the window that ends at 6 is scored on 5 and 6 only."""
    windows = Windows([np.array([EOT, 1, 2, 3, 4, 5, 6, 7])], context=4, stride=2)
    shown = [(tokens.tolist(), n) for tokens, n in map(windows.window, range(len(windows)))]
    assert shown == [
        ([EOT, 1, 2], 2),
        ([EOT, 1, 2, 3, 4], 2),
        ([2, 3, 4, 5, 6], 2),
        ([3, 4, 5, 6, 7], 1),
    ]


@given(
    lengths=st.lists(st.integers(0, 40), max_size=4),
    context=st.integers(1, 12),
    stride=st.none() | st.integers(1, 15),
    world_size=st.integers(1, 3),
    batch_size=st.integers(1, 4),
)
def test_each_token_is_scored_once_over_all_processes(
    lengths: list[int], context: int, stride: int | None, world_size: int, batch_size: int
) -> None:
    ends = np.cumsum([0, *lengths])
    streams = [np.arange(start, start + n) for start, n in zip(ends[:-1], lengths, strict=True)]
    windows = Windows(streams, context=context, stride=stride)
    scored: list[int] = []
    for rank in range(world_size):
        for tokens_bt, n_scored in windows.batches(batch_size, rank, world_size):
            assert tokens_bt.shape[0] == len(n_scored) <= batch_size
            assert tokens_bt.shape[1] <= context + 1
            for row_t, n in zip(tokens_bt, n_scored, strict=True):
                scored += row_t[-n:].tolist()
                assert (np.diff(row_t) == 1).all()
    firsts = {int(stream[0]) for stream in streams if len(stream)}
    assert sorted(scored) == sorted(set(range(sum(lengths))) - firsts)
    assert sorted(int(t) for _, after in windows.pairs() for t in after) == sorted(scored)


@pytest.mark.parametrize(
    ("limit", "expected"), [(1, [0]), (3, [0, 4, 9]), (10, list(range(10))), (50, list(range(10)))]
)
def test_a_limit_takes_windows_from_all_over(limit: int, expected: list[int]) -> None:
    windows = Windows([np.arange(21), np.arange(21)], context=4, stride=None, limit=limit)
    assert windows.numbers.tolist() == expected
