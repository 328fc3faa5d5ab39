"""The verbs of `webtext shards`: results as text and as JSON, exit codes, and errors of at most three lines."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from webtext.app.main import run
from webtext.shards import TokenShards
from webtext.tokenizer import Tokenizer

from .conftest import ByteTokenizer, upload
from .test_format import edit

Make = Callable[..., TokenShards]


@pytest.fixture
def tokens(shards_of: Make) -> str:
    return shards_of([["hello world", "second"], ["third"]]).set.folder.url


def test_info_shows_what_a_set_holds(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    """'hello world' and 'second' have 12 + 7 tokens and 'third' has 6: 25 in two shards."""
    assert run(["shards", "info", tokens]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert "vocabulary 257, 2 bytes per token" in rows[0]
    assert rows[2].split()[:4] == ["train", "2", "3", "25"]
    assert rows[3].split()[:4] == ["validation", "0", "0", "0"]


def test_info_answers_in_json(tokens: str, capsys: pytest.CaptureFixture[str], byte_tokenizer: ByteTokenizer) -> None:
    assert run(["shards", "info", tokens, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokenizer_hash"] == byte_tokenizer.hash
    assert found["splits"]["train"]["tokens"] == 25
    assert found["splits"]["train"]["bytes"] == sum(path.stat().st_size for path in Path(tokens).glob("*.tok"))


def test_verify_reports_an_intact_set(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shards", "verify", tokens]) == 0
    assert "is intact: 25 tokens, 2 token files" in capsys.readouterr().out
    assert run(["shards", "verify", tokens, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"] is True


def test_verify_names_the_altered_file_and_exits_with_3(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    edit(Path(tokens) / "train-00001.tok", 258, b"\x00")
    assert run(["shards", "verify", tokens]) == 3
    assert "train-00001.tok' was altered: SHA-256" in (error := capsys.readouterr().err)
    assert len(error.splitlines()) <= 3


@pytest.mark.parametrize("name", ["train-00001.tok", "part-00001.parquet"])
@pytest.mark.parametrize("verb", ["verify", "info"])
def test_a_missing_file_is_named_and_exits_with_3(
    verb: str, name: str, tokens: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(tokens) / name).unlink()
    assert run(["shards", verb, tokens]) == 3
    assert f"{name}' is missing" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["train-00001.tok", "part-00001.parquet"])
def test_verify_names_a_missing_file_of_a_remote_set_and_exits_with_3(
    name: str, tokens: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(tokens) / name).unlink()
    assert run(["shards", "verify", upload(tokens)]) == 3
    assert f"{name}'" in capsys.readouterr().err


def test_sample_decodes_a_place_with_its_document(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["shards", "sample", tokens, "--tokenizer", "any", "--context", "5", "--at", "train-00000.tok:7"]
    assert run(arguments) == 0
    assert capsys.readouterr().out == ("--- train-00000.tok:7  document 0-0, part-00000.parquet row 0\nworld\n")


def test_sample_shows_what_training_sees_first(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["shards", "sample", tokens, "--tokenizer", "any", "--context", "8", "-n", "3", "--seed", "4", "--json"]
    assert run(arguments) == 0
    windows = json.loads(capsys.readouterr().out)["windows"]
    ring = "<|endoftext|>hello world<|endoftext|>second<|endoftext|>third" * 2
    assert len({(window["shard"], window["offset"]) for window in windows}) == 3
    assert all(window["text"] in ring for window in windows)


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--at", "train-00000.tok"], 2, "is not of the form SHARD:OFFSET"),
        (["--at", "train-00000.tok:99"], 3, "has no token 99"),
        (["--at", "train-00000.tok:9", "--split", "validation"], 2, "--split validation, but --at train-00000.tok:9"),
        (["--at", "train-00007.tok:0"], 3, "no shard 'train-00007.tok'"),
        (["--split", "validation"], 3, "the validation split"),
        (["--context", "25"], 3, "has 25 tokens; a context of 25 needs more"),
    ],
)
def test_sample_of_a_missing_position_is_a_short_error(
    tokens: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, complaint: str
) -> None:
    assert run(["shards", "sample", tokens, "--tokenizer", "any", *arguments]) == code
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) <= 3


def test_sample_with_another_tokenizer_is_refused(
    tokens: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webtext.shards.writing.pack.load_tokenizer", lambda _: ByteTokenizer(name="other"))
    assert run(["shards", "sample", tokens, "--tokenizer", "other.json"]) == 3
    assert "was packed with tokenizer" in capsys.readouterr().err


def test_the_remedy_for_a_tokenizer_without_end_of_text_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("some words\n" * 9)
    Tokenizer.train(["words"], vocab_size=257, special_tokens=["<|end_of_text|>"]).save("tokenizer.json")
    pack = ["shards", "pack", "a.txt", "--out", "tokens", "--workers", "1", "--tokenizer"]
    assert run([*pack, "tokenizer.json"]) == 3
    assert run(shlex.split(capsys.readouterr().err.split("add it: webtext ")[1])) == 0
    assert run([*pack, "with_end_of_text.json"]) == 0
