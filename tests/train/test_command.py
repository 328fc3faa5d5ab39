"""The verbs, from the command line to the exit code, and what works without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import flags

from webtext.app.main import run

FLAGS = flags(steps=5)


def test_run_eval_and_export_in_a_row(tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, export = str(tmp_path / "model"), str(tmp_path / "export")
    assert run(["train", "run", tokens, "--out", model, *FLAGS, "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["step"] == 5
    assert run(["train", "eval", model, tokens, "--out", model, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "model/evaluation.json").read_text()) == answer
    assert answer["perplexity"] < 61, "the vocabulary, and so what a model that knows nothing has"
    assert run(["train", "export", model, "--out", export, "--quiet"]) == 0
    assert run(["train", "eval", export, tokens, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["perplexity"] == pytest.approx(answer["perplexity"], rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "TOKENS"], 2, "no --out given"),
        (["run", "TOKENS", "--out", "x", "--steps", "0"], 2, "steps is 0"),
        (["run", "TOKENS", "--out", "x", "--set", "train.step=3"], 2, "unknown key 'step' in [train]"),
        (["run", "nowhere", "--out", "x"], 3, "nowhere"),
        (["eval", "nowhere", "TOKENS"], 3, "'nowhere' contains no model"),
        (["sample", "nowhere"], 3, "'nowhere' contains no model"),
        (["export", "nowhere", "--out", "x"], 3, "'nowhere' contains no model"),
    ],
)
def test_errors_have_at_most_three_lines_and_an_exit_code(
    arguments: list[str],
    code: int,
    message: str,
    tokens: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", *(tokens if word == "TOKENS" else word for word in arguments)]) == code
    shown = capsys.readouterr().err
    assert message in shown
    assert len(shown.splitlines()) <= 3


def test_help_settings_and_the_package_work_without_torch(real_processes: None) -> None:
    """In a process that cannot import torch: help works, the model's names say what to install."""
    script = """if True:
        import sys
        sys.modules["torch"] = None
        import webtext.train, webtext.train.command, webtext.train.settings
        from webtext.base.errors import MachineError
        from webtext.base.run import Run
        from webtext.train.settings import TrainSettings
        for use in (lambda: webtext.train.GPT2, lambda: webtext.train.train_model("x", "y", TrainSettings(), Run.quiet())):
            try:
                use()
            except MachineError as error:
                assert "pip install '.[train]'" in str(error), error
            else:
                raise SystemExit("no error")
        from webtext.app.main import run
        raise SystemExit(run(["train", "run", "--help"]))
    """
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--learning-rate" in result.stdout


@pytest.mark.parametrize("verb", ["compare a b", "sweep a --over learning_rate=1e-3,2e-3", "scale a"])
def test_experiments_in_a_store_are_refused_before_anything_is_read(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*f"train {verb}".split(), "--out", "s3://bucket/x"]) == 3
    assert "'s3://bucket/x' is not on this machine" in capsys.readouterr().err


def test_several_processes_cannot_train_in_a_store(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(["train", "run", "a", "--out", "s3://bucket/x"]) == 2
    assert "several processes cannot train in 's3://bucket/x'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active"), ({"GOMP_SPINCOUNT": "77"}, "None")],
)
def test_threads_sleep_at_barriers_unless_the_environment_says_otherwise(given: dict[str, str], expected: str) -> None:
    """OpenMP reads the environment when torch is loaded."""
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    code = "import os, importlib, webtext.train as t; importlib.reload(t); print(os.environ.get('OMP_WAIT_POLICY'))"
    told = subprocess.check_output([sys.executable, "-c", code], env=clean | given, text=True)
    assert told.strip() == expected
