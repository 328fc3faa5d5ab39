"""Experiments whose processes are all killed midway: the same command makes the rest, once, with the same answer."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import SECONDS, wait_until

from webtext.app.main import run
from webtext.train.experiments.trials import Trial
from webtext.train.metrics import steps_made

FLAGS = (
    "--n-layer 2 --n-head 2 --n-embd 32 --context 32 --batch-size 4 --microbatch-size 4 --steps 4 --warmup-steps 1 "
    "--learning-rate 1e-2 --set train.dtype=float32 --set train.device=cpu "
    "--set train.monitor.eval_interval=none --set train.monitor.eval_windows=4 "
    "--set train.checkpoint.checkpoint_interval=none"
)
SWEEP = "train sweep {tokens} --over learning_rate=1e-4,1e-2,3e-2"
SCALE = "train scale {tokens} --size 1x32 --size 2x32 --size 2x64 --tokens 256,512,768"
COMPARE = "train compare one={build} other={build} --seeds 2"
Made = list[tuple[Trial, int | None]]


@pytest.mark.parametrize(
    ("verb", "seed", "n_finished"),
    [
        pytest.param(SWEEP, 0, 0, id="sweep"),
        pytest.param(SCALE, 0, 1, id="scale", marks=pytest.mark.slow),
        pytest.param(COMPARE, 1, 1, id="compare"),
    ],
)
def test_no_finished_trial_is_made_again_and_the_answer_is_that_of_an_undisturbed_experiment(
    verb: str,
    seed: int,
    n_finished: int,
    sentences: str,
    tmp_path: Path,
    made: Made,
    experiment_that_waits: Callable[..., list[str]],
) -> None:
    """The first trial to make a third step, with this seed or a later one, waits there until it is killed."""

    def command(out: Path) -> list[str]:
        named = verb.format(tokens=f"{sentences}/tokens", build=sentences)
        return [*named.split(), *FLAGS.split(), "--out", str(out), "--quiet"]

    out, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen(
        experiment_that_waits(3, command(out), seed), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_until(lambda: any(steps_made(each) == 3 for each in folders(out, seed)), process)
    waiting = [each for each in folders(out, seed) if steps_made(each) == 3]
    process.send_signal(signal.SIGSTOP)  # it never learns that its child ended
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    its_end = os.pidfd_open(int(child))
    os.kill(int(child), signal.SIGKILL)
    process.kill()
    process.communicate(timeout=SECONDS)
    assert select.select([its_end], [], [], SECONDS)[0], "until then it holds its model's folder"
    os.close(its_end)
    finished = {
        (str(each.parent.parent), int(each.name.removeprefix("step-"))) for each in out.rglob("checkpoints/step-*")
    }
    assert len(finished) == n_finished
    assert not list(waiting[0].glob("checkpoints/step-*3"))

    assert run(command(out)) == 0
    resumed = {(trial.folder, step) for trial, step in made}
    assert len(resumed) == len(made), "made twice"
    assert not resumed & finished
    again = {(folder.replace(str(out), str(whole)), step) for folder, step in resumed | finished}
    made.clear()
    assert run(command(whole)) == 0
    assert again == {(trial.folder, step) for trial, step in made}
    (answer,) = out.glob("[cs]*.json")
    assert answer.read_text().replace(str(out), str(whole)) == (whole / answer.name).read_text()
    made.clear()
    assert run(command(out)) == 0
    assert made == [], "given a third time, nothing is left"


def folders(out: Path, seed: int) -> list[Path]:
    """Return the existing model folders of an experiment with this seed."""
    return [path.parent for path in out.rglob(f"seed-{seed}/metrics.jsonl")]
