"""Tests for every stage through its command line: rerun, killed, resumed, two workers, altered or foreign input.

The stages read one small build that a demo made; each test writes to its own folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from webtext.app.main import run as run_here
from webtext.base.parts.partset import PartSet

MAIN = [sys.executable, "-m", "webtext.app.main"]
TIMES_AND_HOSTS = {"run.json", "metrics.jsonl", "state.json"}
"""Files with times and paths; everything else must be equal byte for byte."""


@dataclass(frozen=True)
class Stage:
    """One verb: its input in a build, its arguments, and the part sets it writes under --out."""

    name: str
    verb: tuple[str, ...]
    input: str
    kinds: tuple[str, ...]
    outputs: tuple[str, ...] = (".",)
    options: tuple[str, ...] = ()
    out: str = ""
    has_workers: bool = True

    def arguments(self, build: Path, out: Path, *more: str, workers: int = 1) -> list[str]:
        options = [option.replace("BUILD", str(build)) for option in self.options]
        options += ["--workers", str(workers)] if self.has_workers else []
        return [*self.verb, str(build / self.input), "--out", str(out / self.out if self.out else out), *options, *more]


STAGES = [
    Stage("links", ("crawl", "links"), "../RS_2017-01.zst", (), options=("--set", "crawl.links.parts=3")),
    Stage("clean", ("clean", "run"), "pages", ("pages",), ("documents", "signals", "corpus", "dropped")),
    Stage("extract", ("clean", "extract"), "pages", ("pages",)),
    Stage("filter", ("clean", "filter"), "documents", ("documents", "corpus"), ("corpus", "dropped")),
    Stage("dedup", ("clean", "dedup"), "documents", ("documents", "corpus"), ("corpus", "dropped")),
    Stage("decontaminate", ("clean", "decontaminate"), "documents", ("documents", "corpus"), ("corpus", "dropped"),
          options=("--against", "BUILD/dropped/part-00000.parquet#text_start", "--drop")),
    Stage("tokenizer", ("tokenizer", "train"), "corpus", ("documents", "corpus"), (), ("--vocab-size", "600"), "t.json"),
    Stage("pack", ("shards", "pack"), "corpus", ("documents", "corpus"),
          options=("--tokenizer", "BUILD/tokenizer/tokenizer.json")),
    Stage("pack files", ("shards", "pack"), "documents/part-*.parquet", (),
          options=("--tokenizer", "BUILD/tokenizer/tokenizer.json")),
    Stage(
        "train",
        ("train", "run"),
        "tokens",
        ("tokens",),
        (),
        ("--n-layer", "1", "--n-head", "1", "--n-embd", "32", "--context", "64", "--batch-size", "4", "--steps", "12",
         "--warmup-steps", "2", "--set", "train.checkpoint.checkpoint_interval=4",
         "--set", "train.monitor.eval_windows=4"),
        has_workers=False,
    ),
]  # fmt: skip


def each(stages: Sequence[Stage], slow: Sequence[str] = ()) -> pytest.MarkDecorator:
    marks = {name: [pytest.mark.slow] for name in slow}
    values = [pytest.param(stage, id=stage.name, marks=marks.get(stage.name, [])) for stage in stages]
    return pytest.mark.parametrize("stage", values)


PURE = [stage for stage in STAGES if stage.outputs]
READING_SETS = [stage for stage in STAGES if stage.kinds]
LONG = ("clean", "train")  # tests/clean and tests/train have quick tests of the same


def run(arguments: Sequence[str], code: int = 0) -> tuple[str, str]:
    """Run a command in this process, which is faster; return stdout and stderr."""
    said, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
        assert run_here([*arguments]) == code, error.getvalue()
    assert "Traceback" not in error.getvalue()
    return said.getvalue(), error.getvalue()


def refused(arguments: Sequence[str]) -> list[str]:
    """Return the lines of the error that a command ends with."""
    said, error = run(arguments, 3)
    assert said == ""
    return error.splitlines()


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in TIMES_AND_HOSTS
    }


@pytest.fixture(scope="module")
def build(small_demo: Path) -> Path:
    return small_demo / "build"


@pytest.fixture(scope="module")
def undisturbed(build: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, float]]:
    """Each stage's output of one undisturbed run with one worker, and how long it took; made on first use."""
    made: dict[str, tuple[Path, float]] = {}

    class Made(dict[str, tuple[Path, float]]):
        def __missing__(self, name: str) -> tuple[Path, float]:
            stage = next(stage for stage in STAGES if stage.name == name)
            out = tmp_path_factory.mktemp(name) / "out"
            started = time.monotonic()
            subprocess.run([*MAIN, *stage.arguments(build, out, "--quiet")], check=True, timeout=600)
            self[name] = (out, time.monotonic() - started)
            return self[name]

    return Made(made)


@each(PURE, LONG)
def test_records_in_are_kept_or_dropped_or_failed(stage: Stage, undisturbed: dict[str, tuple[Path, float]]) -> None:
    out, _ = undisturbed[stage.name]
    for output in stage.outputs:
        opened = PartSet.open(str(out / output))
        opened.verify()
        assert opened.counts.balanced
        assert opened.counts.records_in > 0


@each(STAGES, LONG)
def test_the_same_command_again_changes_nothing(
    stage: Stage, build: Path, undisturbed: dict[str, tuple[Path, float]]
) -> None:
    out, _ = undisturbed[stage.name]
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    run(stage.arguments(build, out, "--quiet"))
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == stamps


@each(STAGES, (*LONG, "dedup", "decontaminate"))
def test_killed_with_9_it_resumes_to_the_same_bytes_with_two_workers(
    stage: Stage, build: Path, tmp_path: Path, undisturbed: dict[str, tuple[Path, float]]
) -> None:
    whole, seconds = undisturbed[stage.name]
    out = tmp_path / "out"
    arguments = stage.arguments(build, out, "--quiet", workers=2)
    process = subprocess.Popen([*MAIN, *arguments], start_new_session=True, stderr=subprocess.DEVNULL)
    time.sleep(random.Random(stage.name).uniform(0.4, 0.9) * seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    run(arguments)
    assert files(out) == files(whole)


@each(PURE, (*LONG, "dedup", "decontaminate"))
def test_an_altered_part_of_the_output_is_refused_and_made_again_once_removed(
    stage: Stage, build: Path, tmp_path: Path, undisturbed: dict[str, tuple[Path, float]]
) -> None:
    whole, _ = undisturbed[stage.name]
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    for output in stage.outputs:
        part = sorted((out / output).glob("part-*.parquet"))[0]
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 255
        part.write_bytes(data)
        assert part.name in "".join(refused(["inspect", "set", str(out / output), "--verify"]))
        part.unlink()
    run(stage.arguments(build, out, "--quiet"))
    assert files(out) == files(whole)


@each(READING_SETS)
def test_an_altered_part_of_the_input_is_rejected_with_its_name(stage: Stage, build: Path, tmp_path: Path) -> None:
    copy = tmp_path / "build"
    shutil.copytree(build / stage.input, copy / stage.input)
    shutil.copytree(build / "tokenizer", copy / "tokenizer")
    victim = max((copy / stage.input).glob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 255
    victim.write_bytes(data)
    lines = refused(stage.arguments(copy, tmp_path / "out", "--quiet"))
    assert victim.name in "".join(lines)
    assert len(lines) <= 3


@each(READING_SETS)
def test_a_set_of_a_foreign_kind_is_refused(stage: Stage, build: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "build"
    shutil.copytree(build / "tokenizer", foreign / "tokenizer")
    shutil.copytree(build / "dropped", foreign / "dropped")
    shutil.copytree(build / "links", foreign / stage.input)
    assert "contains links, not " in "".join(refused(stage.arguments(foreign, tmp_path / "out", "--quiet")))
    assert not list((tmp_path / "out").rglob("manifest.json"))


@each(READING_SETS)
def test_a_folder_that_is_not_a_part_set_and_an_unsealed_one_are_rejected(
    stage: Stage, build: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "build"
    shutil.copytree(build / "tokenizer", copy / "tokenizer")
    shutil.copytree(build / "dropped", copy / "dropped")
    (copy / stage.input).mkdir()
    assert "is not a part set" in "".join(refused(stage.arguments(copy, tmp_path / "out", "--quiet")))
    shutil.copytree(build / stage.input, copy / stage.input, dirs_exist_ok=True)
    (copy / stage.input / "manifest.json").unlink()
    assert "is not sealed" in "".join(refused(stage.arguments(copy, tmp_path / "out", "--quiet")))


@each(STAGES, LONG)
def test_json_is_the_only_thing_on_stdout(
    stage: Stage, build: Path, undisturbed: dict[str, tuple[Path, float]]
) -> None:
    out, _ = undisturbed[stage.name]
    said, _ = run(stage.arguments(build, out, "--json"))
    assert isinstance(json.loads(said), dict)
