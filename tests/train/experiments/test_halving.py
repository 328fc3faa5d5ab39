"""Successive halving on made-up losses: which candidates continue, which have lost, and the number of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from webtext.train.experiments.halving import (
    FINALISTS,
    Losses,
    Rung,
    halve,
    mean_loss,
    rung_steps,
    survivor_counts,
    trained_steps,
)


def test_the_better_half_continues_and_two_run_to_the_end() -> None:
    losses = [5.0, 3.0, 4.0, 2.0, 6.0, 7.0, 8.0, 1.0]
    asked: list[tuple[list[int], int]] = []

    def measure(numbers: Sequence[int], step: int) -> list[Losses]:
        asked.append((list(numbers), step))
        return [(losses[i] / step,) for i in numbers]

    found = halve(8, [10, 20, 40], 0.5, measure)
    assert asked == [(list(range(8)), 10), ([1, 2, 3, 7], 20), ([3, 7], 40)]
    assert found[-1] == Rung(40, {3: (2 / 40,), 7: (1 / 40,)})
    assert found[-1].ranking() == [7, 3]


def test_a_candidate_with_a_loss_that_is_not_finite_has_lost() -> None:
    table: dict[int, Losses] = {0: (1.0, None), 1: (3.0, 3.0), 2: (math.nan, 1.0), 3: (4.0, 5.0)}
    found = halve(4, [1, 2], 1.0, lambda numbers, step: [table[i] for i in numbers])
    assert list(found[1].losses) == [1, 3]
    assert mean_loss((1.0, None)) is None
    assert mean_loss((1.0, math.inf)) is None


def test_if_all_fail_it_ends_there() -> None:
    found = halve(3, [1, 2, 4], 0.5, lambda numbers, step: [(None,) for _ in numbers])
    assert [rung.step for rung in found] == [1]
    assert found[-1].ranking() == []


def test_of_equal_losses_the_earlier_continues() -> None:
    found = halve(4, [1, 2], 0.5, lambda numbers, step: [(1.0,) for _ in numbers])
    assert list(found[1].losses) == [0, 1]


def test_rungs_are_rounded_up_and_never_below_a_step() -> None:
    assert rung_steps(10, (0.25, 0.5, 1.0)) == [3, 5, 10]
    assert rung_steps(1, (0.25, 0.5, 1.0)) == [1]
    assert rung_steps(7, (1.0,)) == [7]


@given(st.integers(2, 40), st.integers(1, 5), st.floats(0.01, 1))
def test_the_planned_steps_are_the_steps_made(n: int, n_rungs: int, keep_ratio: float) -> None:
    rungs = [10 * 2**i for i in range(n_rungs)]
    made = [0] * n

    def measure(numbers: Sequence[int], step: int) -> list[Losses]:
        for i in numbers:
            made[i] = step
        return [(float(i),) for i in numbers]

    halve(n, rungs, keep_ratio, measure)
    assert sum(made) == trained_steps(n, rungs, keep_ratio)
    counts = survivor_counts(n, n_rungs, keep_ratio)
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] >= min(n, FINALISTS)
