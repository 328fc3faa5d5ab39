"""Input files: which are found, the records of each kind of file, and the reasons of those that can't be read."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from encrypted_parquet import encrypted_parquet
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError, InputError
from webtext.base.inputs import encodings
from webtext.base.inputs import records as readers
from webtext.base.inputs.files import (
    DOCUMENT_SUFFIXES,
    DOCUMENTS,
    BrokenFile,
    InputFile,
    Refused,
    files_of,
    find_inputs,
)
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


def read(path: Path, *more: str, text: str = "text", separator: str | None = None) -> list[Any]:
    """Return the records, and the reason in place of each that can't be read, and of the rest of a broken file."""
    found: list[Any] = []
    try:
        for each in records(InputFile(Folder(path.parent), path.name), ("id", text, *more), text, separator):
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
    with pytest.raises(InputError, match=r"quet' has no column 'text'\nits columns: body, id, n\n.*--text-field"):
        read(tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"the column 'n' of '.*rows.parquet' is of int64\nexpected strings"):
        read(tmp_path / "rows.parquet", text="n")


def test_a_separator_divides_a_text_file_and_blank_texts_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "stories.txt"
    path.write_text("one\n<|endoftext|>\n<|endoftext|>two<|endoftext|>")
    assert read(path, separator="<|endoftext|>") == [{"text": "one\n"}, {"text": "two"}]


def test_an_invalid_byte_costs_one_text_also_if_a_block_before_it_ends_within_a_character(tmp_path: Path) -> None:
    """Blocks of 65,536 bytes are decoded at once; the first ends in the middle of an é."""
    path = tmp_path / "texts.txt"
    path.write_bytes(b"a" + "é".encode() * 40_000 + b"||bad \xff||" + "été".encode())
    assert read(path, separator="||") == [{"text": "a" + "é" * 40_000}, "not_utf8", {"text": "été"}]


def test_a_byte_order_mark_is_left_out_only_at_the_start_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "stories.txt"
    path.write_text("\ufeffone||\ufefftwo||||\ufeff three")
    assert read(path, separator="||") == [{"text": "one"}, {"text": "\ufefftwo"}, {"text": "\ufeff three"}]


@given(st.text("ab|", max_size=40), st.sampled_from(["|", "||", "a|", "ab"]), st.integers(1, 9))
def test_texts_are_divided_in_the_same_places_whatever_the_block_size(text: str, separator: str, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "BLOCK_BYTES", block)
        found = list(readers._texts(io.BytesIO(text.encode()), separator))
    assert found == [each for each in text.split(separator) if each]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    "form",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2, ensure_ascii=False),
        "\n".join(map(json.dumps, ROWS)),
        "\ufeff \n" + "\n".join(json.dumps(row, indent=1) for row in ROWS),
        "\n".join(json.dumps([row]) for row in ROWS),
    ],
    ids=["array", "indented array", "lines", "indented objects", "arrays"],
)
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_json_is_lines_or_an_array_and_is_read_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, suffix: str, block: int
) -> None:
    monkeypatch.setattr(readers, "BLOCK_BYTES", block)
    path = tmp_path / f"rows.json{suffix}"
    path.write_bytes(PACK[suffix](form.encode()))
    assert read(path) == ROWS


def test_bad_elements_of_an_array_are_counted_and_damage_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.JSON"
    path.write_bytes(b'[{"text": "a"}, 7, {"body": 1}, {"text": "\xff"}, {"text": "b"}, {"text": oops}, {"text": "c"}]')
    assert read(path) == [{"text": "a"}, "not_json", "no_text", "not_utf8", {"text": "b"}, "not_json"]
    for end in ("", ", ", "] and more"):
        path.write_text('[{"text": "a"}' + end)
        assert read(path) == [{"text": "a"}, "not_json"]
    path.write_text('{"text": "cut\n{"text": "good"}\n{"text": "better"}\n')
    assert read(path) == ["not_json", {"text": "good"}, {"text": "better"}]


@pytest.mark.parametrize("suffix", PACK)
def test_csv_has_a_record_per_row_and_values_may_have_quotes_and_lines(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows.csv{suffix}"
    table = '\ufeffid,text,karma,split\r\n007,"one, ""quoted""\nline",5,\n\nb,naïve 東京,,test\nc,,-1.0,\nd,x\n'
    path.write_bytes(PACK[suffix](table.encode() + b"e,\xff,,\nf,last,%s,\n" % (b"9" * 5000)))
    assert read(path, "karma") == [
        {"id": "007", "text": 'one, "quoted"\nline', "karma": 5},
        {"id": "b", "text": "naïve 東京"},
        {"id": "c", "text": "", "karma": -1},
        "not_csv",
        "not_utf8",
        {"id": "f", "text": "last", "karma": "9" * 5000},
    ]
    path.write_bytes(PACK[suffix](b"\n\ntext\nafter blank lines\n"))
    assert read(path) == [{"text": "after blank lines"}]
    path.write_bytes(PACK[suffix](b"title;body\n1;2\n"))
    with pytest.raises(InputError, match="has no column 'text'\nits columns: title;body"):
        read(path)


def test_two_columns_of_one_name_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,id,text\na,1,b\n")
    pq.write_table(pa.table([["a"], ["1"], ["b"]], ["text", "id", "text"]), tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        with pytest.raises(InputError, match=f"{name}' has 2 columns 'text'\nits columns: text, id, text"):
            read(tmp_path / name)


GREETING = "Voilà l'été, à côté de la forêt où l'on a passé des années."
SENTENCES = {
    "windows-1252": f"{GREETING} Déjà vu.",
    "latin-1": "Die Größe der Tür überrascht die Mädchen, die schön grüßen.",
    "windows-1251": "Привет, мир! Это простой русский текст о жизни и смерти.",
    "windows-1254": "Bu, yaşam hakkında basit bir Türkçe cümledir ve şöyle başlar.",
    "windows-1255": "זהו משפט פשוט בעברית על החיים",
    "cp874": "นี่คือประโยคภาษาไทยง่ายๆ เกี่ยวกับชีวิต",
    "shift_jis": "これは日本語の文章です。今日はいい天気ですね。",
    **dict.fromkeys(("utf-16", "utf-16-le"), "Seven plain words of English, nothing else."),
    "utf-16-be": "Ātri: U+0100 ends in a byte 0, as other letters begin.",
    "utf-8": f"{GREETING} 東京",
}


@pytest.mark.parametrize(("encoding", "sentence"), SENTENCES.items())
def test_an_encoding_is_named_or_detected(tmp_path: Path, encoding: str, sentence: str) -> None:
    forms = {
        "a.txt": sentence,
        "b.csv.gz": f'text\n"{sentence}"\n',
        "c.jsonl": json.dumps({"text": sentence}, ensure_ascii=False),
        "long.txt": "plain " * 30_000 + sentence,
    }
    for name, text in forms.items():
        (tmp_path / name).write_bytes(PACK[".gz" if name.endswith(".gz") else ""](text.encode(encoding)))
        file, *_ = files_of(str(tmp_path / name), "texts", DOCUMENT_SUFFIXES, encoding)
        for each in (file, replace(file, encoding="auto")):
            assert list(records(each, ("text",), "text")) == [{"text": text if name.endswith("txt") else sentence}]


def test_what_is_not_text_in_its_encoding_is_refused(tmp_path: Path) -> None:
    for name, data in {
        "latin.txt": "naïve".encode("latin-1"),
        "image.txt": b"\x89PNG\r\n\x1a\n" + bytes(20),
        "utf-16.txt": "two words".encode("utf-16"),
        "unmarked.txt": "two words".encode("utf-16-le"),
        "cut.txt": "東京".encode()[:-1],
    }.items():
        (tmp_path / name).write_bytes(data)
        assert read(tmp_path / name) == ["not_utf8"]
    (file,) = files_of(str(tmp_path / "latin.txt"), "texts", (), "shift_jis")
    assert [each.reason for each in records(file, ("text",), "text") if isinstance(each, Refused)] == ["not_utf8"]
    for unknown in ("utf-9", "base64", "", "a\0b"):
        with pytest.raises(ConfigError, match="unknown encoding"):
            files_of(str(tmp_path / "latin.txt"), "texts", (), unknown)


@pytest.mark.parametrize("block", [1, 2, 3, 1 << 16])
def test_line_ends_of_texts_are_line_feeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(encodings, "_BLOCK_BYTES", block)
    path = tmp_path / "dos.txt"
    path.write_bytes("\ufeffone\r\n\r\ntwo\r\r\nthree\rfour\r".encode())
    assert read(path) == [{"text": "one\n\ntwo\r\nthree\rfour\r"}]
    assert read(path, separator="\n\n") == [{"text": "one"}, {"text": "two\r\nthree\rfour\r"}]
    (tmp_path / "dos.jsonl").write_bytes(b'{"text": "a\\r\\nb"}\r\n')
    assert read(tmp_path / "dos.jsonl") == [{"text": "a\nb"}]


# --- records and files that can't be read -----------------------------------------------------------------------------


def test_a_bad_line_has_a_reason_and_the_next_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_text_too_long_or_not_utf8_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_TEXT_BYTES", 50)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 16)
    path = tmp_path / "texts.txt"
    path.write_bytes(b"one||" + b"x" * 200 + b"||two||\xff||three")
    found = read(path, separator="||")
    assert found == [{"text": "one"}, "text_too_long", {"text": "two"}, "not_utf8", {"text": "three"}]
    assert read(path) == ["text_too_long"]
    (tmp_path / "rows.csv").write_text(f"text,{'x' * 51}\na,b\n")
    assert read(tmp_path / "rows.csv") == ["not_csv"]  # and the rest of its file, because the columns are unknown
    assert csv.field_size_limit() == 128 << 10  # as it was: the limit is one for all readers of a process


@pytest.mark.parametrize("suffix", list(PACK)[1:])
def test_a_file_that_is_cut_short_gives_its_records_and_then_a_reason(tmp_path: Path, suffix: str) -> None:
    data = PACK[suffix](b"".join(b'{"text": "%d"}\n' % i for i in range(30_000)))
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(data[: len(data) * 3 // 4])
    *before, last = read(path)
    assert [row["text"] for row in before] == [str(i) for i in range(len(before))]
    assert last == "truncated_stream"


def test_hundreds_of_megabytes_of_line_ends_are_no_records(tmp_path: Path, linear_time: None) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a"}\n' + b"\n" * (200 << 20) + b'{"text": "b"}\n', 1))
    assert read(path) == [{"text": "a"}, {"text": "b"}]


def test_a_parquet_file_with_an_encrypted_column_has_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    for column in ("text", "other"):
        path.write_bytes(encrypted_parquet(column, padded=False))
        refused = list(records(InputFile(Folder(tmp_path), path.name), ("text",), column))
        cause = f"'{path}' cannot be read: not a readable Parquet file: some of its columns are encrypted"
        assert refused == [Refused("damaged_stream", cause)]


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
    folder = tmp_path / "texts [old]"
    folder.mkdir()
    for name in ("b.txt", "a.jsonl.gz", "c.ndjson.zst", "d.parquet", "e.tsv", ".hidden.txt"):
        (folder / name).write_bytes(b"x")
    assert names(folder) == ["a.jsonl.gz", "b.txt", "c.ndjson.zst", "d.parquet"]
    assert names(folder / "*.txt", folder / "e.tsv") == [".hidden.txt", "b.txt", "e.tsv"]


def test_a_folder_is_a_tree_suffixes_ignore_case_and_what_is_ignored_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = ["UPPER.TXT", "a/b/deep.txt", "a/sub.txt", "a/t.Csv", "r.md", "x.json", "z/Rows.JsonL.GZ"]
    ignored = ["one.PNG", "a/two.jpeg", "a/b/log.gz", "a/Makefile", ".git/notes.txt", "z/more.LOG.gz", "z/other.log.gz"]
    for name in (*read, *ignored, "set/_parts/00000.json", "set/part-00000.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    (tmp_path / "beside").symlink_to(tmp_path / "a")
    assert [file.name for file in files_of(str(tmp_path), "texts", DOCUMENT_SUFFIXES)] == read
    ignored_here = "ignored: 2 images, 2 .log.gz, 1 part set, 1 hidden, 1 without suffix, 1 .gz"
    assert ignored_here in capsys.readouterr().err
    with pytest.raises(InputError, match=r"' is not a part set, but contains set/\nname a part set"):
        files_of(str(tmp_path), "texts or set", DOCUMENT_SUFFIXES)
    (tmp_path / "pictures").mkdir()
    for name in ("a.png", "b.webp", "c.tsv"):
        (tmp_path / "pictures" / name).write_bytes(b"x")
    with pytest.raises(InputError, match="contains no .* file; it contains 2 images, 1 .tsv"):
        names(tmp_path / "pictures")


def test_a_name_without_files_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "folder").mkdir()
    for name, message in {
        "missing.txt": "missing.txt' does not exist",
        "*.jsonl": "no file matches",
        "folder": r"folder' is not a part set of corpus or documents and contains no .parquet, .jsonl, .ndjson, .json, .csv",
        "empty.txt": "empty.txt' is empty",
    }.items():
        with pytest.raises(InputError, match=message):
            names(tmp_path / name)
    for name in ("", "s3:///"):
        with pytest.raises(InputError, match="the name of a file or folder is empty"):
            find_inputs([name], DOCUMENTS, DOCUMENT_SUFFIXES)
    (tmp_path / "folder" / "na\udcefve.txt").write_text("x")
    with pytest.raises(InputError, match=r"na\\udcefve.txt' is not valid UTF-8"):
        names(tmp_path / "folder")
    with pytest.raises(InputError, match="pages.warc.gz' is not a text file"):
        assert InputFile(Folder(tmp_path), "pages.warc.gz").kind
