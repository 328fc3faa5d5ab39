"""Input files: which are found, the records of each kind of file, and the reasons of those that can't be read."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import InputError
from webtext.base.inputs import records as readers
from webtext.base.inputs.files import DOCUMENT_SUFFIXES, DOCUMENTS, BrokenFile, InputFile, Refused, find_inputs
from webtext.base.inputs.records import records
from webtext.base.storage import Folder

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
ROWS = [{"id": "a", "text": "one"}, {"id": "b", "text": "naïve 東京"}]


def read(path: Path, *, text: str = "text", separator: str | None = None) -> list[Any]:
    """Return the records, and the reason in place of each that can't be read, and of the rest of a broken file."""
    found: list[Any] = []
    try:
        for each in records(InputFile(Folder(path.parent), path.name), ("id", text), text, separator):
            found.append(each.reason if isinstance(each, Refused) else each)
    except BrokenFile as error:
        found.append(error.reason if f"{path.name}' cannot be read: " in str(error) else str(error))
    return found


def names(*given: Path) -> list[str]:
    return [file.name for file in find_inputs(map(str, given), DOCUMENTS, DOCUMENT_SUFFIXES)[1]]


# --- each kind of file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", PACK)
def test_json_lines_and_text_are_read_with_any_compression(tmp_path: Path, suffix: str) -> None:
    lines = tmp_path / f"rows.jsonl{suffix}"
    lines.write_bytes(PACK[suffix]("".join(f"{json.dumps(row)}\n \n" for row in ROWS).encode()))
    assert read(lines) == ROWS
    text = tmp_path / f"text.txt{suffix}"
    text.write_bytes(PACK[suffix]("\ufeffa text\nof two lines\n".encode()))
    assert read(text) == [{"text": "a text\nof two lines\n"}]


@pytest.mark.parametrize(
    "type_",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_parquet_has_a_record_per_row_and_only_the_columns_asked_for(tmp_path: Path, type_: pa.DataType) -> None:
    texts = pa.array([*(row["text"] for row in ROWS), None]).cast(type_)
    pq.write_table(pa.table({"body": texts, "id": ["a", "b", "c"], "n": [1, 2, 3]}), tmp_path / "rows.parquet")
    expected = [{"id": row["id"], "body": row["text"]} for row in ROWS]
    assert read(tmp_path / "rows.parquet", text="body") == [*expected, "no_text"]
    with pytest.raises(InputError, match=r"rows.parquet' has no column 'text'\nits columns: body, id, n"):
        read(tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"the column 'n' of '.*rows.parquet' is of int64\nexpected strings"):
        read(tmp_path / "rows.parquet", text="n")


def test_a_separator_divides_a_text_file_and_blank_texts_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "stories.txt"
    path.write_text("one\n<|endoftext|>\n<|endoftext|>two<|endoftext|>")
    assert read(path, separator="<|endoftext|>") == [{"text": "one\n"}, {"text": "two"}]


def test_a_byte_order_mark_is_left_out_only_at_the_start_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "stories.txt"
    path.write_text("\ufeffone||\ufefftwo||||\ufeff three")
    assert read(path, separator="||") == [{"text": "one"}, {"text": "\ufefftwo"}, {"text": "\ufeff three"}]


@given(st.text("ab|", max_size=40), st.sampled_from(["|", "||", "a|", "ab"]), st.integers(1, 9))
def test_texts_are_divided_in_the_same_places_whatever_the_size_of_blocks(
    text: str, separator: str, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "BLOCK_BYTES", block)
        found = list(readers._texts(io.BytesIO(text.encode()), separator))
    assert found == [each for each in text.split(separator) if each]


# --- records and files that can't be read -----------------------------------------------------------------------------


def test_a_line_that_is_not_a_record_has_a_reason_and_the_next_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_LINE_BYTES", 1000)
    bad = {
        b"{no json": "not_json",
        b"[1, 2]": "not_json",
        b'{"text": ' + b"[" * 900: "not_json",
        b'{"text": "\xff"}': "not_utf8",
        '{"text": "x"}'.encode("utf-16-le"): "not_json",
        b'{"body": "x"}': "no_text",
        b'{"text": 7}': "no_text",
        b'{"text": "' + b"y" * 5000 + b'"}': "line_too_long",
        b'{"text": "' + b"y" * 988 + b'"}': "",  # of exactly the limit, with its line end
    }
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(line + b'\n{"text": "good"}\n' for line in bad))
    found = read(path)
    assert found[1::2] == [{"text": "good"}] * len(bad)
    assert found[:-2:2] == list(bad.values())[:-1]


def test_a_text_that_is_too_long_or_not_utf8_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_TEXT_BYTES", 50)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 16)
    path = tmp_path / "texts.txt"
    path.write_bytes(b"one||" + b"x" * 200 + b"||two||\xff||three")
    expected = [{"text": "one"}, "text_too_long", {"text": "two"}, "not_utf8", {"text": "three"}]
    assert read(path, separator="||") == expected
    assert read(path) == ["text_too_long"]


@pytest.mark.parametrize("suffix", list(PACK)[1:])
def test_a_file_that_is_cut_short_gives_its_records_and_then_a_reason(tmp_path: Path, suffix: str) -> None:
    data = PACK[suffix](b"".join(b'{"text": "%d"}\n' % i for i in range(30_000)))
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(data[: len(data) * 3 // 4])
    *before, last = read(path)
    assert [row["text"] for row in before] == [str(i) for i in range(len(before))]
    assert last == "truncated_stream"


def test_a_damaged_or_explosive_parquet_file_has_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"not Parquet")
    assert read(path) == ["damaged_stream"]
    pq.write_table(pa.table({"text": ["some words"]}), path)
    data = bytearray(path.read_bytes())
    data[4:40] = bytes(36)
    path.write_bytes(data)
    assert read(path) == ["damaged_stream"]
    large = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * 100_000]))
    pq.write_table(pa.table({"text": large}), path, compression="zstd")
    assert read(path) == ["expands_too_much"]


# --- finding them -----------------------------------------------------------------------------------------------------


def test_a_folder_a_pattern_and_a_file_name_files_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a.jsonl.gz", "c.ndjson.zst", "d.parquet", "e.csv", ".hidden.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert names(tmp_path) == ["a.jsonl.gz", "b.txt", "c.ndjson.zst", "d.parquet"]
    assert names(tmp_path / "*.txt", tmp_path / "e.csv") == [".hidden.txt", "b.txt", "e.csv"]


def test_a_name_without_files_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "folder").mkdir()
    for name, message in {
        "missing.txt": "missing.txt' does not exist",
        "*.jsonl": "no file matches",
        "folder": r"folder' is not a part set of corpus or documents and contains no .parquet, .jsonl, .ndjson, .txt",
        "empty.txt": "empty.txt' is empty",
    }.items():
        with pytest.raises(InputError, match=message):
            names(tmp_path / name)
    (tmp_path / "folder" / "na\udcefve.txt").write_text("x")
    with pytest.raises(InputError, match=r"na\\udcefve.txt' is not valid UTF-8"):
        names(tmp_path / "folder")
    with pytest.raises(InputError, match="pages.warc.gz' is not a text file"):
        assert InputFile(Folder(tmp_path), "pages.warc.gz").kind
