"""Packing files without a crawl: text, JSON lines and Parquet in any mixture, bad records counted, nothing lost."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encrypted_parquet import encrypted_parquet

from webtext.app.main import run as webtext
from webtext.base.errors import ConfigError, InputError
from webtext.base.inputs.files import InputFile
from webtext.base.parts.identifiers import split_of
from webtext.base.parts.stage import PartContext
from webtext.base.run import Run
from webtext.base.workers.attempt import FIRST_FILE, Attempt
from webtext.base.workers.local_engine import LocalEngine
from webtext.shards import TokenShards
from webtext.shards.settings import FileSettings
from webtext.shards.trace import trace
from webtext.shards.writing import documents
from webtext.shards.writing.pack import PackSettings, pack_shards

from .conftest import ByteTokenizer, pack_files_here
from .test_pack import files

PACK = ["shards", "pack", "--workers", "1", "--tokenizer"]


def lines(path: Path, *records: object) -> Path:
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in records))
    return path


def texts(folder: Path, split: str = "train") -> dict[str, str]:
    """Return id -> text of a packed split."""
    found = TokenShards(folder, split)
    found.verify()
    return {each.id: bytes(each.tokens[1:].astype(np.uint8)).decode() for each in found.documents()}


def every_text(folder: Path) -> list[str]:
    return sorted([*texts(folder).values(), *texts(folder, "validation").values()])


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder with a file of each kind, and one that is none of them."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("a text\nof two lines\n")
    lines(folder / "b.jsonl", {"text": "line one", "id": "one"}, {"text": "line two", "id": 2})
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(b'{"text": "packed"}\n'))
    pq.write_table(pa.table({"text": ["row one", "row two"], "n": [1, 2]}), folder / "d.parquet")
    (folder / "e.png").write_bytes(b"\x89PNG")
    return folder


# --- documents --------------------------------------------------------------------------------------------------------


def test_a_folder_of_text_json_lines_and_parquet_is_packed(
    mixed: Path, tmp_path: Path, byte_tokenizer: ByteTokenizer
) -> None:
    made = pack_files_here([mixed], tmp_path / "tokens")
    assert made.counts.to_json() == {"records_in": 6, "kept": 6, "dropped": {}, "failed": {}}
    expected = ["a text\nof two lines\n", "line one", "line two", "packed", "row one", "row two"]
    assert every_text(tmp_path / "tokens") == expected
    assert [(source.set, source.part) for source in made.parts[0].sources] == [
        ("file", "a.txt"), ("file", "b.jsonl"), ("file", "c.jsonl.gz"), ("file", "d.parquet"),
    ]  # fmt: skip


def test_a_document_is_traced_to_its_file_and_record(mixed: Path, tmp_path: Path, byte_tokenizer: Any) -> None:
    made = pack_files_here([mixed], tmp_path / "tokens", validation_ratio=0.0)
    assert [(row["source_part"], row["row"]) for row in made.table(0).to_pylist()] == [
        ("a.txt", 0), ("b.jsonl", 0), ("b.jsonl", 1), ("c.jsonl.gz", 0), ("d.parquet", 0), ("d.parquet", 1),
    ]  # fmt: skip
    origin = trace(TokenShards(tmp_path / "tokens"), 0, len("|a text\nof two lines\n|line one|l"))
    assert (origin.source_set, origin.source_part, origin.row, origin.id) == ("file", "b.jsonl", 1, "2")


def test_a_document_has_the_id_and_the_split_that_clean_would_give_it(
    tmp_path: Path, byte_tokenizer: ByteTokenizer
) -> None:
    from webtext.clean.pipeline import read_documents

    records = [{"text": f"words {i}"} | ({"id": f"id {i}"} if i % 2 else {}) for i in range(200)]
    records += [{"text": "stated", "id": "x", "split": "test"}, {"text": "stated too", "id": "y", "split": "Train"}]
    path = lines(tmp_path / "a.jsonl", *records)
    made = pack_files_here([path], tmp_path / "tokens")
    cleaned = read_documents([str(path)], str(tmp_path / "documents"), Run.quiet(1)).table(0).to_pylist()
    for split in ("train", "validation"):
        expected = {row["id"]: row["text"] for row in cleaned if row["split"] == split}
        assert texts(tmp_path / "tokens", split) == expected
    assert made.counts.kept == 202
    assert "x" in texts(tmp_path / "tokens", "validation")
    assert {i for i in texts(tmp_path / "tokens", "validation") if i != "x"} == {
        row["id"] for row in cleaned if row["id"] != "x" and split_of(row["id"]) == "validation"
    } - {"y"}


def test_a_separator_makes_documents_of_a_text_file(tmp_path: Path, byte_tokenizer: ByteTokenizer) -> None:
    (tmp_path / "a.txt").write_text("one\nand a half\n\n\n\ntwo\n\nthree\n")
    made = pack_files_here([tmp_path / "a.txt"], tmp_path / "tokens", separator=r"\n\n")
    assert every_text(tmp_path / "tokens") == ["one\nand a half", "three\n", "two"]
    assert made.counts.records_in == 3
    (tmp_path / "lines.txt").write_text("a\n\nb\n")
    pack_files_here([tmp_path / "lines.txt"], tmp_path / "of lines", separator="\n")
    assert every_text(tmp_path / "of lines") == ["a", "b"]


def test_the_share_held_out_is_a_setting(tmp_path: Path, byte_tokenizer: ByteTokenizer) -> None:
    path = lines(tmp_path / "a.jsonl", *({"text": str(i)} for i in range(1000)))
    for ratio, expected in ((0.0, (0, 0)), (0.05, (25, 80)), (0.5, (430, 570))):
        pack_files_here([path], tmp_path / "tokens", validation_ratio=ratio)
        assert expected[0] <= len(texts(tmp_path / "tokens", "validation")) <= expected[1]
    with pytest.raises(ConfigError, match="validation_ratio = 1.0: expected 0 to below 1"):
        FileSettings(validation_ratio=1.0)
    with pytest.raises(ConfigError, match="separator is empty"):
        FileSettings(separator="")


def test_another_field_or_column_may_have_the_text(tmp_path: Path, byte_tokenizer: ByteTokenizer) -> None:
    path = lines(tmp_path / "a.jsonl", {"content": "one"})
    pq.write_table(pa.table({"content": ["two"]}), tmp_path / "b.parquet")
    pack_files_here([path, tmp_path / "b.parquet"], tmp_path / "tokens", text_field="content")
    assert every_text(tmp_path / "tokens") == ["one", "two"]
    with pytest.raises(InputError, match="b.parquet' has no column 'text'"):
        pack_files_here([tmp_path / "b.parquet"], tmp_path / "other")


# --- records that can't be packed -------------------------------------------------------------------------------------


def test_every_bad_record_is_counted_with_its_reason_and_place(tmp_path: Path, byte_tokenizer: Any) -> None:
    bad = {
        '{"text": "cut': "not_json",
        '{"body": "no text"}': "no_text",
        '{"text": ["a", "list"]}': "no_text",
        '{"text": null}': "no_text",
        '{"text": "x", "split": 7}': "split_not_text",
        json.dumps({"text": "x", "id": "i" * 5000}): "id_too_long",
    }
    path = lines(tmp_path / "bad.jsonl", {"text": "good"}, *bad, {"text": ""}, "", {"text": "also good"})
    (tmp_path / "latin.txt").write_bytes("naïve".encode("latin-1"))
    (tmp_path / "empty.txt").touch()
    made = pack_files_here([path, tmp_path / "latin.txt", tmp_path / "empty.txt"], tmp_path / "tokens")
    expected = {f"bad.jsonl:{i}": reason for i, reason in enumerate(bad.values(), 1)} | {"latin.txt:0": "not_utf8"}
    assert {each.id: each.reason for each in made.failures()} == expected
    assert made.counts.dropped == {"no_tokens": 2}
    assert (made.counts.records_in, made.counts.kept, made.counts.balanced) == (11, 2, True)
    assert every_text(tmp_path / "tokens") == ["also good", "good"]


@pytest.mark.parametrize("padded", [False, True])
def test_a_file_whose_opening_kills_workers_is_named_and_the_others_are_packed(
    tmp_path: Path, tokenizer_file: Path, capfd: pytest.CaptureFixture[str], padded: bool
) -> None:
    folder, out = tmp_path / "texts", tmp_path / "tokens"
    folder.mkdir()
    for name in ("a", "c"):
        lines(folder / f"{name}.jsonl", {"text": f"the text {name}"})
    (folder / "b.parquet").write_bytes(encrypted_parquet("text", padded=padded))
    reason = "killed_worker" if padded else "damaged_stream"
    for _ in range(2):
        assert webtext([*PACK, str(tokenizer_file), str(folder), "--out", str(out), "--json"]) == 1
        captured = capfd.readouterr()
        counts = json.loads(captured.out)["counts"]
        assert (counts["kept"], counts["failed"]) == (2, {reason: 1})
        assert f"b.parquet: 1 {reason}" in captured.err
    assert "terminate" not in captured.err, "the second run opens the file again"


def test_a_file_that_is_cut_short_keeps_its_records_and_the_repaired_one_is_packed_again(
    tmp_path: Path, tokenizer_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = gzip.compress("".join(f'{{"text": "number {i}"}}\n' for i in range(2_000)).encode())
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "b.jsonl.gz").write_bytes(data[: len(data) // 2])
    out = tmp_path / "tokens"
    command = [*PACK, str(tokenizer_file), *(str(tmp_path / name) for name in ("a.jsonl.gz", "b.jsonl.gz"))]
    assert webtext([*command, "--out", str(out), "--json"]) == 1
    captured = capsys.readouterr()
    counts = json.loads(captured.out)["counts"]
    assert counts["failed"] == {"truncated_stream": 1}
    assert 2_000 < counts["kept"] < 4_000
    assert "1 truncated_stream" in captured.err
    assert "download the damaged files again" in captured.err
    (tmp_path / "b.jsonl.gz").write_bytes(data)
    assert webtext([*command, "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["kept"] == 4_000


def test_an_empty_split_is_a_warning_that_says_what_to_do(
    tmp_path: Path, tokenizer_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.txt").write_text("only one document, with a few words")
    command = [*PACK, str(tokenizer_file), str(tmp_path / "one.txt"), "--out"]
    for ratio, split in (("0", "validation"), ("0.9999999", "train")):
        assert webtext([*command, str(tmp_path / ratio), "--validation-ratio", ratio]) == 0
        assert f"no document is in the {split} split, of 1" in (said := capsys.readouterr().err)
        assert "--separator" in said


def test_files_without_any_text_name_the_likely_cause(
    tmp_path: Path, tokenizer_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lines(tmp_path / "a.jsonl", {"content": "one"}, {"content": "two"})
    assert webtext([*PACK, str(tokenizer_file), str(path), "--out", str(tmp_path / "tokens")]) == 3
    error = capsys.readouterr().err
    for said in ("no field 'text' among content", "kept 0 of 2 records", "2 are 'no_text'", "--text-field"):
        assert said in error


def test_what_is_ignored_or_fails_is_named_with_its_file(
    mixed: Path, tmp_path: Path, tokenizer_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (mixed / "deep" / "er").mkdir(parents=True)
    (mixed / "deep" / "er" / "LATIN.TXT").write_bytes("naïve".encode("latin-1"))
    (mixed / "deep" / "sum.CSV").write_text("text,n\nfrom CSV,1\ncut\n")
    (mixed / "list.json").write_text('[{"text": "from an array"}, {"body": "x"}]')
    assert webtext([*PACK, str(tokenizer_file), str(mixed), "--out", str(tmp_path / "tokens"), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["counts"]["kept"] == 8
    assert "ignored: 1 image (in '" in captured.err
    assert "3 records failed" in captured.err
    for line in ("LATIN.TXT: 1 not_utf8", "sum.CSV: 1 not_csv", "list.json: 1 no_text"):
        assert f"  {line}\n" in captured.err


def test_inputs_that_do_not_fit_together_are_errors(mixed: Path, tmp_path: Path, byte_tokenizer: Any) -> None:
    from .conftest import document, write_corpus

    corpus = write_corpus(tmp_path / "corpus", [[document("a", "one")]])
    with pytest.raises(InputError, match="2 inputs, of which 1 are part sets"):
        pack_files_here([corpus, mixed], tmp_path / "tokens")
    with pytest.raises(
        ConfigError, match=r"--text-field \(\[shards.files\] text_field\) is for files, and '.*corpus' is"
    ):
        pack_files_here([corpus], tmp_path / "tokens", text_field="body")
    with pytest.raises(InputError, match="nothing' does not exist"):
        pack_files_here([tmp_path / "nothing"], tmp_path / "tokens")
    (tmp_path / "archive.zip").write_bytes(b"PK")
    with pytest.raises(InputError, match="archive.zip' is not a text file"):
        pack_files_here([tmp_path / "archive.zip"], tmp_path / "tokens")


# --- parts, workers and resuming --------------------------------------------------------------------------------------


def test_small_files_share_a_part_and_a_large_one_has_its_own(
    tmp_path: Path, byte_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "PART_BYTES", 100)
    sizes = [40, 40, 40, 300, 10, 90, 1]
    paths = [tmp_path / f"{i}.txt" for i in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_text("x" * size)
    made = pack_files_here(paths, tmp_path / "tokens")
    assert [[source.part[0] for source in part.sources] for part in made.parts] == [
        ["0", "1"], ["2"], ["3"], ["4", "5"], ["6"],
    ]  # fmt: skip
    assert made.counts.kept == 7


def test_only_parts_with_changed_files_are_packed_again(
    tmp_path: Path, byte_tokenizer: ByteTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "PART_BYTES", 1)
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"text {name}")
    paths = [tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "a.txt"]
    pack_files_here(paths, tmp_path / "tokens")
    encoded: list[str] = []
    encode = byte_tokenizer.encode_numpy
    monkeypatch.setattr(byte_tokenizer, "encode_numpy", lambda text: (encoded.append(text), encode(text))[1])
    pack_files_here(paths, tmp_path / "tokens")
    assert encoded == []
    (tmp_path / "b.txt").write_text("another text")
    pack_files_here(paths, tmp_path / "tokens")
    assert encoded == ["another text"]
    pack_files_here(paths, tmp_path / "tokens", separator="|")
    assert encoded == ["another text", "text a", "another text"]


def test_a_file_is_hashed_once_and_again_only_if_it_has_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one text")
    _, (task,) = documents.find_parts([str(path)], FileSettings(), Run.quiet())
    assert [each.text for _, each in task.payload.documents(PartContext(Attempt(), {}))] == ["one text"]
    hashed: list[str] = []
    sha256 = InputFile.sha256
    monkeypatch.setattr(InputFile, "sha256", lambda file: hashed.append(file.name) or sha256(file))
    assert list(task.payload.documents(PartContext(Attempt(), {})))
    assert hashed == []
    os.utime(path, ns=(1, 1))
    assert list(task.payload.documents(PartContext(Attempt(), {})))
    assert hashed == ["a.txt"]


def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, byte_tokenizer: ByteTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")

    def encode(text: str) -> Any:
        path.write_text("afterwards")
        return np.zeros(1, np.uint16)

    monkeypatch.setattr(byte_tokenizer, "encode_numpy", encode)
    with pytest.raises(InputError, match="a.txt' changed while it was read"):
        pack_files_here([path], tmp_path / "tokens")
    assert not (tmp_path / "tokens" / "manifest.json").exists()


def test_a_file_that_is_set_aside_moves_no_document_of_later_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        lines(tmp_path / f"{name}.jsonl", {"id": f"{name}1", "text": "one"}, {"id": f"{name}2", "text": "two"})
    _, (task,) = documents.find_parts([str(tmp_path)], FileSettings(), Run.quiet())
    for attempt in (Attempt(), Attempt(set_aside={FIRST_FILE: "signal 11"})):
        found = {each.id: position for position, each in task.payload.documents(PartContext(attempt, {}))}
        assert (found["b1"], found["b2"]) == (1 << 32, 1 << 32 | 1)


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path, byte_tokenizer: Any) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(name)
    made = pack_files_here([tmp_path / "a", tmp_path / "b"], tmp_path / "tokens")
    assert [source.part for source in made.parts[0].sources] == ["a/x.txt", "b/x.txt"]


def test_files_at_a_url_are_packed(tmp_path: Path, byte_tokenizer: ByteTokenizer) -> None:
    import fsspec

    with fsspec.open("memory://pack-files/a.jsonl", "wb") as file:
        file.write(b'{"text": "far away"}\n')
    for name in ("memory://pack-files", "memory://pack-files/a.jsonl"):
        pack_files_here([name], tmp_path / "tokens")
        assert every_text(tmp_path / "tokens") == ["far away"]


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from webtext.tokenizer import Tokenizer

    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    Tokenizer.train(["the number of words"] * 3, vocab_size=280, special_tokens=["<|endoftext|>"]).save(path)
    return path


def test_two_workers_and_an_interrupted_run_give_the_bytes_of_one(
    tmp_path: Path, tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/contract kills a run of its own."""
    monkeypatch.setattr(documents, "PART_BYTES", 1)
    for i in range(4):
        lines(tmp_path / f"{i}.jsonl", *({"text": f"number {i} of many words" if n % 3 else n} for n in range(60)))

    def pack(name: str, workers: int) -> dict[str, bytes]:
        run = Run.quiet(workers)
        with contextlib.closing(run.engine) if isinstance(run.engine, LocalEngine) else contextlib.nullcontext():
            pack_shards(str(tmp_path / "*.jsonl"), str(tokenizer_file), str(tmp_path / name), PackSettings(), run)
        return files(tmp_path / name)

    whole = pack("one", 1)
    assert pack("two", 2) == whole
    out = tmp_path / "two"
    (out / "manifest.json").unlink()
    (out / "_parts" / "00001.json").unlink()
    (out / "train-00003.tok").write_bytes(b"half")
    assert pack("two", 2) == whole
