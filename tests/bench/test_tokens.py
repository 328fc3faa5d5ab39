"""Tokens to the same loss: equal effort for both sides, the share that is needed, and the changes of single runs."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))
import bench_tokens as bench

OPTIONS = argparse.Namespace(tokens=2048, shares="0.5", seeds=1, jobs=1)


def test_both_sides_are_tuned_by_equally_many_settings_of_which_there_are_at_least_12() -> None:
    adamw, muon = (sum(map(len, rounds)) for rounds in bench.ROUNDS.values())
    assert adamw == muon >= 12


def test_a_round_varies_one_thing_of_the_best_setting_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up loss is lowest at twice the first rate and a tenth of the weight decay."""
    made: list[dict[str, Any]] = []

    def losses(self: bench.Bench, side: str, size: str, share: float, seeds: Any, *settings: Any) -> list[float]:
        made.extend(settings)
        return [abs(math.log(each["learning_rate"] / 2)) + each["weight_decay"] for each in settings]

    rounds = [
        bench.times("learning_rate", 1, 2, 4),
        [{"weight_decay": 0.1}, {"weight_decay": 3}],
        [{"weight_decay": 2}],
    ]
    monkeypatch.setattr(bench, "ROUNDS", {"adamw": rounds})
    monkeypatch.setattr(bench, "START", {"adamw": {"learning_rate": 1.0, "weight_decay": 1.0}})
    monkeypatch.setattr(bench.Bench, "losses", losses)
    assert bench.Bench(OPTIONS, tmp_path).tuned("adamw") == {"learning_rate": 2.0, "weight_decay": 0.1}
    assert [each["learning_rate"] for each in made] == [1, 2, 4, 2, 2, 2]


def test_the_share_of_the_tokens_is_found_with_an_interval_over_seeds() -> None:
    noise = [-0.01, 0.01, -0.005, 0.005]
    muon = [[5 - 0.5 * math.log(share) + each for each in noise] for share in (0.5, 0.7)]
    adamw = [5 - 0.5 * math.log(0.6) + each for each in noise]
    low, middle, high = bench.interval(adamw, muon, [0.5, 0.7])
    assert middle == pytest.approx(0.6)
    assert 0.58 < low < 0.6 < high < 0.62


def test_a_difference_counts_from_4_thousandths_over_the_root_of_the_seeds() -> None:
    assert bench.figures([5.0] * 4, [5.0021] * 4).endswith("| 5.0000 +- 0.0000 | +0.0021 *")
    assert bench.figures([5.0] * 4, [5.0019] * 4).endswith("| +0.0019")
    assert bench.figures([5.0] * 4, [4.9979] * 4).endswith("| -0.0021 *")


def test_known_runs_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"side": "adamw", "size": "0.3M", "tokens": 1024, "seed": 3, "learning_rate": 0.1}
    (tmp_path / "runs.jsonl").write_text(json.dumps({"run": run, "loss": 4.5}) + "\n")
    monkeypatch.setattr(bench, "make", None)
    assert bench.Bench(OPTIONS, tmp_path).losses("adamw", "0.3M", 1024, [3], {"learning_rate": 0.1}) == [4.5]
