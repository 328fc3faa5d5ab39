"""Importing records as documents: files, Hugging Face datasets, and ids that are unique in a set."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from elsewhere import only_tasks_read
from encrypted_parquet import encrypted_parquet
from set_contents import contents, rows, write_jsonl
from warc_files import article, page, site, write_pages, write_warc

from webtext.base.console import Console
from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.parts.identifiers import split_of
from webtext.base.parts.partset import PartSet
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Run
from webtext.clean.extract.body import ExtractSettings
from webtext.clean.extract.pages import extract_documents
from webtext.clean.inputs import unique
from webtext.clean.inputs.importing import DatasetOrigin, find_documents, import_documents
from webtext.clean.inputs.unique import REPEATED
from webtext.clean.pipeline import CleanSettings, clean_pages, read_documents


def dataset(folder: Path, **splits: list[dict[str, Any]]) -> Path:
    """A local dataset of one Parquet file per split, two for train."""
    (folder / "data").mkdir(parents=True)
    for split, records in splits.items():
        middle = len(records) // 2 if split == "train" else 0
        for shard, some in enumerate(filter(None, (records[:middle], records[middle:]))):
            pq.write_table(pa.Table.from_pylist(some), folder / f"data/{split}-{shard:05d}.parquet")
    return folder


TRAIN = [
    {"content": article(1), "id": "one", "url": "http://a.example/x", "date": "2017-06-01T12:00:00Z", "karma": 7},
    {"content": article(2), "id": "two", "url": None, "date": "2017-06-01T14:00:00+02:00", "karma": None},
    {"content": None, "id": "three", "url": None, "date": "", "karma": None},
    {"content": article(4), "id": None, "url": None, "date": "2017-06-01", "karma": None},
]


# --- datasets ----------------------------------------------------------------------------------------------------------


def test_files_that_cannot_be_read_are_failed_records(
    tmp_path: Path, alone: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = b"".join(b'{"text": "cut %d short"}\n' % number for number in range(10_000))
    pq.write_table(pa.table({"text": ["some words"]}), tmp_path / "whole.parquet")
    table = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(b"not Parquet")
    (tmp_path / "b.parquet").write_bytes(table[:4] + bytes(36) + table[40:])
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(lines)[:-20])
    (tmp_path / "d.jsonl.zst").write_bytes(zstandard.compress(lines)[:-20])
    found = find_documents([str(tmp_path)], alone)
    assert not isinstance(found, PartSet)
    made = import_documents(found, str(tmp_path / "documents"), Run(alone.engine, Console("human")))
    assert made.counts.failed == {"damaged_stream": 2, "truncated_stream": 2}
    assert made.counts.kept > 1
    said = capsys.readouterr().err
    assert re.search("a.parquet: 1 .*b.parquet: 1 .*c.jsonl.gz: 1 .*d.jsonl.zst: 1 ", said, re.DOTALL)


@pytest.mark.parametrize("padded", [False, True])
def test_a_file_whose_opening_kills_workers_is_a_failed_record(tmp_path: Path, alone: Run, padded: bool) -> None:
    write_jsonl(tmp_path / "good.jsonl", {"text": article(1)})
    (tmp_path / "bad.parquet").write_bytes(encrypted_parquet("text", padded=padded))
    names = [str(tmp_path / name) for name in ("bad.parquet", "good.jsonl")]
    result = clean_pages(names, str(tmp_path / "build"), CleanSettings(), alone)
    assert result.documents.counts.failed == {"killed_worker" if padded else "damaged_stream": 1}
    assert len(rows(result.corpus)) == 1


def test_a_datasets_rows_become_a_corpus_and_those_without_text_are_counted(tmp_path: Path, alone: Run) -> None:
    folder = dataset(tmp_path / "set", train=TRAIN, validation=[{"content": article(5), "id": "five"}])
    name = f"huggingface:{folder}:content"
    result = clean_pages([name], str(tmp_path / "build"), CleanSettings(), alone)
    assert result.documents.counts.to_json() == {"records_in": 5, "kept": 4, "dropped": {}, "failed": {"no_text": 1}}
    first, second, fourth, fifth = rows(result.corpus)
    assert (first["text"], first["id"], first["url"], first["karma"]) == (article(1), "one", "http://a.example/x", 7)
    assert [row["date"] for row in (first, second, fourth)] == [1496318400, 1496318400, 1496275200]
    assert len(fourth["id"]) == 32
    assert (fifth["id"], fifth["split"]) == ("five", "validation")
    assert [len(result.documents.table(part)) for part in range(3)] == [2, 1, 1]
    card = (tmp_path / "build/corpus/README.md").read_text()
    source, split = result.documents.parts[0].sources[0].part.split("@")[1].split()
    assert (f"| huggingface\\:set\\:content | {source} {split} | 3 |") in card
    assert "WARC" not in card.split("## Sources")[1].split("## Opt-outs")[0]


def test_a_dataset_that_holds_nothing_out_is_split_by_id(tmp_path: Path, alone: Run) -> None:
    records = [{"text": article(i), "id": f"id {i}"} for i in range(60)]
    held_out = dataset(tmp_path / "a", train=records[:40], test=records[40:])
    documents = read_documents([f"huggingface:{held_out}"], str(tmp_path / "one"), alone)
    assert {row["id"] for row in rows(documents) if row["split"] == "validation"} == {f"id {i}" for i in range(40, 60)}
    whole = dataset(tmp_path / "b", train=records)
    documents = read_documents([f"huggingface:{whole}"], str(tmp_path / "two"), alone)
    assert all(row["split"] == split_of(row["id"]) for row in rows(documents))


@pytest.mark.slow
def test_one_worker_and_two_import_a_dataset_equally_wherever_it_is(tmp_path: Path, run: Run, alone: Run) -> None:
    folder = dataset(tmp_path / "set", train=TRAIN * 3, test=TRAIN)
    moved = shutil.copytree(folder, tmp_path / "elsewhere" / "set")
    for name, each, place in (("one", alone, folder), ("two", run, moved)):
        clean_pages([f"huggingface:{place}:content"], str(tmp_path / name), CleanSettings(), each)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_dataset_is_read_again_only_when_its_files_change(tmp_path: Path, alone: Run) -> None:
    folder = dataset(tmp_path / "set", train=TRAIN)
    name, out = f"huggingface:{folder}:content", str(tmp_path / "build")
    clean_pages([name], out, CleanSettings(), alone)
    dry = Run(alone.engine, alone.console, dry_run=True)
    clean_pages([name], out, CleanSettings(), dry)
    pq.write_table(pa.table({"content": [article(9)]}), folder / "data/train-00001.parquet")
    with pytest.raises(DryRun):
        clean_pages([name], out, CleanSettings(), dry)


def test_a_dataset_of_json_lines_needs_no_schema(tmp_path: Path, alone: Run) -> None:
    (tmp_path / "set").mkdir()
    lines = [{"text": article(1), "title": "One"}, {"text": article(2), "title": None}]
    (tmp_path / "set/train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    documents = read_documents([f"huggingface:{tmp_path / 'set'}"], str(tmp_path / "out"), alone)
    assert [(row["text"], row["title"]) for row in rows(documents)] == [(article(1), "One"), (article(2), None)]


def test_timestamps_of_a_dataset_are_seconds(tmp_path: Path, alone: Run) -> None:
    moments = [datetime(2017, 6, 1, 12, tzinfo=UTC), datetime(2017, 6, 1, 12), None]
    for name, type_ in (("zone", pa.timestamp("ms", "UTC")), ("none", pa.timestamp("us")), ("day", pa.date32())):
        (tmp_path / name).mkdir()
        table = pa.table(
            {"text": [article(i) for i in range(3)], "date": pa.array(moments, pa.timestamp("us")).cast(type_)}
        )
        pq.write_table(table, tmp_path / name / "train.parquet")
        documents = read_documents([f"huggingface:{tmp_path / name}"], str(tmp_path / f"out {name}"), alone)
        expected = 1496275200 if name == "day" else 1496318400
        assert [row["date"] for row in rows(documents)] == [expected, expected, None]


def test_a_dataset_without_the_column_or_with_a_damaged_file_is_named(tmp_path: Path, alone: Run) -> None:
    folder = dataset(tmp_path / "set", train=TRAIN)
    with pytest.raises(InputError, match="has no column 'text': its columns are content"):
        read_documents([f"huggingface:{folder}"], str(tmp_path / "out"), alone)
    with pytest.raises(ConfigError, match=r"write huggingface:NAME\[\[:CONFIG\]:COLUMN\]\[@REVISION\]"):
        read_documents(["huggingface:"], str(tmp_path / "out"), alone)
    path = folder / "data/train-00001.parquet"
    data = bytearray(path.read_bytes())
    data[4:40] = bytes(36)
    path.write_bytes(data)
    with pytest.raises(InputError, match="shard 1 of 'huggingface:set:content@.*cannot be read"):
        read_documents([f"huggingface:{folder}:content"], str(tmp_path / "out"), alone)


def test_a_reference_may_name_the_column_alone() -> None:
    with pytest.raises(InputError, match="'/nowhere/at/all' cannot be opened"):
        DatasetOrigin.all_of("huggingface:/nowhere/at/all:text")


# --- splits and karma -----------------------------------------------------------------------------------------------------


def imported(tmp_path: Path, run: Run, records: list[dict[str, Any]]) -> PartSet:
    """Import these records as JSON lines; they are numbered, and each has a different text."""
    lines = [{"id": f"{i}", "text": article(i)} | record for i, record in enumerate(records)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return read_documents([str(tmp_path / "a.jsonl")], str(tmp_path / "out"), run)


def failures(documents: PartSet) -> dict[str, str]:
    return {failure.id: failure.reason for failure in documents.failures()}


def test_every_split_but_train_is_held_out(tmp_path: Path, run: Run) -> None:
    held_out = ["test", "TEST", " test ", "validation", "valid", "dev", "eval", "test_sft", "unsupervised", "training?"]
    documents = imported(tmp_path, run, [{"split": name} for name in [*held_out * 3, "train", "Train", " TRAIN\n"]])
    assert [row["split"] for row in rows(documents)] == ["validation"] * 30 + ["train"] * 3


def test_an_empty_url_is_none(tmp_path: Path, run: Run) -> None:
    assert [row["url"] for row in rows(imported(tmp_path, run, [{"url": ""}, {"url": "x"}]))] == [None, "x"]


def test_a_record_without_a_split_is_split_by_its_id(tmp_path: Path, run: Run) -> None:
    documents = imported(tmp_path, run, [{"split": split} for split in ("", "  ", None)] * 20 + [{}] * 20)
    assert [row["split"] for row in rows(documents)] == [split_of(str(i)) for i in range(80)]


def test_a_split_that_is_not_text_is_a_counted_failure(tmp_path: Path, run: Run) -> None:
    bad = [1, 0, 1.5, True, False, ["test"], {}, float("nan")]
    documents = imported(tmp_path, run, [{"split": split} for split in bad] + [{"split": "train"}])
    assert failures(documents) == {f"row {i}": "split_not_text" for i in range(len(bad))}
    assert (documents.counts.records_in, documents.records) == (9, 1)


def test_whole_floats_are_karma_and_anything_else_is_a_counted_failure(tmp_path: Path, run: Run) -> None:
    good = [5, 5.0, -3.0, 0.0, 2.0**62, -(2.0**63), None]
    bad = [1.5, "abc", "5", float("nan"), float("inf"), 1e300, 2.0**63, 2**63, True, False, [5], {}]
    documents = imported(tmp_path, run, [{"karma": karma} for karma in [*good, *bad]])
    assert [row["karma"] for row in rows(documents)] == [5, 5, -3, 0, 2**62, -(2**63), None]
    assert failures(documents) == {f"row {i}": "karma_not_integer" for i in range(len(good), len(good) + len(bad))}
    assert "karma is 1.5" in {failure.cause for failure in documents.failures(0)}


def test_a_data_frame_s_floats_in_parquet_are_integers(tmp_path: Path, run: Run) -> None:
    table = pa.table(
        {
            "text": [article(1), article(2), article(3)],
            "karma": [7.0, None, 2.5],
            "date": [1496318400.0, None, 0.0],
            "id": [0.0, 12.0, 13.0],
            "split": pa.array(["test", "train", "test"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    documents = read_documents([str(tmp_path / "a.parquet")], str(tmp_path / "out"), run)
    found = [tuple(row[name] for name in ("id", "karma", "date", "split")) for row in rows(documents)]
    assert found == [("0", 7, 1496318400, "validation"), ("12", None, None, "train")]
    assert failures(documents) == {"row 2": "karma_not_integer"}


def test_the_splits_of_a_dataset_and_of_its_rows_are_held_out(tmp_path: Path, alone: Run) -> None:
    def records(first: int, *splits: str | None) -> list[dict[str, Any]]:
        return [{"text": article(i), "id": f"{i}", "split": split} for i, split in enumerate(splits, first)]

    three = {"train": records(0, None, "test", "train", ""), "dev": records(10, "train"), "extra": records(20, None)}
    (tmp_path / "set/data").mkdir(parents=True)
    for split, some in three.items():
        pq.write_table(pa.Table.from_pylist(some, pa.schema(dict.fromkeys(("text", "id", "split"), pa.string()))),
                       tmp_path / f"set/data/{split}-00000.parquet")  # fmt: skip
    (tmp_path / "set/README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        + "".join(f"  - split: {split}\n    path: data/{split}-*\n" for split in three)
        + "---\n"
    )
    documents = read_documents([f"huggingface:{tmp_path / 'set'}"], str(tmp_path / "out"), alone)
    expected = {"0": "train", "1": "validation", "2": "train", "3": "train", "10": "validation", "20": "validation"}
    assert {row["id"]: row["split"] for row in rows(documents)} == expected


# --- rows that cannot be read ---------------------------------------------------------------------------------------------


def bad_strings(values: list[bytes]) -> pa.Array:
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def latin_rows(folder: Path, column: str, n_rows: int = 1500) -> Path:
    """Write a Parquet file with texts and ids; row 700 is Latin-1 in one column."""
    values = [b"%d" % i if i != 700 else b"caf\xe9" for i in range(n_rows)]
    columns = {"text": [f"text {i}" for i in range(n_rows)], "id": list(map(str, range(n_rows)))}
    table = pa.table(columns | {column: bad_strings(values)})
    folder.mkdir()
    pq.write_table(table, folder / "train.parquet", row_group_size=400)
    return folder


@pytest.mark.parametrize("column", ["text", "url", "id", "split", "title"])
def test_a_row_that_is_not_utf8_fails_alone(column: str, tmp_path: Path, run: Run) -> None:
    path = latin_rows(tmp_path / "in", column) / "train.parquet"
    documents = read_documents([str(path)], str(tmp_path / "out"), run)
    assert failures(documents) == {"row 700": "not_utf8"}
    assert (documents.counts.records_in, documents.records) == (1500, 1499)


def test_a_row_of_a_dataset_that_is_not_utf8_fails_alone(tmp_path: Path, alone: Run) -> None:
    folder = latin_rows(tmp_path / "in", "text")
    documents = read_documents([f"huggingface:{folder}"], str(tmp_path / "out"), alone)
    assert failures(documents) == {"row 700": "not_utf8"}
    assert documents.records == 1499


def test_a_nested_string_that_is_not_utf8_fails_alone(tmp_path: Path, run: Run) -> None:
    titles = pa.ListArray.from_arrays([0, 1, 2], bad_strings([b"caf\xe9", b"good"]))
    pq.write_table(pa.table({"text": [article(1), article(2)], "title": titles}), tmp_path / "a.parquet")
    documents = read_documents([str(tmp_path / "a.parquet")], str(tmp_path / "out"), run)
    assert (failures(documents), [row["text"] for row in rows(documents)]) == ({"row 0": "not_utf8"}, [article(2)])


def test_lines_that_are_not_utf8_fail_alone(tmp_path: Path, run: Run) -> None:
    lines = [
        b'{"text": "caf\xe9"}',
        json.dumps({"text": article(1)}).encode(),
        b'{"text": "a surrogate \xed\xa0\x80"}',
        json.dumps({"text": article(2)}).encode("utf-16-le").replace(b"\n", b""),
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps({"text": article(3)}).encode() + b"\n")
    (tmp_path / "b.jsonl").write_bytes(b"\n".join(lines))
    documents = read_documents([str(tmp_path / "*.jsonl")], str(tmp_path / "out"), run)
    assert [row["text"] for row in rows(documents)] == [article(3), article(1)]
    assert failures(documents) == {"row 0": "not_utf8", "row 2": "not_utf8", "row 3": "not_json"}


def test_a_date_that_python_cannot_hold_fails_alone(tmp_path: Path, run: Run) -> None:
    dates = pa.array([2**62, 0], pa.timestamp("us"))
    pq.write_table(pa.table({"text": [article(1), article(2)], "date": dates}), tmp_path / "a.parquet")
    documents = read_documents([str(tmp_path / "a.parquet")], str(tmp_path / "out"), run)
    assert (failures(documents), documents.records) == ({"row 0": "value_out_of_range"}, 1)


def test_a_small_file_of_gigabytes_is_one_failure_and_the_other_files_are_read(tmp_path: Path, run: Run) -> None:
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["word " * 200_000]))
    pq.write_table(pa.table({"text": long}), tmp_path / "a.parquet", dictionary_pagesize_limit=1 << 30)
    pq.write_table(pa.table({"text": [article(1)]}), tmp_path / "b.parquet")
    documents = read_documents([str(tmp_path / "*.parquet")], str(tmp_path / "out"), run)
    assert documents.counts.to_json()["failed"] == {"expands_too_much": 1}
    assert [row["text"] for row in rows(documents)] == [article(1)]


def test_a_dataset_with_a_small_file_of_gigabytes_is_rejected_with_its_name(tmp_path: Path, alone: Run) -> None:
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["word " * 200_000]))
    (tmp_path / "set").mkdir()
    pq.write_table(pa.table({"text": long}), tmp_path / "set/train.parquet", dictionary_pagesize_limit=1 << 30)
    with pytest.raises(
        InputError, match="train.parquet' decodes to too many bytes: its rows take more than 16,777,216"
    ):
        read_documents([f"huggingface:{tmp_path / 'set'}"], str(tmp_path / "out"), alone)


# --- what clean run takes ------------------------------------------------------------------------------------------------


def test_clean_run_takes_files_of_documents_and_a_documents_set(tmp_path: Path, clean: Callable[..., str]) -> None:
    lines = [{"text": article(i) + f" Write to somebody{i}@example.org today."} for i in range(3)]
    too_long = {"text": "a@b.co " * 1_400_000}  # but only once it is scrubbed
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, [*lines, too_long])))

    def answer(*arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(clean("run", *arguments, "--json", "--workers", "1"))
        return found

    of_file = answer(str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "one"), "--set", "clean.extract.scrub=true")
    assert (of_file["rows"]["kept"], of_file["rows"]["dropped"], of_file["documents"]) == (3, {"too_many_bytes": 1}, 3)
    documents = PartSet.open(str(tmp_path / "one/documents"), "documents")
    assert [row["n_scrubbed"] for row in rows(documents)] == [1, 1, 1]
    of_set = answer(str(tmp_path / "one/documents"), "--out", str(tmp_path / "two"))
    assert of_set["documents"] == 3
    assert not (tmp_path / "two/documents").exists()
    assert contents(tmp_path / "two/corpus") == contents(tmp_path / "one/corpus")


def test_clean_run_takes_a_tree_of_texts_json_and_csv(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    for i in range(3):
        (folder / f"{i}.TXT").write_text(article(i))
    (folder / "deep" / "latin.txt").write_bytes(article(3).encode() + b"\xe9")
    (folder / "deep" / "notes.md").write_text(f"# A title\n\n{article(4)}")
    (folder / "empty.txt").touch()
    (folder / "list.json").write_text(json.dumps([{"text": article(5), "id": 5}, {"body": ""}]))
    (folder / "table.csv").write_text(f'id,text\nsix,"{article(6)}"\n')
    (folder / "photo.jpg").write_bytes(b"x")
    result = clean_pages([str(folder)], str(tmp_path / "out"), CleanSettings(), run)
    counts = result.documents.counts.to_json()
    assert (counts["kept"], counts["dropped"]) == (6, {"empty_text": 1})
    assert counts["failed"] == {"no_text": 1, "not_utf8": 1}
    assert {failure.id for failure in result.documents.failures()} == {"deep/latin.txt", "row 1"}
    assert {"5", "six"} < {row["id"] for row in rows(result.documents)}
    said = capsys.readouterr().err
    assert said.count("ignored: 1 image") == 1
    assert "  deep/latin.txt: 1 not_utf8\n" in said
    assert "  list.json: 1 no_text\n" in said


def test_notes_beside_warc_files_are_ignored_and_counted(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    write_warc(tmp_path / "in" / "a.WARC.GZ", [("http://a.example/", page(article(1)))])
    for name in ("README.md", "sizes.csv"):
        (tmp_path / "in" / name).write_text("text\nnotes")
    assert clean_pages([str(tmp_path / "in")], str(tmp_path / "out"), CleanSettings(), run).documents.records == 1
    assert "ignored: 1 .md, 1 .csv" in capsys.readouterr().err


def test_what_clean_run_cannot_do_is_rejected(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": article(1)}))
    write_warc(tmp_path / "a.warc.gz", [("http://a.example/", page(article(1)))])
    both = [str(tmp_path / "a.jsonl"), str(tmp_path / "a.warc.gz")]
    with pytest.raises(InputError, match="pages and documents are given together"):
        clean_pages(both, str(tmp_path / "out"), CleanSettings(), run)
    documents = read_documents(both[:1], str(tmp_path / "imported"), run).folder.url
    with pytest.raises(ConfigError, match="is a part set: scrub cannot change it"):
        clean_pages([documents], str(tmp_path / "out"), CleanSettings(extract=ExtractSettings(scrub=True)), run)
    with pytest.raises(InputError, match="2 inputs, of which 1 are part sets"):
        clean_pages([documents, both[0]], str(tmp_path / "out"), CleanSettings(), run)


# --- ids that are unique --------------------------------------------------------------------------------------------------


def captures(folder: Path, *files: list[int]) -> list[str]:
    """WARC files of these articles; the capture of an article is the same in every file."""
    folder.mkdir()
    names = [str(folder / f"{name}.warc.gz") for name in "abcdefgh"[: len(files)]]
    for name, articles in zip(names, files, strict=True):
        write_warc(Path(name), [(f"http://{i}.example/", page(article(i))) for i in articles])
    return names


def test_a_capture_in_two_files_becomes_one_document(tmp_path: Path, run: Run) -> None:
    names = captures(tmp_path / "warc", [1, 2], [2, 3, 1], [3, 3, 4])
    documents = extract_documents(names, str(tmp_path / "out"), ExtractSettings(), run)
    assert [row["url"] for row in rows(documents)] == [f"http://{i}.example/" for i in (1, 2, 3, 4)]
    assert (documents.counts.records_in, documents.counts.kept) == (8, 4)
    assert documents.counts.dropped == {"repeated_record": 4}
    cut = captures(tmp_path / "cut otherwise", [1], [2, 2], [3, 1, 3, 3], [4])
    again = extract_documents(cut, str(tmp_path / "again"), ExtractSettings(), run)
    assert [row["id"] for row in rows(again)] == [row["id"] for row in rows(documents)]


def test_files_are_hashed_read_and_compared_elsewhere_and_the_driver_reads_none(
    tmp_path: Path, run: Run, elsewhere: Run
) -> None:
    """WARC files with captures in common, and files of records; two files have the same name."""
    archives = captures(tmp_path / "warc", [1, 2], [2, 3])
    records = [tmp_path / "records" / folder / "r.jsonl" for folder in "xy"]
    for number, path in enumerate(records):
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"id": "7", "text": article(1)}) + "\n" + json.dumps({"text": article(number)}))
    for name, inputs in {"pages": archives, "records": [*map(str, records)]}.items():
        there, here = tmp_path / f"{name}-there", tmp_path / f"{name}-here"
        read = (lambda i, o, r: extract_documents(i, o, ExtractSettings(), r)) if name == "pages" else read_documents
        with only_tasks_read():
            read(inputs, str(there), elsewhere)
        read(inputs, str(here), run)
        assert contents(there) == contents(here)


def test_many_repeated_ids_travel_in_a_file_and_not_in_messages(tmp_path: Path, elsewhere: Run) -> None:
    for name in "ab":
        write_jsonl(tmp_path / f"{name}.jsonl", *({"id": f"id {number}", "text": "a b"} for number in range(2000)))
    elsewhere.engine.max_message_bytes = 8 << 10  # type: ignore[attr-defined]
    documents = read_documents([str(tmp_path / "*.jsonl")], str(tmp_path / "out"), elsewhere)
    assert [part.counts.failed for part in documents.parts] == [{}, {"repeated_id": 2000}]


def test_a_moved_archive_gives_equal_parts_of_documents(tmp_path: Path, run: Run) -> None:
    """They name the file, not the folder that it was read from."""
    (name,) = captures(tmp_path / "warc", [1])
    made = extract_documents([name], str(tmp_path / "one"), ExtractSettings(), run).parts
    (tmp_path / "elsewhere" / "deeper").mkdir(parents=True)
    moved = shutil.move(name, tmp_path / "elsewhere" / "deeper" / "a.warc.gz")
    assert extract_documents([str(moved)], str(tmp_path / "two"), ExtractSettings(), run).parts == made


@pytest.mark.parametrize("per_range", [1, 100])
def test_repeated_ids_are_those_of_a_loop_in_memory_though_only_tasks_read_ids(
    tmp_path: Path, elsewhere: Run, monkeypatch: pytest.MonkeyPatch, per_range: int
) -> None:
    """Five parts with many ids in common, of which part 3 is empty; ids of any form."""
    monkeypatch.setattr(unique, "IDS_PER_RANGE", per_range)
    chance = random.Random(3)
    parts = [chance.sample([*map(str, range(40)), "", "é 🙂"], n) for n in (20, 15, 30, 0, 25)]
    writer = SetWriter(str(tmp_path / "documents"), "documents", Recipe(stage="test", code_version=1, settings={}))
    made = []
    for index, ids in enumerate(parts):
        with writer.part(2 * index, key=str(index)) as part:
            row = {"link_ids": [], "posts": [], "text": "", "text_digest": "", "split": "train"}
            part.write([{"id": each} | row for each in ids])
            made.append(part.publish())
    documents = writer.seal(made)
    seen: set[str] = set()
    expected: dict[int, tuple[str, ...]] = {}
    for index, ids in enumerate(parts):
        if found := tuple(each for each in ids if each in seen):
            expected[2 * index] = found
        seen.update(ids)
    with only_tasks_read():
        assert unique.repeated_ids(documents, elsewhere) == expected
    assert len(expected) == 3


def test_a_first_run_in_which_parts_repeat_others_is_not_said_to_resume(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    names = captures(tmp_path / "warc", [1, 2], [2, 3])
    extract_documents(names, str(tmp_path / "out"), ExtractSettings(), Run(run.engine, Console()))
    told = capsys.readouterr().err
    assert "clean.extract: 1 of 2 parts are kept" in told
    assert "resuming" not in told


def test_a_second_run_knows_what_is_repeated_and_reads_a_changed_file_again(tmp_path: Path, run: Run) -> None:
    names, out = captures(tmp_path / "warc", [1, 2], [2, 3]), tmp_path / "out"
    extract_documents(names, str(out), ExtractSettings(), run)
    times = {p: p.stat().st_mtime_ns for p in out.rglob("*")}
    extract_documents(names, str(out), ExtractSettings(), Run(run.engine, run.console, dry_run=True))
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*")} == times
    (out / REPEATED).write_text("{")
    extract_documents(names, str(out), ExtractSettings(), run)
    write_warc(Path(names[0]), [("http://1.example/", page(article(1)))])
    documents = extract_documents(names, str(out), ExtractSettings(), run)
    assert [row["url"] for row in rows(documents)] == [f"http://{i}.example/" for i in (1, 2, 3)]


def test_a_page_of_two_crawls_is_kept_once_with_one_worker_and_with_two(tmp_path: Path, run: Run, alone: Run) -> None:
    body = site("a", article(1))
    ours = [write_pages(tmp_path / name, [[body], [body]]).folder.url for name in ("mine", "yours")]
    for name, each in (("one", alone), ("two", run)):
        result = clean_pages(ours, str(tmp_path / name), CleanSettings(), each)
        assert (result.corpus.records, result.documents.counts.dropped) == (1, {"repeated_record": 3})
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_an_id_in_two_files_of_records_fails_in_the_second(tmp_path: Path, run: Run) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": 7, "text": article(1)}))
    documents = read_documents([str(tmp_path / "*.jsonl")], str(tmp_path / "out"), run)
    assert documents.counts.to_json() == {"records_in": 2, "kept": 1, "dropped": {}, "failed": {"repeated_id": 1}}
    assert next(documents.failures(1)).cause == "7"
