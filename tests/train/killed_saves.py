"""`killed_saves.py TOKENS FOLDER [N]`: kill a run at every Nth point of its saves, resume, compare with an undisturbed run.

Each run is a fork of this process, which has loaded torch and has no thread. There is a point before everything that a
save does to the disk or with the tensors, and in the middle of a file. At the n-th point the fork kills itself.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch  # noqa: F401  what a run would load, loaded once and not in each fork
import torch
import torch._dynamo
from small_runs import OF_THE_CLOCK, small, timeless, train

from webtext.train.checkpoint import storage as checkpoint_storage
from webtext.train.checkpoint.saver import CheckpointSaver
from webtext.train.run.trainer import Trainer  # noqa: F401

SETTINGS = small(
    steps=4, learning_rate=1e-2, eval_windows=2, eval_interval=2, checkpoint_interval=2,
    keep_checkpoints=1, dtype="float32",
)  # fmt: skip


class Points:
    """Counts the points of the saves; at the `fatal` one the process is killed."""

    def __init__(self, fatal: int | None) -> None:
        self.n, self.fatal = 0, fatal
        for owner, name in (
            (os, "fsync"),
            (os, "rename"),
            (os, "replace"),
            (shutil, "rmtree"),
            (Path, "mkdir"),
            (Path, "write_text"),
            (CheckpointSaver, "_copied"),
        ):
            setattr(owner, name, self.watched(getattr(owner, name)))
        write = checkpoint_storage.write_tensors

        def half_written(path: Path, tensors: Any) -> None:
            write(path, tensors)
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
            self.passed()
            path.write_bytes(whole)

        checkpoint_storage.write_tensors = self.watched(half_written)

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.passed()
            return function(*arguments, **options)

        return call

    def passed(self) -> None:
        self.n += 1
        if self.n == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)


def forked(tokens: str, out: Path, fatal: int | None) -> int:
    """Train in a fork and return the signal that ended it, or 0."""
    pid = os.fork()
    if pid == 0:
        try:
            points = Points(fatal)
            train(tokens, out, SETTINGS)
            (out.parent / "points").write_text(str(points.n))
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a run failed, see above"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def what_it_left(out: Path) -> dict[str, Any]:
    """Return every byte of the checkpoints, and the metrics without what the clock decides."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in (out / "checkpoints").rglob("*.safetensors")}
    for path in (out / "checkpoints").rglob("state.json"):
        state = json.loads(path.read_text())
        for name in OF_THE_CLOCK:
            state["result"].pop(name, None)
        del state["check"]  # of those values, too
        files[str(path.relative_to(out))] = state
    return {**files, "metrics": timeless(out)}


def main(tokens: str, folder: Path, every: int = 1) -> None:
    torch.set_num_threads(1)
    assert forked(tokens, folder / "whole", None) == 0
    expected, n_points = what_it_left(folder / "whole"), int((folder / "points").read_text())
    out = folder / "killed"
    for n in range(1, n_points + 1, every):
        assert forked(tokens, out, n) == signal.SIGKILL, n
        assert forked(tokens, out, None) == 0, n
        left = what_it_left(out)
        assert {name: left.get(name) for name in expected} == expected, n
        shutil.rmtree(out)
        print(f"killed at point {n} of {n_points}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
