"""`killed_ranks.py TOKENS FOLDER KILLS [SEED]`: kill ranks under torchrun and compare with an undisturbed run.

Each attempt ends with SIGKILL to a random rank, before a random call of those that join the world, sum, update, stage,
sync or rename. The rank kills itself, so that no machine is too slow or too fast for it. torchrun restarts all ranks.
After so many kills the run completes, and its results must equal those of an undisturbed run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from small_runs import flags, rows, small, train_on_ranks

STEPS_A_KILL = 12
"""More than an attempt makes before its kill, so that the run does not end before the last one."""
CALLS = 50
SECONDS = 1800.0  # only a guard
HOW = {
    "checkpoint_interval": 4, "keep_checkpoints": 1, "eval_interval": 8, "eval_windows": 2,
    "dtype": "float32",
}  # fmt: skip
TORCHRUN = "--nproc-per-node 2 --local-addr 127.0.0.1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0"


def watch_for_the_kill(folder: Path, seed: int, kills: int) -> None:
    """Kill this process at its time if it is this attempt's victim. Each kill leaves a file; these count the kills."""
    from webtext.train import distributed, engine
    from webtext.train.checkpoint import saver as checkpoint_saver
    from webtext.train.run import trainer

    attempt = len(list(folder.glob("kill-*")))
    draw = random.Random(f"{seed} {attempt}")
    victim, fatal, n = draw.randrange(2), draw.randint(1, CALLS), 0
    if attempt >= kills or victim != int(os.environ["RANK"]):
        return

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal n
            n += 1
            if n == fatal:
                (folder / f"kill-{attempt}").write_text(f"rank {victim} before {function.__qualname__}")
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    for owner, name in (
        (distributed, "_attempt_store"),
        (distributed.World, "sum"),
        (engine, "update"),
        (trainer.Trainer, "_settle"),
        (checkpoint_saver.CheckpointSaver, "_copied"),
        (os, "fsync"),
        (os, "rename"),
    ):
        setattr(owner, name, watched(getattr(owner, name)))


def left(out: Path) -> dict[str, Any]:
    """Return the bytes of the last checkpoint's tensors, and each step's loss."""
    *_, last = sorted((out / "checkpoints").iterdir())
    files = {path.name: path.read_bytes() for path in last.glob("*.safetensors")}
    return files | {"losses": [(row["step"], row.get("loss", row.get("validation_loss"))) for row in rows(out)]}


def train_undisturbed(tokens: str, folder: Path, how: dict[str, Any]) -> None:
    train_on_ranks(2, folder, [(tokens, folder / "model", small(**how))])


def train_killed(tokens: str, folder: Path, how: dict[str, Any], kills: int, seed: int) -> None:
    """Run the training under a torchrun that may restart exactly so often."""
    command = ["train", "run", tokens, "--out", str(folder / "model"), *flags(**how)]
    torchrun = [str(Path(__file__).with_name("forking_torchrun.py")), *TORCHRUN.split()]
    torchrun += ["--max-restarts", str(kills), __file__, "child", str(folder), str(seed), str(kills)]
    with open(folder / "log", "w") as log:
        ended = subprocess.run([sys.executable, *torchrun, *command], stdout=log, stderr=log, timeout=SECONDS)
    assert ended.returncode == 0, (folder / "log").read_text()[-20_000:]


def main(tokens: str, folder: Path, kills: int, seed: int = 0) -> None:
    how = {"steps": STEPS_A_KILL * (kills + 1), **HOW}
    for name in ("whole", "killed"):
        (folder / name).mkdir(parents=True)
    train_undisturbed(tokens, folder / "whole", how)
    train_killed(tokens, folder / "killed", how, kills, seed)
    told = sorted((folder / "killed").glob("kill-*"), key=lambda path: int(path.name[5:]))
    for path in told:
        print(f"{path.name}: {path.read_text()}")
    assert len(told) == kills, f"{len(told)} of {kills} kills"
    assert left(folder / "killed/model") == left(folder / "whole/model")
    print(f"{kills} kills of {kills}: the run equals an undisturbed one, bit for bit")


if __name__ == "__main__":
    if sys.argv[1] == "child":
        watch_for_the_kill(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        from webtext.app.main import run

        sys.exit(run(sys.argv[5:]))
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
