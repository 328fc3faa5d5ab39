"""Converting: the bytes that other trainers expect, read back by their own readers if installed; ugly files."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webtext.app.main import run
from webtext.base.errors import InputError
from webtext.shards import TokenShards
from webtext.shards import convert_from as convert
from webtext.shards.convert_from import cut_documents
from webtext.shards.convert_to import convert_to
from webtext.shards.format import SPLITS
from webtext.shards.settings import PackSettings
from webtext.shards.shardfile import pieces
from webtext.shards.trace import trace
from webtext.shards.writing import pack

from .conftest import ByteTokenizer, document, pack_here, quiet, write_corpus

EOT = 256
Make = Callable[..., TokenShards]
PARTS = [[("abc", "train"), ("d", "validation"), ("ef", "train")], [("ghij", "train"), ("k", "validation")]]


@pytest.fixture
def tokens(tmp_path: Path, byte_tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A set with the training documents abc, ef | ghij in two shards, and d | k held out."""
    monkeypatch.setattr(convert, "load_tokenizer", lambda _: byte_tokenizer)
    rows = [[document(text, text, split) for text, split in part] for part in PARTS]
    pack_here(write_corpus(tmp_path / "corpus", rows), tmp_path / "tokens")
    return str(tmp_path / "tokens")


def to(tokens: str, form: str, out: Path) -> list[str]:
    return convert_to(tokens, form, str(out), quiet())


def back(sources: Path | list[Path], form: str, out: Path, **options: Any) -> TokenShards:
    listed = [str(source) for source in (sources if isinstance(sources, list) else [sources])]
    convert.convert_from(listed, form, "tokenizer.json", str(out), PackSettings(), quiet(), **options)
    for split in ("train", "validation"):
        TokenShards(out, split).verify()
    return TokenShards(out)


def text_of(shards: TokenShards) -> str:
    arrays = [shards.tokens(i) for i in range(len(shards))]
    return "".join("|" if token == EOT else chr(token) for array in arrays for token in array)


def ids(text: str) -> list[int]:
    return [EOT if character == "|" else ord(character) for character in text]


def test_nanogpt_gets_two_byte_ids_and_nothing_else(tokens: str, tmp_path: Path) -> None:
    assert to(tokens, "nanogpt", tmp_path / "out") == ["train.bin", "val.bin"]
    assert np.memmap(tmp_path / "out" / "train.bin", "<u2", "r").tolist() == ids("abc|ef|ghij|")
    assert np.fromfile(tmp_path / "out" / "val.bin", "<u2").tolist() == ids("d|k|")


def test_llm_c_gets_a_header_and_end_of_text_before_each_document(tokens: str, tmp_path: Path) -> None:
    names = to(tokens, "llm.c", tmp_path / "out")
    assert names == ["train_000000.bin", "train_000001.bin", "val_000000.bin", "val_000001.bin"]
    data = (tmp_path / "out" / "train_000000.bin").read_bytes()
    assert struct.unpack("<256i", data[:1024])[:4] == (20240520, 1, 7, 0)
    assert np.frombuffer(data, "<u2", offset=1024).tolist() == ids("|abc|ef")


def test_megatron_gets_an_index_of_documents(tokens: str, tmp_path: Path) -> None:
    """Three sequences of 4, 3 and 5 tokens of two bytes (code 8) start at bytes 0, 8 and 14; each is a document."""
    to(tokens, "megatron", tmp_path / "out")
    index = struct.pack("<9sQBQQ3i3q4q", b"MMIDIDX\0\0", 1, 8, 3, 4, 4, 3, 5, 0, 8, 14, 0, 1, 2, 3)
    assert (tmp_path / "out" / "train.idx").read_bytes() == index
    assert np.fromfile(tmp_path / "out" / "train.bin", "<u2").tolist() == ids("abc|ef|ghij|")


def test_a_file_that_changes_while_it_is_converted_is_an_error(
    tmp_path: Path, tokens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to(tokens, "nanogpt", tmp_path)
    path = tmp_path / "train.bin"
    os.utime(path, (1, 1))
    monkeypatch.setattr(convert, "_check_ids", lambda *_: path.write_bytes(bytes(path.stat().st_size)))
    with pytest.raises(InputError, match="train.bin' changed while it was read"):
        back(path, "nanogpt", tmp_path / "again")


@pytest.mark.parametrize("form", list(convert.FORMATS))
@pytest.mark.parametrize("vocab_size", [257, 70_000])
def test_there_and_back_keeps_tokens_documents_and_splits(
    form: str, vocab_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = ByteTokenizer(vocab_size)
    for module in (pack, convert):
        monkeypatch.setattr(module, "load_tokenizer", lambda _: tokenizer)
    rows = [[document(text, text, split) for text, split in part] for part in PARTS]
    pack_here(write_corpus(tmp_path / "corpus", rows), tmp_path / "tokens")
    if form == "nanogpt" and vocab_size > 65_536:
        with pytest.raises(InputError, match="nanoGPT's files can only store ids below 65,536"):
            to(str(tmp_path / "tokens"), form, tmp_path / "out")
        return
    to(str(tmp_path / "tokens"), form, tmp_path / "out")
    back(tmp_path / "out", form, tmp_path / "again")
    for split in ("train", "validation"):
        was, now = TokenShards(tmp_path / "tokens", split), TokenShards(tmp_path / "again", split)
        assert [d.tokens.tolist() for d in now.documents()] == [d.tokens.tolist() for d in was.documents()]


STREAMS = ["abc|ef|ghij|", "||abc||e|", "|", "ab|c"]
"""Documents as other trainers close them; some are empty, and the last stream lacks its last end-of-text."""


def closed_file(form: str, stream: str, folder: Path) -> Path:
    """Write a file of `form` with this stream and, if the format has one, its document index."""
    folder.mkdir()
    tokens = np.array(ids(stream), "<u2")
    lengths = [len(text) + 1 for text in stream.split("|")[:-1]] + ([1] if stream[-1] != "|" else [])
    (folder / ("a.ds" if form == "datatrove" else "train.bin")).write_bytes(tokens.tobytes())
    if form == "megatron":
        offsets = np.append(0, np.cumsum(lengths)[:-1]) * 2
        (folder / "train.idx").write_bytes(megatron(lengths=tuple(lengths), offsets=tuple(offsets.tolist())))
    elif form == "datatrove":
        (folder / "a.ds.index").write_bytes(np.cumsum(lengths).astype("<u8").tobytes())
    return folder


@pytest.mark.parametrize("form", ["nanogpt", "megatron", "datatrove"])
@pytest.mark.parametrize("stream", STREAMS)
def test_formats_that_close_documents_come_back_exactly_with_each_end_of_text_moved(
    form: str, stream: str, tokens: str, tmp_path: Path
) -> None:
    whole = stream if stream[-1] == "|" else f"{stream}|"
    shards = back(closed_file(form, stream, tmp_path / "in"), form, tmp_path / "tok")
    assert text_of(shards) == "".join(f"|{text}" for text in whole.split("|")[:-1])
    assert shards.n_documents == whole.count("|")
    to(str(tmp_path / "tok"), form, tmp_path / "out")
    expected = closed_file(form, whole, tmp_path / "expected")
    suffixes = {"megatron": (".bin", ".idx"), "datatrove": (".ds", ".index"), "nanogpt": (".bin",)}
    for suffix in suffixes[form]:
        (found,), (meant,) = ([p for p in d.rglob("*") if p.suffix == suffix] for d in (tmp_path / "out", expected))
        assert found.read_bytes() == meant.read_bytes()
    again = back(tmp_path / "out", form, tmp_path / "again")
    assert [d.tokens.tolist() for d in again.documents()] == [d.tokens.tolist() for d in shards.documents()]


@pytest.mark.parametrize("stream", ["|abc|ef|ghij", "||abc||e|", "|"])
def test_llm_c_opens_documents_as_token_sets_do(stream: str, tokens: str, tmp_path: Path) -> None:
    data = llm_c(n=len(stream), tokens=np.array(ids(stream), "<u2").tobytes())
    (tmp_path / "train.bin").write_bytes(data)
    assert text_of(back(tmp_path / "train.bin", "llm.c", tmp_path / "tok")) == stream
    to(str(tmp_path / "tok"), "llm.c", tmp_path / "out")
    assert (tmp_path / "out" / "train_000000.bin").read_bytes() == data


def test_documents_without_a_token_are_counted_as_dropped(tokens: str, tmp_path: Path) -> None:
    """An index with empty documents at the start, in the middle and at the end."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.ds").write_bytes(np.array(ids("ab|c|"), "<u2").tobytes())
    (folder / "a.ds.index").write_bytes(np.array([0, 3, 3, 5, 5], "<u8").tobytes())
    shards = back(folder, "datatrove", tmp_path / "tok")
    assert text_of(shards) == "|ab|c"
    assert shards.set.counts.to_json() == {"records_in": 5, "kept": 2, "dropped": {"no_tokens": 3}, "failed": {}}
    assert [document.row for document in shards.documents()] == [1, 3]


@pytest.mark.slow
def test_datatroves_own_reader_reads_what_we_write_and_we_what_its_own_writer_writes(
    tokens: str, tmp_path: Path
) -> None:
    dataset = pytest.importorskip("datatrove.utils.dataset")
    writer = pytest.importorskip("datatrove.pipeline.tokens.tokenizer")
    to(tokens, "datatrove", tmp_path / "out")
    folder = dataset.DatatroveFolderDataset(str(tmp_path / "out" / "train"), seq_len=2, token_size=2, shuffle=False)
    assert [folder[i]["input_ids"].tolist() for i in range(len(folder))] == [ids("abc"), ids("|ef"), ids("ghi")]
    with_index = dataset.DatatroveFileDataset(
        str(tmp_path / "out" / "train" / "00000_tokens.ds"), seq_len=6, token_size=2, return_positions=True
    )
    assert with_index[0]["positions"].tolist() == [0, 1, 2, 3, 0, 1, 2]

    theirs = writer.TokenizedFile(str(tmp_path / "ds"), "00000_unshuffled.ds", save_final_metadata=True, token_size=2)
    for text in ("xy|", "z|", "no end"):
        theirs.write(ids(text), None)
    theirs.close()
    shards = back(tmp_path / "ds", "datatrove", tmp_path / "again")
    to(str(tmp_path / "again"), "datatrove", tmp_path / "there")
    read = dataset.DatatroveFileDataset(str(tmp_path / "there/train/00000_tokens.ds"), seq_len=11, token_size=2)
    assert read[0]["input_ids"].tolist() == ids("xy|z|no end|")
    assert text_of(shards) == "|xy|z|no end"


@pytest.mark.slow
def test_megatrons_own_reader_reads_what_we_write(tokens: str, tmp_path: Path) -> None:
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    to(tokens, "megatron", tmp_path / "out")
    dataset = indexed.IndexedDataset(str(tmp_path / "out" / "train"))
    assert [dataset[i].tolist() for i in range(len(dataset))] == [ids("abc|"), ids("ef|"), ids("ghij|")]
    assert dataset.document_indices.tolist() == [0, 1, 2, 3]
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "b_val.bin"), dtype=np.int32)
    builder.add_document(np.array(ids("xyz|"), np.int32), [1, 3])
    builder.add_document(np.array(ids("|"), np.int32), [1])
    builder.add_document(np.array(ids("w"), np.int32), [1])
    builder.finalize(str(tmp_path / "b_val.idx"))
    back(tmp_path / "b_val.idx", "megatron", tmp_path / "again")
    assert text_of(TokenShards(tmp_path / "again", "validation")) == "|xyz||w"
    to(str(tmp_path / "again"), "megatron", tmp_path / "there")
    dataset = indexed.IndexedDataset(str(tmp_path / "there" / "validation"))
    assert [dataset[i].tolist() for i in range(len(dataset))] == [ids("xyz|"), ids("|"), ids("w|")]


def test_a_converted_token_is_traced_to_its_file(tokens: str, tmp_path: Path) -> None:
    to(tokens, "nanogpt", tmp_path / "out")
    shards = back([tmp_path / "out" / "train.bin"], "nanogpt", tmp_path / "again")
    origin = trace(shards, 0, 5)
    assert (origin.source_set, origin.source_part, origin.row, origin.id) == ("nanogpt", "train.bin", 1, "train.bin:1")


def test_files_with_equal_names_are_named_with_their_folders(tokens: str, tmp_path: Path) -> None:
    to(tokens, "datatrove", tmp_path / "out")
    shards = back(tmp_path / "out", "datatrove", tmp_path / "again")
    names = ["00000_tokens.ds:0", "00000_tokens.ds:1", "00001_tokens.ds:0"]
    assert [d.id for d in shards.documents()] == [f"train/{name}" for name in names]


def test_the_split_is_that_of_the_name_unless_one_is_given(tokens: str, tmp_path: Path) -> None:
    to(tokens, "nanogpt", tmp_path / "out")
    (tmp_path / "out" / "train.bin.gz").write_bytes(b"a folder's compressed file is ignored.")
    shards = back(tmp_path / "out", "nanogpt", tmp_path / "again", split="train")
    assert text_of(shards) == "|abc|ef|ghij|d|k"


def test_documents_begin_or_end_at_end_of_text_and_end_at_their_own_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webtext.shards.convert_from.PIECE", 3)
    stream = np.array(ids("ab||cdefg|hi"), np.uint16)
    assert [part.tolist() for part in cut_documents(stream, EOT, np.array([0, 2, 6, 6, 12]))] == [
        ids(text) for text in ("", "ab", "|", "|", "cd", "", "efg|", "hi")
    ]
    assert [part.tolist() for part in cut_documents(stream, EOT, opens=True)] == [
        ids(text) for text in ("ab", "|", "|cdefg", "|hi")
    ]
    assert [part.tolist() for part in cut_documents(stream[:0], EOT, np.array([0, 0]))] == [[], []]


def llm_c(magic: int = 20240520, version: int = 1, n: int = 2, tokens: bytes = b"a\0b\0") -> bytes:
    return struct.pack("<3i", magic, version, n).ljust(1024, b"\0") + tokens


def megatron(code: int = 8, lengths: tuple[int, ...] = (2,), offsets: tuple[int, ...] = (0,)) -> bytes:
    n = len(lengths)
    return struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, n, n + 1) + struct.pack(
        f"<{n}i{n}q{n + 1}q", *lengths, *offsets, *range(n + 1)
    )


@pytest.mark.parametrize(
    ("form", "files", "complaint"),
    [
        ("nanogpt", {"a.bin": b"abc"}, "has 3 bytes"),
        ("nanogpt", {"a.bin": b"a\0b\x07"}, r"token 1 of '.*a\.bin' is 1890; the vocabulary has 257 tokens"),
        ("nanogpt", {"a.txt": b""}, r"contains no \.bin file; it contains 1 \.txt"),
        ("llm.c", {"a.bin": b"a\0"}, "is not a token file of llm.c"),
        ("llm.c", {"a.bin": llm_c(magic=7)}, "starts with magic 7, version 1"),
        ("llm.c", {"a.bin": llm_c(n=3)}, "contains 2 tokens"),
        ("llm.c", {"a.bin": llm_c(n=-1)}, "its header says -1"),
        ("megatron", {"a.idx": megatron()}, r"no file '.*a\.bin'"),
        ("megatron", {"a.bin": b"a\0"}, r"no file '.*a\.idx'\n'a' needs both .idx and .bin"),
        ("megatron", {"a.idx": b"no index", "a.bin": b""}, "is not a Megatron index"),
        ("megatron", {"a.idx": megatron(code=7), "a.bin": b"a\0b\0"}, "type 7"),
        ("megatron", {"a.idx": megatron()[:-1], "a.bin": b"a\0b\0"}, "truncated"),
        ("megatron", {"a.idx": megatron(lengths=(3,)), "a.bin": b"a\0b\0"}, r"doesn't match 'a\.bin'"),
        ("megatron", {"a.idx": megatron(lengths=(-2,)), "a.bin": b"a\0b\0"}, r"doesn't match 'a\.bin'"),
        ("megatron", {"a.idx": megatron(offsets=(9,)), "a.bin": b"a\0b\0"}, r"doesn't match 'a\.bin'"),
        ("megatron", {"a.idx": megatron(code=4, lengths=(1,)), "a.bin": b"\xff\xff\xff\xff"}, "token 0 of .* is -1"),
        ("megatron", {"a.idx": megatron()[:18] + struct.pack("<2Q", 1 << 60, 1 << 60), "a.bin": b""}, "truncated"),
        ("datatrove", {"a.ds": b"a\0b\0", "a.ds.index": struct.pack("<Q", 3)}, "doesn't match"),
        ("datatrove", {"a.ds": b"a\0b\0", "a.ds.index": struct.pack("<2Q", 1 << 63, 2)}, "doesn't match"),
        ("datatrove", {"a.ds": b"a\0b\0", "a.ds.metadata": b"gpt2|8\n2"}, "expected 2 or 4"),
    ],
)
def test_invalid_files_are_short_errors(
    form: str, files: dict[str, bytes], complaint: str, tmp_path: Path, tokens: str
) -> None:
    folder = tmp_path / "foreign"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    with pytest.raises(InputError, match=complaint) as error:
        back(folder, form, tmp_path / "again")
    assert len(str(error.value).splitlines()) <= 3
    assert not (tmp_path / "again" / "manifest.json").exists()


@pytest.mark.parametrize("width", ["<u4", ">u4", "<i8"])
@pytest.mark.parametrize(("form", "name"), [("nanogpt", "a.bin"), ("datatrove", "a.ds")])
def test_wider_ids_are_not_read_as_two_of_two_bytes(
    form: str, name: str, width: str, tmp_path: Path, tokens: str
) -> None:
    (tmp_path / name).write_bytes(np.array(ids("abc|de|"), width).tobytes())
    with pytest.raises(InputError, match="every second number of 2 bytes in .* is 0: its ids have 4 bytes or more"):
        back(tmp_path / name, form, tmp_path / "again")


def test_a_file_of_two_ids_may_end_with_id_0(tmp_path: Path, tokens: str) -> None:
    (tmp_path / "a.bin").write_bytes(np.array([5, 0], "<u2").tobytes())
    assert back(tmp_path / "a.bin", "nanogpt", tmp_path / "again").document(0).tokens.tolist() == [EOT, 5, 0]


def test_nanogpt_files_are_not_read_with_a_vocabulary_that_needs_four_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "load_tokenizer", lambda _: ByteTokenizer(70_000))
    (tmp_path / "a.bin").write_bytes(np.array([*ids("abc|"), 69_999], "<u4").tobytes())
    with pytest.raises(InputError, match=r"can't have ids of 2 bytes: the vocabulary has 70,000 tokens"):
        back(tmp_path / "a.bin", "nanogpt", tmp_path / "again")


@pytest.mark.parametrize("ends", ["", "|"])
def test_a_document_as_long_as_a_file_is_converted_in_windows(
    ends: str, tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("convert_from", "shardfile"):
        monkeypatch.setattr(f"webtext.shards.{module}.PIECE", 1 << 14)
    text = "abcdefgh" * (1 << 18)
    (tmp_path / "train.bin").write_bytes(np.array(ids(text + ends), "<u2").tobytes())
    tracemalloc.start()
    shards = back(tmp_path / "train.bin", "nanogpt", tmp_path / "again")
    assert tracemalloc.get_traced_memory()[1] < 3 << 20
    tracemalloc.stop()
    assert (shards.n_documents, text_of(shards)) == (1, "|" + text)


def test_windows_of_a_map_do_not_stay_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(np.ones(8 << 20, "<u2").tobytes())

    def resident() -> int:
        maps = Path("/proc/self/smaps").read_text().split(str(path))
        return int(maps[1].split("Rss:")[1].split()[0]) << 10

    assert max(resident() for _, window in pieces(convert.mapped(path, "<u2")) if window.sum()) < 5 << 20
    assert max(resident() for document in cut_documents(convert.mapped(path, "<u2"), EOT) if len(document)) < 1 << 20


def test_a_changed_file_is_converted_again_and_the_others_are_not(tmp_path: Path, tokens: str) -> None:
    source, out = tmp_path / "bins", tmp_path / "again"
    source.mkdir()
    for name in "ab":
        (source / f"{name}.bin").write_bytes(np.array(ids(f"{name}|"), "<u2").tobytes())
    back(source, "nanogpt", out)
    first = (out / "train-00000.tok").stat().st_mtime_ns
    (source / "b.bin").write_bytes(np.array(ids("new|"), "<u2").tobytes())
    assert text_of(back(source, "nanogpt", out)) == "|a|new"
    assert (out / "train-00000.tok").stat().st_mtime_ns == first


@pytest.mark.parametrize(("form", "stale"), [("llm.c", "train_000001.bin"), ("datatrove", "train/00001_tokens.ds")])
def test_the_verb_writes_a_folder_again_but_not_beside_files_of_a_larger_set(
    form: str, stale: str, tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack_here(write_corpus(tmp_path / "less", [[document(text, text, text) for text in SPLITS]]), tmp_path / "small")
    for source, code in ((tokens, 0), (tokens, 0), (str(tmp_path / "small"), 3)):
        assert run(["shards", "convert", source, "--to", form, "--out", str(tmp_path / "out")]) == code
    assert f"{stale}' is of a larger token set" in capsys.readouterr().err


def test_the_verb_converts_both_ways(tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, again = str(tmp_path / "out"), str(tmp_path / "again")
    assert run(["shards", "convert", tokens, "--to", "nanogpt", "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["train.bin", "val.bin"]
    arguments = ["shards", "convert", out, "--from", "nanogpt", "--tokenizer", "any", "--out", again, "--workers", "1"]
    assert run([*arguments, "--dry-run"]) == 0
    assert not Path(again).exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "one of --from and --to"),
        (["--from", "nanogpt", "--to", "nanogpt"], "one of --from and --to"),
        (["--from", "nanogpt"], "--from needs --tokenizer"),
        (["--to", "nanogpt", "--tokenizer", "x"], "--to takes one token set"),
        (["--to", "nanogpt", "--out", "TOKENS"], "and nothing that this command writes"),
    ],
)
def test_the_verb_says_what_it_needs(tokens: str, capsys: Any, arguments: list[str], complaint: str) -> None:
    arguments = [tokens if argument == "TOKENS" else argument for argument in arguments]
    assert run(["shards", "convert", tokens, *arguments]) in (2, 3)
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) <= 3
