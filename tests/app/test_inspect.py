"""`webtext inspect`: a way is read back from the parts, an unknown name is a short error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from webtext.app.main import run
from webtext.app.trace import Tracer


@pytest.fixture
def kept_id(written_build: Path) -> str:
    document = Tracer(str(written_build)).trace("http://kept.example/").document
    assert document is not None
    return str(document["id"])


def test_a_url_and_its_documents_id_tell_the_same_way(
    written_build: Path, kept_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "doc", str(written_build), "HTTP://kept.example"]) == 0
    by_url = capsys.readouterr().out
    assert run(["inspect", "doc", str(written_build), kept_id]) == 0
    assert capsys.readouterr().out == by_url
    assert by_url.startswith("http://kept.example/ ended in corpus\n")
    for line in (
        "  link      http://moved.example/  karma 12, train",
        "  post      reddit p-kept in r/test: 12 points, 2017-01-01",
        "  page      HTTP 200, 2020-09-13, pages/part-00000.warc.gz at 10",
        f"  document  {kept_id}, ",
        "  tokens    train-00000.tok, 0 to ",
    ):
        assert line in by_url


def test_json_holds_every_row_of_the_way(written_build: Path, kept_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "doc", str(written_build), "http://copy.example/", "--json"]) == 0
    trace = json.loads(capsys.readouterr().out)
    assert (trace["stage"], trace["reason"], trace["decision"]["duplicate_of"]) == (
        "dropped",
        "exact_duplicate",
        kept_id,
    )


def test_a_token_leads_back_to_its_posts(written_build: Path, kept_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "token", str(written_build), "train-00000.tok:7"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"train-00000.tok:7 is token 7 of document {kept_id}\n")
    assert "reddit p-kept in r/test" in out
    assert run(["inspect", "token", str(written_build), "validation-00000.tok:0", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["origin"]["source_part"] == "part-00001.parquet"
    assert answer["trace"]["url"] == "http://held.example/"


def test_a_cluster_shows_the_one_that_stays_beside_its_duplicates(
    written_build: Path, kept_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "cluster", str(written_build), kept_id]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"1 document was dropped as a duplicate of {kept_id}\n  stays     http://kept.example/")
    assert "\n  dropped   http://copy.example/" in out
    assert "exact_duplicate: similarity 1 (threshold 0.8)" in out


def test_drops_are_shown_with_value_and_threshold(written_build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "drop", str(written_build), "--reason", "too_few_words"]) == 0
    assert capsys.readouterr().out == (
        "too_few_words: 5 against 100  http://short.example/\n            'Too short <b>to be</b> kept.'\n"
    )
    assert run(["inspect", "drop", str(written_build), "-n", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["dropped"]) == 1


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["doc", "BUILD", "0" * 32], 3, f"no document '{'0' * 32}' in 'BUILD'"),
        (["doc", "BUILD", "no:url"], 3, "no document 'no:url'"),
        (["doc", "BUILD/nowhere", "http://a/"], 3, "there is no build in 'BUILD/nowhere'"),
        (["token", "BUILD", "train-00000.tok"], 2, "'train-00000.tok' is not of the form SHARD:OFFSET"),
        (["token", "BUILD", "train-00000.tok:-1"], 2, "not of the form SHARD:OFFSET"),
        (["token", "BUILD", "train-00000.tok:²"], 2, "not of the form SHARD:OFFSET"),
        (["token", "BUILD", "train-00000.tok:99999999"], 3, "'train-00000.tok' has no token 99999999"),
        (["token", "BUILD", "train-00009.tok:0"], 3, "has no shard 'train-00009.tok'"),
        (["cluster", "BUILD", "0" * 32], 3, f"no document '{'0' * 32}' in 'BUILD' has duplicates"),
        (["drop", "BUILD", "--reason", "too_few_word"], 3, "did you mean 'too_few_words'?"),
        (["drop", "BUILD/links"], 3, "there is no build in 'BUILD/links'"),
    ],
)
def test_an_unknown_name_is_a_short_error(
    written_build: Path, arguments: list[str], exit_code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    build = str(written_build)
    assert run(["inspect", *(argument.replace("BUILD", build) for argument in arguments)]) == exit_code
    captured = capsys.readouterr()
    assert message.replace("BUILD", build) in captured.err
    assert len(captured.err.splitlines()) <= 3
    assert captured.out == ""
