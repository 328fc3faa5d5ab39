"""Complete runs: learning, metrics, exact resume after SIGKILL, skipping, and rejected input."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from small_runs import flags, rows, saved_bytes, small, talking, timeless, train

from webtext.base.config import all_settings, changed
from webtext.base.errors import DryRun, InputError, RunFailed
from webtext.train import TrainResult, TrainSettings, load_model, train_model
from webtext.train.run import trainer

SHAPE: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context": 32, "batch_size": 8, "microbatch_size": 4}
SETTINGS = small(
    **SHAPE, steps=40, warmup_steps=5, learning_rate=1e-2, eval_interval=10, eval_windows=8, checkpoint_interval=10
)


class Finished(NamedTuple):
    """A run to its end, which tests resume or alter in a copy."""

    tokens: str
    out: Path
    result: TrainResult


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tokens: str) -> Finished:
    out = tmp_path_factory.mktemp("undisturbed") / "model"
    return Finished(tokens, out, train(tokens, out, SETTINGS))


@pytest.fixture
def finished(undisturbed: Finished, tmp_path: Path) -> Finished:
    out = tmp_path / "model"
    shutil.copytree(undisturbed.out, out)
    checkpoint = undisturbed.result.checkpoint.replace(str(undisturbed.out), str(out))
    return Finished(undisturbed.tokens, out, replace(undisturbed.result, checkpoint=checkpoint))


def test_a_run_learns_and_its_metrics_show_it(undisturbed: Finished) -> None:
    _, out, result = undisturbed
    assert (result.step, result.tokens, result.skipped) == (40, 40 * 8 * 32, False)
    assert result.validation_loss < rows(out)[0]["validation_loss"] - 1
    told = timeless(out)
    assert [row["step"] for row in told if "loss" in row] == list(range(1, 41))
    assert [row["step"] for row in told if "perplexity" in row] == [0, 10, 20, 30, 40]
    assert told[-2].keys() == {"step", "tokens", "loss", "learning_rate", "grad_norm"}
    assert [path.name for path in sorted((out / "checkpoints").iterdir())] == ["step-000030", "step-000040"]


def test_a_run_saves_after_some_minutes_whatever_its_steps(
    tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = changed(SETTINGS, steps=6, eval_interval=None, checkpoint_interval=5, keep_checkpoints=None)
    for minutes, saved in ((1e-9, [1, 2, 3, 4, 5, 6]), (60.0, [5, 6])):
        out = tmp_path / str(minutes)
        monkeypatch.setattr(trainer, "CHECKPOINT_MINUTES", minutes)
        train(tokens, out, rare)
        assert [path.name for path in sorted((out / "checkpoints").iterdir())] == [f"step-{i:06d}" for i in saved]


def test_microbatches_change_rounding_only(tokens: str, tmp_path: Path) -> None:
    """A step has the same eight sequences, whether two, four or all of them are on the device at once."""
    settings = changed(SETTINGS, steps=10, eval_interval=None, checkpoint_interval=None)
    for size in (2, 8):
        train(tokens, tmp_path / str(size), replace(settings, microbatch_size=size))
    for one, other in zip(timeless(tmp_path / "2"), timeless(tmp_path / "8"), strict=True):
        assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize("how", [{}, pytest.param({"optimizer": "muon", "schedule": "wsd"}, marks=pytest.mark.slow)])
def test_a_run_killed_at_random_steps_ends_as_if_undisturbed(
    tokens: str, tmp_path: Path, how: dict[str, Any], run_that_waits: Callable[[int, list[str]], list[str]]
) -> None:
    """Losses and the last checkpoint's bytes must be equal."""
    settings = changed(SETTINGS, steps=48, eval_interval=6, checkpoint_interval=6, **how)
    train(tokens, tmp_path / "undisturbed", settings)
    out = tmp_path / "killed"
    default = all_settings(TrainSettings())
    chosen = {name: value for name, value in all_settings(settings).items() if value != default[name]}
    command = run_that_waits(45, ["train", "run", tokens, "--out", str(out), "--quiet", *flags(**chosen)])
    moments = sorted(random.Random(7).sample(range(8, 44), 2))
    for moment in moments:
        process = subprocess.Popen(command)
        while process.poll() is None and (not (out / "metrics.jsonl").exists() or last_step(out) < moment):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, moments
    with open(out / "metrics.jsonl", "a") as file:
        file.write('{"step": 2')  # a line that the kill cut off
    result = train(tokens, out, settings)
    assert not result.skipped
    assert timeless(out) == timeless(tmp_path / "undisturbed"), moments
    assert saved_bytes(out, 48) == saved_bytes(tmp_path / "undisturbed", 48), moments


def last_step(out: Path) -> int:
    lines = (out / "metrics.jsonl").read_bytes().rpartition(b"\n")[0].splitlines()
    return int(json.loads(lines[-1])["step"]) if lines else 0


def test_a_finished_run_is_skipped_and_settings_that_only_observe_it_may_change(finished: Finished) -> None:
    tokens, out, result = finished
    before = (out / "metrics.jsonl").read_bytes()
    for settings in (SETTINGS, changed(SETTINGS, eval_interval=5, keep_checkpoints=None)):
        assert train(tokens, out, settings) == replace(result, skipped=True)
    assert (out / "metrics.jsonl").read_bytes() == before


def test_a_run_that_stops_at_a_step_is_the_first_part_of_the_full_run(undisturbed: Finished, tmp_path: Path) -> None:
    """The schedule is that of 40 steps, so a resumed run ends like one that never stopped; step 16 is measured too."""
    tokens, out = undisturbed.tokens, tmp_path / "parts"
    part = train(tokens, out, changed(SETTINGS, stop_at_step=16))
    assert (part.step, part.tokens, part.skipped) == (16, 16 * 8 * 32, False)
    held_out = [row for row in timeless(out) if "validation_loss" in row]
    assert held_out[-1] == {**held_out[-1], "step": 16, "validation_loss": part.validation_loss}
    assert train(tokens, out, changed(SETTINGS, stop_at_step=16)).skipped
    assert train(tokens, out, changed(SETTINGS, stop_at_step=9)).skipped, "it is past that step"
    assert train(tokens, out, changed(SETTINGS, stop_at_step=1000)).step == 40
    assert [row for row in timeless(out) if row != held_out[-1]] == timeless(undisturbed.out)
    assert saved_bytes(out, 40) == saved_bytes(undisturbed.out, 40)


def test_a_damaged_checkpoint_is_skipped_with_a_message(finished: Finished, capsys: pytest.CaptureFixture[str]) -> None:
    tokens, out, first = finished
    weights = Path(first.checkpoint) / "model-00000.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    again = train_model(tokens, str(out), SETTINGS, talking())
    talk = capsys.readouterr().err
    assert "skipping a checkpoint" in talk
    assert "model-00000.safetensors' has changed since it was written" in talk
    assert "resuming from step 30" in talk
    assert (again.loss, again.validation_loss) == (first.loss, first.validation_loss)
    assert len(rows(out)) == 40 + 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.5}, "learning_rate is 0.5 here and 0.01 in the checkpoint"),
        ({"steps": 50}, "steps is 50 here and 40 in the checkpoint\nuse the same, train further: --from that folder"),
        ({"n_layer": 3}, "n_layer is 3 here and 2 in the checkpoint"),
        ({"seed": 1}, "seed is 1 here and 0 in the checkpoint"),
    ],
)
def test_changed_settings_are_named_with_the_remedy(
    undisturbed: Finished, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        train(undisturbed.tokens, undisturbed.out, changed(SETTINGS, **change))
    assert "choose another --out" in caught.value.lines[1]


def test_other_tokens_than_the_checkpoints_are_rejected(
    undisturbed: Finished, make_token_set: Callable[..., str]
) -> None:
    with pytest.raises(InputError, match="was trained on other tokens"):
        train(make_token_set("other", train=61), undisturbed.out, SETTINGS)


def test_a_set_without_training_tokens_is_rejected(tmp_path: Path, make_token_set: Callable[..., str]) -> None:
    with pytest.raises(InputError, match=r"the train split of .* has 0 tokens"):
        train(make_token_set("empty", train=0), tmp_path / "model", SETTINGS)
    assert not (tmp_path / "model").exists()


def test_a_run_trains_without_a_validation_split(tmp_path: Path, make_token_set: Callable[..., str]) -> None:
    result = train(make_token_set("tokens", validation=0), tmp_path / "model", replace(SETTINGS, steps=6))
    assert (result.step, result.validation_loss) == (6, None)


def test_a_held_out_loss_that_is_not_finite_ends_the_run_too(tokens: str, tmp_path: Path) -> None:
    """The step before it was normal: its loss is that of the weights before its update."""
    wild = changed(SETTINGS, learning_rate=1e30, max_grad_norm=None, stop_at_step=1, warmup_steps=0)
    with pytest.raises(RunFailed, match=r"step 1: the held-out loss is (nan|inf)\nlower learning_rate"):
        train(tokens, tmp_path / "model", wild)


def test_a_dry_run_prints_what_it_would_do_and_writes_nothing(
    tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DryRun):
        train_model(tokens, str(tmp_path / "model"), SETTINGS, talking(dry_run=True))
    assert "from the start to step 40, processes: 1; 10,240 tokens, 1.05 passes over 9,720" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_the_checkpoint_loads_as_the_model_that_was_trained(tokens: str, tmp_path: Path) -> None:
    result = train(tokens, tmp_path / "model", replace(SETTINGS, steps=6))
    model = load_model(tmp_path / "model")
    assert torch.equal(load_model(result.checkpoint).final_norm.weight, model.final_norm.weight)
    model.to_huggingface(tmp_path / "export")
    tokens_bt = torch.randint(61, (2, 32))
    assert torch.equal(load_model(tmp_path / "export")(tokens_bt), model(tokens_bt))


def test_a_flipped_bit_in_a_token_file_ends_the_run_which_resumes_once_it_is_repaired(
    finished: Finished, undisturbed: Finished, make_token_set: Callable[..., str]
) -> None:
    (_, out, result), tokens = finished, make_token_set()
    shutil.rmtree(Path(result.checkpoint))  # step 30 is left
    shard = Path(tokens) / "train-00001.tok"
    whole = shard.read_bytes()
    replace_file(shard, whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    with pytest.raises(InputError, match=r"train-00001\.tok' was altered: SHA-256"):
        train(tokens, out, SETTINGS)
    replace_file(shard, whole)
    assert train(tokens, out, SETTINGS).loss == result.loss
    assert timeless(out) == timeless(undisturbed.out)


def replace_file(path: Path, content: bytes) -> None:
    """Replace it by a rename, because a file that shrinks while it is mapped kills its reader."""
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").rename(path)
