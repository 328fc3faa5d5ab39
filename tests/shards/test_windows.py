"""Positions of windows: they cover the ring without overlap, and windows inside documents end with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.shards.sampling.windows import DocumentWindows, RingWindows, document_numbers


@given(n_tokens=st.integers(2, 400), context=st.integers(1, 20), epoch=st.integers(0, 3))
def test_an_epoch_covers_the_ring_without_overlap(n_tokens: int, context: int, epoch: int) -> None:
    windows = RingWindows(n_tokens, context, b"key")
    numbers = np.arange(windows.n_windows)
    targets = [(int(start) + 1 + i) % n_tokens for start in windows.starts(epoch, numbers) for i in range(context)]
    assert len(set(targets)) == len(targets) == windows.n_windows * context > n_tokens - context


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=20), context=st.integers(1, 12))
def test_every_token_of_a_document_but_its_first_and_its_end_are_targets_once(lengths: list[int], context: int) -> None:
    bounds = np.cumsum([0, *lengths])
    windows = DocumentWindows(bounds, context)
    numbers = np.arange(windows.n_windows)
    places = list(zip(windows.starts(0, numbers).tolist(), windows.lengths(numbers).tolist(), strict=True))
    targets = [start + i for start, length in places for i in range(1, length)]
    assert targets == sorted(set(range(bounds[-1])) - set(bounds[:-1].tolist()))
    for start, length in places:
        document = np.searchsorted(bounds, start, side="right")
        assert start + length <= bounds[document]
        assert length <= context + 1
    last = [length for start, length in places if start + length in bounds]
    filled = [length for length in last if length <= context]  # the end-of-text after them is a target too
    assert len(filled) == len(lengths)


@given(lengths=st.lists(st.integers(2, 30), min_size=1, max_size=20), context=st.integers(1, 12), data=st.data())
def test_an_extent_holds_all_windows_of_its_block(lengths: list[int], context: int, data: st.DataObject) -> None:
    bounds = np.cumsum([0, *lengths])
    for windows in (DocumentWindows(bounds, context), RingWindows(int(bounds[-1]), context, b"key")):
        if not windows.n_windows:
            continue
        first = data.draw(st.integers(0, windows.n_windows - 1))
        last = data.draw(st.integers(first, windows.n_windows - 1))
        start, length = windows.extent(1, first, last)
        numbers = np.arange(first, last + 1)
        within = (windows.starts(1, numbers) - start) % int(bounds[-1])
        assert (within + windows.lengths(numbers)).max() == length


@pytest.mark.parametrize(
    ("tokens", "numbers"),
    [([1, 2, 3], [0, 0, 0]), ([1, 9, 3, 9, 9], [0, 1, 1, 2, 3]), ([9, 2, 9, 1], [0, 0, 1, 1]), ([9], [0])],
)
def test_tokens_are_numbered_by_document(tokens: list[int], numbers: list[int]) -> None:
    assert document_numbers(np.array([tokens], np.uint16), 9).tolist() == [numbers]
