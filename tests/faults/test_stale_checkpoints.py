"""A rank whose file system shows the newest checkpoint late or never: all ranks resume from the one rank 0 chose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from webtext.base.config import changed
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Run
from webtext.shards.shardfile import ShardWriter
from webtext.train import TrainSettings, train_model
from webtext.train.checkpoint.checkpoint import STATE

pytestmark = pytest.mark.slow
TORCHRUN = [
    sys.executable,
    str(Path(__file__).parent.parent / "train" / "forking_torchrun.py"),
    "--nproc-per-node",
    "2",
]
LOOPBACK = ["--local-addr", "127.0.0.1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
SHAPE = {"n_layer": 1, "n_head": 1, "n_embd": 16, "context": 16, "batch_size": 4, "microbatch_size": 2}
SETTINGS = TrainSettings.of(
    **SHAPE, steps=8, warmup_steps=2, checkpoint_interval=2, eval_interval=None, keep_checkpoints=None, dtype="float32"
)
FLAGS = (
    "--n-layer 1 --n-head 1 --n-embd 16 --context 16 --batch-size 4 --microbatch-size 2 --steps 8 "
    "--warmup-steps 2 --set train.checkpoint.checkpoint_interval=2 --set train.monitor.eval_interval=none "
    "--set train.checkpoint.keep_checkpoints=none --set train.dtype=float32"
)
GUARD_SECONDS = 300  # only to end a run that hangs
CHILD = '''
"""One rank. Rank 1 sees VIEW, a link to a stale copy of rank 0's folder; its file system catches up as it waits."""
import os, sys, time
from pathlib import Path
from types import SimpleNamespace

from webtext.app.main import run
from webtext.train.checkpoint import checkpoint
from webtext.train.run import loop
from webtext.train.run.trainer import Trainer

notes, view, real, polls_until_visible, *arguments = sys.argv[1:]
rank, polls = os.environ["RANK"], 0

def note(text):
    with open(Path(notes) / f"rank-{rank}", "a") as file:
        file.write(text + "\\n")

def sleep(seconds):
    global polls
    polls += 1
    if polls == int(polls_until_visible):
        os.symlink(real, f"{view}.new")
        os.replace(f"{view}.new", view)

resume, sha256 = Trainer.resume, checkpoint.file_sha256
Trainer.resume = lambda self, found: (note(f"resumes at {found.step}"), resume(self, found))
checkpoint.file_sha256 = lambda file: (note(f"hashes {Path(file.name).name}"), sha256(file))[1]
if rank == "1" and int(polls_until_visible) >= 0:
    loop.time = SimpleNamespace(sleep=sleep, monotonic=lambda: polls)  # the clock counts polls
    loop.VISIBLE_SECONDS = 10
sys.exit(run(["train", "run", arguments[0], "--out", view if rank == "1" else real, *arguments[1:]]))
'''


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> str:
    import numpy as np

    folder = tmp_path_factory.mktemp("tokens")
    facts = {"vocab_size": 61, "eot_id": 60, "tokenizer_hash": "a" * 64}
    made = SetWriter(str(folder), "tokens", Recipe(stage="shards.pack", code_version=1, settings=facts))
    with made.part(0, key="0") as part:
        for name, n_documents in (("train-00000.tok", 40), ("validation-00000.tok", 4)):
            with ShardWriter(part.attach(name), **facts) as shard:
                rows = np.random.default_rng(0).integers(0, 60, (n_documents, 50)).astype(np.uint16)
                for i, document in enumerate(rows):
                    row = {"shard": name, "start": shard.append(document), "length": 51, "id": f"{name} {i}"}
                    part.write([{**row, "source_part": "p", "row": i}])
            part.describe(name, shard.in_manifest())
            part.counts.keep(n_documents)
        made.seal([part.publish()])
    return str(folder)


@pytest.fixture(scope="module")
def stopped(tokens: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight steps that stopped after six, with checkpoints of steps 2, 4 and 6."""

    out = tmp_path_factory.mktemp("stopped") / "model"
    train_model(tokens, str(out), changed(SETTINGS, stop_at_step=6), Run.quiet())
    return out


def resume(stopped: Path, folder: Path, tokens: str, polls_until_visible: int) -> subprocess.CompletedProcess[str]:
    """Resume on two ranks; rank 1 doesn't see step 6's checkpoint before that many polls; below 0 hides none."""
    shutil.copytree(stopped, folder / "real")
    shutil.copytree(folder / "real", folder / "stale")
    shutil.rmtree(folder / "stale/checkpoints/step-000006")
    (folder / "view").symlink_to(folder / ("stale" if polls_until_visible >= 0 else "real"))
    (folder / "child.py").write_text(CHILD)
    places = [folder, folder / "view", folder / "real", polls_until_visible, tokens]
    command = [*TORCHRUN, *LOOPBACK, folder / "child.py", *places, *FLAGS.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=GUARD_SECONDS, env=environment
    )


def notes(folder: Path, rank: int) -> list[str]:
    path = folder / f"rank-{rank}"
    return path.read_text().splitlines() if path.exists() else []


def test_a_rank_that_sees_the_newest_checkpoint_late_waits_for_it_and_leaves_the_same_bytes(
    stopped: Path, tokens: str, tmp_path: Path
) -> None:
    """Files are hashed once, by rank 0, for any number of ranks."""
    left = []
    for polls in (-1, 3):
        folder = tmp_path / str(polls)
        folder.mkdir()
        done = resume(stopped, folder, tokens, polls)
        assert done.returncode == 0, done.stderr
        names = sorted(path.name for path in (stopped / "checkpoints/step-000006").iterdir() if path.name != STATE)
        assert len(names) == 2  # model and optimizer
        assert sorted(notes(folder, 0)) == [*(f"hashes {name}" for name in names), "resumes at 6"]
        assert notes(folder, 1) == ["resumes at 6"]
        tensors = (folder / "real/checkpoints/step-000008").glob("*.safetensors")
        left.append({path.name: path.read_bytes() for path in tensors})
    assert left[0] == left[1]
    assert left[0]


def test_a_rank_that_never_sees_the_checkpoint_ends_the_run_with_its_name(
    stopped: Path, tokens: str, tmp_path: Path
) -> None:
    done = resume(stopped, tmp_path, tokens, polls_until_visible=1000)
    assert done.returncode != 0
    assert "rank 1 does not see '" in done.stderr
    assert "checkpoints/step-000006' as rank 0 does" in done.stderr
    assert "a file system that all hosts share; then rerun the same command" in done.stderr
    assert [note for rank in (0, 1) for note in notes(tmp_path, rank) if note.startswith("resumes")] == []
    assert not (tmp_path / "real/checkpoints/step-000008").exists()


EVALUATE = """
import os, sys
from webtext.app.main import run

view, real, tokens = sys.argv[1:]
sys.exit(run(["train", "eval", view if os.environ["RANK"] == "1" else real, tokens]))
"""


def test_ranks_that_see_different_checkpoints_measure_nothing(stopped: Path, tokens: str, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "stale")
    shutil.rmtree(tmp_path / "stale/checkpoints/step-000006")
    (tmp_path / "child.py").write_text(EVALUATE)
    command = [*TORCHRUN, *LOOPBACK, tmp_path / "child.py", tmp_path / "stale", stopped, tokens]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=GUARD_SECONDS, env=environment
    )
    assert done.returncode != 0
    assert "rank 1 reads step 4 of '" in done.stderr
    assert "and rank 0 step 6" in done.stderr
    assert "perplexity" not in done.stdout
