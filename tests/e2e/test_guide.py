"""The guide tells the truth: its commands and its code run, in their order, on a few small texts."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from webtext.app.main import run

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
SMALL = {
    ("tokenizer", "train"): "--vocab-size 400 --workers 1",
    ("tokenizer", "score"): "--workers 1",
    ("shards", "pack"): "--workers 1",
    ("train", "plan"): "--steps 4 --warmup-steps 1",
    (
        "train",
        "run",
    ): "--steps 4 --warmup-steps 1 --n-layer 1 --n-embd 32 --context 64 --set train.monitor.eval_interval=2",
}
"""What makes a command end soon. `--vocab-size` replaces the guide's."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.S)


COMMANDS = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
FIRST_OF_TRAINING = next(i for i, command in enumerate(COMMANDS) if command[1:3] == ["train", "run"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with texts of every kind that the guide names, and one that is cut short."""
    texts = tmp_path / "texts"
    texts.mkdir()
    stories = [
        f"The {animal} of house {i} saw the other {animal}. " * 9 for i in range(60) for animal in ("dog", "cat")
    ]
    (texts / "a.txt").write_text(stories[0])
    (texts / "b.jsonl").write_text(
        "".join(json.dumps({"text": story}) + "\n" for story in stories[1:]) + '{"text": "cut'
    )
    (tmp_path / "small.toml").write_text(blocks("toml")[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def follow(commands: list[list[str]]) -> None:
    for program, *arguments in commands:
        assert program == "webtext"
        assert run([*arguments, *shlex.split(SMALL.get((arguments[0], arguments[1]), ""))]) == 0, arguments


def test_the_commands_before_training_make_shards_of_text_and_json_lines(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(COMMANDS[:FIRST_OF_TRAINING])
    said = capsys.readouterr().out
    assert "bytes per token" in said
    assert "parameters" in said
    assert run(["shards", "info", "tokens", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"records_in": 121, "kept": 120, "dropped": {}, "failed": {"not_json": 1}}
    assert all(split["documents"] for split in found["splits"].values())
    failure = json.loads((folder / "tokens" / "part-00000.failures.jsonl").read_text())
    assert (failure["id"], failure["reason"]) == ("b.jsonl:119", "not_json")


@pytest.mark.slow
def test_every_command_and_the_code_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    follow(COMMANDS)
    said = capsys.readouterr().out
    assert "perplexity per token" in said
    assert re.search(r"perplexity +[\d,.]+ +word ", said)
    assert len(COMMANDS) >= 11
    for code in blocks("python"):
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=300)
