"""The guard by worked numbers and in complete runs with a planted fault: stopping, skipping, resuming after a kill."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import rows, saved_bytes, small, timeless, train
from torch import Tensor

from webtext.base.config import changed
from webtext.base.errors import Interrupted, RunFailed
from webtext.train import TrainSettings
from webtext.train.model.gpt2 import GPT2
from webtext.train.run import guard
from webtext.train.run import trainer as trainer_module
from webtext.train.run.guard import MAX_SKIPS_IN_A_ROW, MIN_UPDATES, WINDOW, Guard
from webtext.train.run.trainer import Trainer

SETTINGS = small(
    microbatch_size=4, steps=50, warmup_steps=5, learning_rate=1e-2, eval_interval=None, checkpoint_interval=25,
    spike_sigmas=6.0,
)  # fmt: skip


def filled(settings: TrainSettings, n: int = WINDOW) -> Guard:
    """Return a guard that saw losses and norms of 3 and 5 in turn: mean 4, deviation 1."""
    guard = Guard(settings)
    for step in range(n):
        assert guard.check(step, 3.0 + 2 * (step % 2), 3.0 + 2 * (step % 2)) is None
    return guard


@pytest.mark.parametrize(("loss", "norm", "name"), [(10.01, 4.0, "loss"), (4.0, 10.01, "gradient norm")])
def test_a_spike_is_above_the_mean_by_more_than_so_many_deviations(loss: float, norm: float, name: str) -> None:
    """4 + 6 x 1 = 10 is not a spike yet, 10.01 is one; values below the mean never are."""
    assert filled(SETTINGS).check(WINDOW + 1, 10.0, 10.0) is None
    assert filled(SETTINGS).check(WINDOW + 1, -99.0, 0.0) is None
    said = f"the {name} is 10.01, but its recent mean is 4 with a deviation of 1"
    assert filled(SETTINGS).check(WINDOW + 1, loss, norm) == said


def test_without_a_threshold_or_enough_updates_only_non_finite_values_are_faults() -> None:
    assert filled(changed(SETTINGS, spike_sigmas=None)).check(WINDOW + 1, 1e9, 1e9) is None
    assert filled(SETTINGS, MIN_UPDATES - 1).check(WINDOW, 1e9, 1e9) is None
    assert filled(SETTINGS, MIN_UPDATES).check(WINDOW, 1e9, 1e9) is not None
    for value in (math.nan, math.inf):
        assert Guard(SETTINGS).check(1, value, 1.0) == f"the loss is {value}"
        with pytest.raises(RunFailed, match=f"the loss is {value}"):
            Guard(changed(SETTINGS, spike_sigmas=None)).check(1, value, 1.0)


def test_a_skipped_spike_does_not_change_the_limits() -> None:
    guard = filled(SETTINGS)
    for _ in range(MAX_SKIPS_IN_A_ROW):
        assert guard.check(WINDOW + 1, 1e9, 4.0) is not None
    assert guard.check(WINDOW + 2, 4.0, 4.0) is None
    assert guard.check(WINDOW + 3, 10.01, 4.0) is not None


def test_a_steps_limits_do_not_depend_on_the_step_before_or_whether_it_was_checked() -> None:
    """The device compares with them while the step before is still running, in float32, so they are rounded to it."""
    early = filled(SETTINGS)
    late = filled(SETTINGS)
    late.check(WINDOW, 3.3, 4.4)
    assert early.limits(WINDOW + 1) == late.limits(WINDOW + 1) == (10.0, 10.0)
    assert late.limits(WINDOW + 2) != (10.0, 10.0)
    assert all(limit == float(np.float32(limit)) for limit in late.limits(WINDOW + 2))
    assert Guard(SETTINGS).limits(1) == (math.inf, math.inf)


def test_too_many_skips_in_a_row_end_the_run() -> None:
    guard = Guard(SETTINGS)
    for step in range(MAX_SKIPS_IN_A_ROW):
        guard.check(step, math.nan, 1.0)
    with pytest.raises(RunFailed, match="step 99: the loss is nan, after 10 skipped steps in a row"):
        guard.check(99, math.nan, 1.0)


def test_a_resumed_guard_judges_as_one_that_did_not_stop() -> None:
    one = filled(SETTINGS)
    one.check(WINDOW + 1, math.nan, 1.0)
    other = Guard(SETTINGS)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert other.state_dict() == one.state_dict()
    assert [one.check(WINDOW + 2, value, 4.0) for value in (9.99, 10.2)] == [
        other.check(WINDOW + 2, value, 4.0) for value in (9.99, 10.2)
    ]


class Planted(GPT2):
    """Multiplies its loss at the given calls, counted from 1."""

    at: dict[int, float]
    calls = 0

    def loss(self, *given: Any) -> Tensor:
        type(self).calls += 1
        return super().loss(*given) * self.at.get(self.calls, 1.0)


def plant(monkeypatch: pytest.MonkeyPatch, at: dict[int, float], calls: int = 0) -> None:
    monkeypatch.setattr(guard, "MIN_UPDATES", 16)  # so that shorter runs show it
    monkeypatch.setattr(trainer_module, "GPT2", type("Planted", (Planted,), {"at": at, "calls": calls}))


def test_planted_faults_are_skipped_and_reported_and_the_model_still_learns(
    tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN at step 10 and a hundred times the loss at step 40, with one call per step."""
    plant(monkeypatch, {10: math.nan, 40: 100.0})
    result = train(tokens, tmp_path / "model", SETTINGS)
    skipped = {row["step"]: row["skipped"] for row in rows(tmp_path / "model") if "skipped" in row}
    assert skipped[10] == "the loss is nan"
    assert skipped[40].startswith("the loss is ")
    assert result.skipped_steps == len(skipped) == 2
    assert result.loss is not None
    assert result.loss < 4.0
    warnings = capsys.readouterr().err.splitlines()
    assert warnings[0] == "warning: step 10 is skipped: the loss is nan"
    assert len(warnings) == 2


def test_a_skipped_step_leaves_parameters_and_moments_as_they_were(
    tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = changed(SETTINGS, steps=12, checkpoint_interval=1, keep_checkpoints=None)
    plant(monkeypatch, {12: math.inf})
    train(tokens, tmp_path / "model", settings)
    assert saved_bytes(tmp_path / "model", 11) == saved_bytes(tmp_path / "model", 12)


@pytest.mark.parametrize("late", [False, True])
def test_a_planted_fault_stops_the_run_by_default_and_the_last_checkpoint_stays(
    late: bool, tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if late:
        read_late(monkeypatch)
    plant(monkeypatch, {30: math.nan})
    with pytest.raises(RunFailed, match=r"^step 30: the loss is nan\nlower learning_rate, .* spike_sigmas = 6"):
        train(tokens, tmp_path / "model", changed(SETTINGS, spike_sigmas=None))
    assert [path.name for path in (tmp_path / "model/checkpoints").iterdir()] == ["step-000025"]
    assert rows(tmp_path / "model")[-1]["step"] == 29


def test_a_resumed_run_skips_what_the_undisturbed_one_skips(
    tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped at step 38 and resumes from 30, and compares with the losses before."""
    plant(monkeypatch, {40: 100.0})
    settings = changed(SETTINGS, checkpoint_interval=10)
    train(tokens, tmp_path / "whole", settings)
    plant(monkeypatch, {40: 100.0})

    class Stopped(Exception):
        pass

    def stop(self: Guard, step: int, loss: float, norm: float) -> str | None:
        if step == 38:
            raise Stopped
        return check(self, step, loss, norm)

    check = Guard.check
    monkeypatch.setattr(Guard, "check", stop)
    with pytest.raises(Stopped):
        train(tokens, tmp_path / "stopped", settings)
    monkeypatch.setattr(Guard, "check", check)
    plant(monkeypatch, {40: 100.0}, calls=30)
    train(tokens, tmp_path / "stopped", settings)
    assert timeless(tmp_path / "whole") == timeless(tmp_path / "stopped")
    assert any(row["step"] == 40 and "skipped" in row for row in rows(tmp_path / "whole"))
    assert saved_bytes(tmp_path / "whole", 50) == saved_bytes(tmp_path / "stopped", 50)


def read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queue steps as on a GPU, where the host queues a step before it knows the result of the one before."""
    monkeypatch.setattr(trainer_module, "steps_ahead", lambda _: 1)


def test_results_read_a_step_late_change_no_bit(tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN at step 10, a spike at step 40, then SIGTERM at step 18, which ends the run a step later."""
    settings = changed(SETTINGS, eval_interval=12)
    plant(monkeypatch, {10: math.nan, 40: 100.0})
    train(tokens, tmp_path / "at once", settings)
    read_late(monkeypatch)
    plant(monkeypatch, {10: math.nan, 40: 100.0})
    train(tokens, tmp_path / "late", settings)

    def term_and_asks(self: Trainer) -> float:
        if self.step == 17:
            signal.raise_signal(signal.SIGTERM)
        return asks(self)

    asks = Trainer._asks
    plant(monkeypatch, {10: math.nan})
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_asks", term_and_asks)
        with pytest.raises(Interrupted, match="after step 19"):
            train(tokens, tmp_path / "ended", settings)
    plant(monkeypatch, {40: 100.0}, calls=19)
    train(tokens, tmp_path / "ended", settings)
    at_once, late, ended = (tmp_path / name for name in ("at once", "late", "ended"))
    assert [row["step"] for row in rows(at_once) if "skipped" in row] == [10, 40]
    steps = [[row for row in timeless(out) if "learning_rate" in row] for out in (at_once, late, ended)]
    assert steps[0] == steps[1] == steps[2]
    assert saved_bytes(at_once, 50) == saved_bytes(late, 50) == saved_bytes(ended, 50)
