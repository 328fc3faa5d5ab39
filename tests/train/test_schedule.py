"""The learning rate and the batch size: worked values and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.train.optimizer.schedule import learning_rate
from webtext.train.settings import TrainSettings


def test_the_rate_grows_linearly_and_falls_by_half_a_cosine() -> None:
    """Ten warm-up steps to 1; from step 10 to 110 it falls to 0.1; halfway, at 60, it is the mean, 0.55."""
    settings = TrainSettings.of(learning_rate=1.0, warmup_steps=10, steps=111)
    expected = {0: 0.1, 4: 0.5, 9: 1.0, 10: 1.0, 60: 0.55, 110: 0.1}
    assert {step: round(learning_rate(settings, step), 12) for step in expected} == expected


def test_wsd_stays_at_the_highest_rate_and_falls_in_the_last_share_of_the_steps() -> None:
    """100 steps, 10 of warm-up. The last 16 fall from 1 to 0 by 1 - sqrt: after 4 by half, after 16 completely."""
    settings = TrainSettings.of(schedule="wsd", learning_rate=1.0, warmup_steps=10, steps=100, decay_ratio=0.16)
    expected = {0: 0.1, 9: 1.0, 10: 1.0, 83: 1.0, 87: 0.5, 98: round(1 - (15 / 16) ** 0.5, 12), 99: 0.0}
    assert {step: round(learning_rate(settings, step), 12) for step in expected} == expected
    constant = TrainSettings.of(schedule="wsd", learning_rate=1.0, warmup_steps=10, steps=100, decay_ratio=0.0)
    assert {learning_rate(constant, step) for step in range(10, 100)} == {1.0}


@given(warmup=st.integers(0, 50), more=st.integers(1, 50), schedule=st.sampled_from(["cosine", "wsd"]))
def test_it_never_rises_after_the_warm_up_nor_leaves_its_bounds(warmup: int, more: int, schedule: str) -> None:
    settings = TrainSettings.of(schedule=schedule, learning_rate=2.0, warmup_steps=warmup, steps=warmup + more)
    rates = [learning_rate(settings, step) for step in range(settings.steps)]
    assert all(0 <= rate <= 2.0 for rate in rates)
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    if more > 1:
        assert rates[-1] == pytest.approx({"cosine": 0.2, "wsd": 0.0}[schedule])
