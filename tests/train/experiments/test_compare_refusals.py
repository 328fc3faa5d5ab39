"""Comparisons that are rejected before a step is made or a file written, each with a remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from webtext.app.main import run
from webtext.base.errors import ConfigError, DryRun, InputError, WebtextError
from webtext.base.run import Run
from webtext.tokenizer import Tokenizer
from webtext.train import TrainSettings
from webtext.train.experiments.compare import compare_corpora, described, read_validation
from webtext.train.settings import ExperimentSettings

COMPARE = ExperimentSettings()
Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, settings: TrainSettings) -> Refused:
    """refused(corpora, kind, …) is the error; nothing may be written."""

    def refused(corpora: list[str], kind: type[WebtextError], **more: Any) -> str:
        trained = more.pop("settings", settings)
        with pytest.raises(kind) as caught:
            compare_corpora(corpora, str(tmp_path / "out"), trained, COMPARE, Run.quiet(), **more)
        assert not (tmp_path / "out").exists()
        return str(caught.value)

    return refused


def test_one_corpus_or_two_of_a_name(sentences: str, letters: str, refused: Refused) -> None:
    assert "fewer than two corpora are named\nwebtext train compare" in refused([sentences], ConfigError)
    assert "two corpora have the name" in refused([sentences, sentences], ConfigError)
    assert "two corpora have the name 'a'\nname them: one=PATH" in refused(
        [f"a={sentences}", f"a={letters}"], ConfigError
    )


def test_a_folder_that_is_not_a_corpus(
    sentences: str, refused: Refused, tmp_path: Path, make_token_set: Callable[..., str]
) -> None:
    assert "nothing' is neither a build nor a token set" in refused([sentences, f"{tmp_path}/nothing"], InputError)
    other = make_token_set("bare")
    assert "has no tokenizer/tokenizer.json next to it\nadd --tokenizer" in refused([other, sentences], ConfigError)
    own = f"{sentences}/tokenizer/tokenizer.json"
    assert "was packed with tokenizer" in refused([other, sentences], InputError, tokenizer=own)


def test_a_corpus_smaller_than_a_step(sentences: str, letters: str, refused: Refused, settings: TrainSettings) -> None:
    told = refused([sentences, letters], ConfigError, settings=replace(settings, batch_size=4096))
    assert "0 tokens are 0 steps of 131,072, and the warm-up is 2" in told


def test_no_document_that_all_hold_out(sentences: str, make_build: Callable[..., str], refused: Refused) -> None:
    other = make_build("other", {f"y{i}": "some words " * 90 for i in range(40)}, {"mine": "text"})
    told = refused([sentences, other], InputError)
    assert "no document is held out by all corpora" in told
    assert f"'{sentences}' 8" in told
    assert f"'{other}' 1" in told


def test_a_validation_set_that_a_corpus_trains_on(
    sentences: str, letters: str, refused: Refused, tmp_path: Path, settings: TrainSettings
) -> None:
    frozen = tmp_path / "validation.jsonl"
    rows = [{"id": "held 0", "text": "one"}, {"id": "x3", "text": "two"}, {"id": "x4", "text": "three"}]
    frozen.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = refused([sentences, letters], InputError, validation=str(frozen))
    assert f"'{letters}' trains on 2 of the 3 documents of the validation set" in told
    for line in ('{"id": "held 0"}\n', '{"id": "held 0", "text": "\\ud800"}\n'):
        frozen.write_text(line)
        assert "line 1: not a document" in refused([sentences, letters], InputError, validation=str(frozen))
    frozen.write_text("")
    assert "has no text" in refused([sentences, letters], InputError, validation=str(frozen))


def test_another_validation_set_than_the_folder_has(
    sentences: str, letters: str, refused: Refused, tmp_path: Path, settings: TrainSettings
) -> None:
    out = tmp_path / "made"
    frozen = tmp_path / "validation.jsonl"
    frozen.write_text('{"id": "held 0", "text": "old"}\n')
    out.mkdir()
    (out / "plan.json").write_text(json.dumps({"validation": described(read_validation(str(frozen)))}))
    with pytest.raises(ConfigError, match="made with validation 1 documents, 3 bytes, .* but here it is 6 documents"):
        compare_corpora([sentences, letters], str(out), settings, COMPARE, Run.quiet())
    dry = Run.quiet()
    dry.dry_run = True
    with pytest.raises(DryRun):
        compare_corpora([sentences, letters], str(out), settings, COMPARE, dry, validation=str(frozen))


def test_corpora_of_two_tokenizers(
    sentences: str, remake: Callable[[str, str, Tokenizer], str], refused: Refused
) -> None:
    other = remake(sentences, "bytes", Tokenizer.train(["aa"], 258))
    assert "was packed with tokenizer" in refused([sentences, other], InputError)


def test_torchrun_and_the_command_line(
    sentences: str, letters: str, refused: Refused, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "compare", sentences, letters]) == 2
    assert "no --out given" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "give the command without torchrun" in refused([sentences, letters], ConfigError)
