"""Caveats about a winner, on made-up losses: edges of the grid, seeds that differ as much, no other candidate."""

from __future__ import annotations

from webtext.train.experiments.grid import make_grid
from webtext.train.experiments.halving import Rung
from webtext.train.experiments.winner import edges, order_note
from webtext.train.settings import TrainSettings

NAMES = ["low", "middle", "high"]
SETTINGS = TrainSettings()


def edges_of(over: list[str], best: int) -> list[str]:
    grid = make_grid(over, SETTINGS)
    return [str(edge) for edge in edges(grid, grid[best])]


def test_a_winner_at_the_edge_of_the_grid_is_reported_with_the_value_to_try_next() -> None:
    rates = ["learning_rate=1e-3,2e-3,4e-3"]
    beyond = "so the best may lie beyond; try"
    assert edges_of(rates, 0) == [f"learning_rate 0.001 is the smallest of those tried, {beyond} 0.0005 too"]
    assert edges_of(rates, 1) == []
    assert edges_of(rates, 2) == [f"learning_rate 0.004 is the largest of those tried, {beyond} 0.008 too"]


def test_every_setting_of_a_grid_has_its_own_edges_and_words_have_none() -> None:
    grid = ["learning_rate=1e-3,2e-3,4e-3", "n_layer=2,4", "optimizer=adamw,muon"]
    (only,) = edges_of(grid, 4)
    assert only.startswith("n_layer 2 is the smallest of those tried")
    assert only.endswith("try 1 too")
    assert edges_of(["max_grad_norm=none,1.0"], 0) == []
    assert edges_of(["dropout=0.0,0.1"], 0) == [
        "dropout 0.0 is the smallest of those tried, so the best may lie beyond"
    ]


def test_one_seed_shows_no_order_and_says_so() -> None:
    note = order_note(Rung(10, {0: (4.02,), 1: (4.0,)}), NAMES)
    assert note.startswith("One seed: the effect of chance is not known, so the order of middle and low, 0.0200 apart")


def test_a_lead_within_the_seeds_spread_is_not_a_lead() -> None:
    note = order_note(Rung(10, {0: (4.0, 4.2, 4.1), 1: (4.0, 4.18, 4.08), 2: (5.0, 5.0, 5.0)}), NAMES)
    assert note.startswith(
        "The order of middle and low, 0.0133 apart, is not shown: seeds of one candidate spread by 0.0952"
    )
    assert "Use more --seeds" in note


def test_a_lead_of_many_spreads_is_one() -> None:
    note = order_note(Rung(10, {0: (4.01, 4.0, 4.02), 2: (3.01, 3.0, 3.02)}), NAMES)
    assert note.startswith("high and low, 1.0000 apart: more than the 0.02")


def test_a_winner_alone_is_compared_with_none() -> None:
    assert "compared with none" in order_note(Rung(10, {0: (4.0,), 1: (None,)}), NAMES)
