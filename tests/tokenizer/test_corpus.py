"""Training on part sets and files: the train split only, skipped when nothing changed, never half a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.partset import PartSet
from webtext.base.partwriter import SetWriter
from webtext.base.recipe import Recipe
from webtext.base.run import Run
from webtext.base.schemas import text_digest
from webtext.tokenizer import Tokenizer, corpus
from webtext.tokenizer.corpus import TokenizerSettings, train_tokenizer

CANARY = "zyzzyva"
SETTINGS = TokenizerSettings(vocab_size=400)


def document(identifier: str, text: str, split: str = "train") -> dict[str, Any]:
    return {"id": identifier, "link_ids": [], "text": text, "text_digest": text_digest(text), "split": split}


def write_set(folder: Path, parts: Sequence[Sequence[Mapping[str, Any]]], kind: str = "corpus") -> str:
    """A sealed part set with these documents."""
    made = []
    writer = SetWriter(str(folder), kind, Recipe(stage="test", code_version=1, settings={}))
    for index, rows in enumerate(parts):
        with writer.part(index, key=f"part {index}") as part:
            part.write(rows)
            made.append(part.publish())
    writer.seal(made)
    return str(folder)


@pytest.fixture
def documents(tmp_path: Path) -> str:
    parts = [
        [document("a", "the dog and the other dog " * 9), document("b", f"{CANARY} " * 999, "validation")],
        [document("c", "a cat and the dogs " * 9), document("d", "")],
    ]
    return write_set(tmp_path / "corpus", parts)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "tokenizer" / "tokenizer.json")


def test_validation_text_never_reaches_the_merges(documents: str, out: str) -> None:
    """The canary is the most frequent word of the set, in its validation document: not one pair of it may be merged."""
    tokenizer = train_tokenizer([documents], out, SETTINGS, Run.quiet())
    assert len(tokenizer.encode(" dog")) == 1
    assert len(tokenizer.encode(CANARY)) == len(CANARY)
    texts = ["the dog and the other dog " * 9, "a cat and the dogs " * 9]
    assert tokenizer.hash == Tokenizer.train(texts, vocab_size=400).hash == Tokenizer.load(out).hash


def test_manifest_names_recipe_parents_and_counts(documents: str, out: str) -> None:
    tokenizer = train_tokenizer([documents], out, SETTINGS, Run.quiet())
    manifest = json.loads(Path(out).with_name("tokenizer.manifest.json").read_text())
    assert manifest["parents"] == [{"set": "corpus", "hash": PartSet.open(documents).hash}]
    assert manifest["counts"] == {"records_in": 4, "kept": 2, "dropped": {"held_out": 1, "empty": 1}, "failed": {}}
    assert manifest["recipe"]["settings"]["vocab_size"] == 400
    assert manifest["recipe"]["versions"] == {"unicode": "16.0.0"}
    assert (manifest["tokenizer_hash"], manifest["vocab_size"]) == (tokenizer.hash, tokenizer.vocab_size)


def trained(inputs: Sequence[str], out: str, settings: TokenizerSettings, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a run trained, and did not find its work done."""
    calls = []
    with monkeypatch.context() as patch:
        train = corpus.train_vocabulary
        patch.setattr(corpus, "train_vocabulary", lambda *a, **k: calls.append(1) or train(*a, **k))
        train_tokenizer(inputs, out, settings, Run.quiet())
    return bool(calls)


def test_unchanged_work_is_skipped_and_changed_work_is_not(
    documents: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trained([documents], out, SETTINGS, monkeypatch)
    before = Path(out).read_bytes()
    assert not trained([documents], out, SETTINGS, monkeypatch)
    assert trained([documents], out, TokenizerSettings(vocab_size=300), monkeypatch)
    assert trained([documents], out, SETTINGS, monkeypatch)
    assert Path(out).read_bytes() == before
    other = write_set(tmp_path / "other", [[document("a", "another text")]])
    assert trained([other], out, SETTINGS, monkeypatch)
    assert not trained([other], out, SETTINGS, monkeypatch)


@pytest.mark.parametrize("damage", ["cut", "removed", "no manifest", "damaged manifest"])
def test_a_damaged_result_is_made_again(documents: str, out: str, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    train_tokenizer([documents], out, SETTINGS, Run.quiet())
    good = Path(out).read_bytes()
    manifest = Path(out).with_name("tokenizer.manifest.json")
    {
        "cut": lambda: Path(out).write_bytes(good[:1000]),
        "removed": Path(out).unlink,
        "no manifest": manifest.unlink,
        "damaged manifest": lambda: manifest.write_text("[1, 2"),
    }[damage]()
    assert trained([documents], out, SETTINGS, monkeypatch)
    assert Path(out).read_bytes() == good


def test_a_run_killed_before_the_manifest_does_not_count(
    documents: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "save", fail)
        with pytest.raises(KeyboardInterrupt):
            train_tokenizer([documents], out, SETTINGS, Run.quiet())
    assert not Path(out).exists()
    assert trained([documents], out, SETTINGS, monkeypatch)


def test_a_dry_run_writes_nothing(documents: str, out: str) -> None:
    run = Run.quiet()
    run.dry_run = True
    with pytest.raises(DryRun):
        train_tokenizer([documents], out, SETTINGS, run)
    assert not Path(out).parent.exists()


def test_text_files_are_learnt_whole(tmp_path: Path, out: str) -> None:
    """Files are read in blocks of a megabyte; the blocks' pieces are those of the whole file."""
    text = "".join(f"line {number}、行{number}。\n\n  \n next\xa0\nword " for number in range(60_000))
    assert len(text.encode()) > 2 << 20
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    tokenizer = train_tokenizer([str(file)], out, SETTINGS, Run.quiet())
    assert tokenizer.hash == Tokenizer.train([text], vocab_size=400).hash
    manifest = json.loads(Path(out).with_name("tokenizer.manifest.json").read_text())
    assert manifest["bytes"] == len(text.encode())


def test_part_sets_and_files_can_be_mixed(documents: str, tmp_path: Path, out: str) -> None:
    file = tmp_path / "more.txt"
    file.write_text("some more words")
    texts = ["the dog and the other dog " * 9, "a cat and the dogs " * 9, "some more words"]
    tokenizer = train_tokenizer([documents, str(file)], out, SETTINGS, Run.quiet())
    assert tokenizer.hash == Tokenizer.train(texts, vocab_size=400).hash


def test_no_text_at_all_is_an_error(tmp_path: Path, out: str) -> None:
    held_out = write_set(tmp_path / "held_out", [[document("a", "words", "validation")]])
    (tmp_path / "empty.txt").touch()
    for source in (held_out, str(tmp_path / "empty.txt")):
        with pytest.raises(InputError, match="no text to train on"):
            train_tokenizer([source], out, SETTINGS, Run.quiet())
    assert not Path(out).exists()


def test_inputs_that_cannot_be_read_are_errors(documents: str, tmp_path: Path, out: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "table.parquet").touch()
    dropped = write_set(tmp_path / "tokens", [], kind="tokens")
    for source, message in {
        str(tmp_path / "nothing.txt"): "no file",
        str(tmp_path / "folder"): "is no part set",
        str(tmp_path / "table.parquet"): "is no plain text",
        dropped: "holds tokens, not corpus or documents",
    }.items():
        with pytest.raises(InputError, match=message):
            train_tokenizer([source], out, SETTINGS, Run.quiet())
    part = next(Path(documents).glob("part-*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(InputError, match=part.name):
        train_tokenizer([documents], out, SETTINGS, Run.quiet())


@pytest.mark.parametrize("bad", [{"vocab_size": 100}, {"min_frequency": 0}])
def test_settings_that_make_no_sense_are_errors(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"tokenizer.{next(iter(bad))} is"):
        TokenizerSettings(**bad)
