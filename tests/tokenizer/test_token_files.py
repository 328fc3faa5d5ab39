"""`webtext tokenizer encode` and `decode`: files of any size, in bounded memory, and back to the same bytes."""

from __future__ import annotations

import io
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.app.main import run
from webtext.base.errors import InputError
from webtext.tokenizer import Tokenizer
from webtext.tokenizer.files import token_files
from webtext.tokenizer.files.token_files import decode_file, encode_file, write_npy, write_text

from .conftest import SAMPLES

texts = st.lists(st.text(alphabet="the dog's 12\né東", max_size=30), max_size=6).map("\n".join)


def encoded(tokenizer: Tokenizer, data: bytes, lines: bool, kind: str) -> tuple[io.BytesIO, io.BytesIO]:
    """Return the file of ids of a text, and the file of offsets."""
    file, offsets = io.BytesIO(), io.BytesIO()
    batches = encode_file(tokenizer, io.BytesIO(data), "text", lines=lines, allowed=(), threads=2)
    if kind == "npy":
        write_npy(batches, "<u2", file, offsets if lines else None)
    else:
        write_text(batches, file)
    file.seek(0)
    offsets.seek(0)
    return file, offsets


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "BLOCK_BYTES", 1 << 12)  # as many block boundaries as in a large file


@given(texts | st.text(max_size=40), st.sampled_from(["npy", "txt"]), st.integers(1, 90))
def test_a_text_comes_back_whatever_the_blocks(small: Tokenizer, text: str, kind: str, block: int) -> None:
    data = text.encode()
    file, _ = encoded(small, data, lines=False, kind=kind)
    if kind == "npy":
        assert np.load(io.BytesIO(file.getvalue())).tolist() == small.encode(data)
    else:
        assert [int(word) for word in file.getvalue().split()] == small.encode(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_files, "BLOCK_BYTES", max(block, 90 if kind == "npy" else 1) + 200 * (kind == "npy"))
        assert b"".join(decode_file(small, file, "ids", None, lines=False)) == data


@given(texts, st.sampled_from(["npy", "txt"]), st.sampled_from([b"", b"\n"]))
def test_every_line_is_a_document(small: Tokenizer, text: str, kind: str, end: bytes) -> None:
    data = text.encode() + end
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    file, offsets = encoded(small, data, lines=True, kind=kind)
    expected = [small.encode(line) for line in lines]
    if kind == "npy":
        ids, bounds = np.load(io.BytesIO(file.getvalue())), np.load(io.BytesIO(offsets.getvalue()))
        assert [ids[a:b].tolist() for a, b in zip(bounds, bounds[1:], strict=False)] == expected
        assert (ids.dtype, bounds.dtype) == (np.uint16, np.int64)
    else:
        assert [[int(word) for word in line.split()] for line in file.getvalue().split(b"\n")[:-1]] == expected
    back = b"".join(decode_file(small, file, "ids", offsets, lines=True))
    assert back == b"".join(line + b"\n" for line in lines)


def test_any_white_space_separates_ids(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "BLOCK_BYTES", 30)
    file = io.BytesIO("\f".join(map(str, [*range(99)] * 20)).encode())
    assert b"".join(decode_file(small, file, "ids", None, lines=False)) == small.decode_bytes([*range(99)] * 20)


class Endless(io.RawIOBase):
    """A file of many equal blocks, generated while it is read."""

    def __init__(self, block: bytes, n_blocks: int) -> None:
        self._block, self._n_left = block, n_blocks

    def read(self, size: int = -1) -> bytes:  # type: ignore[override]
        self._n_left -= 1
        return self._block if self._n_left >= 0 else b""


@pytest.mark.parametrize("lines", [False, True])
def test_memory_does_not_grow_with_the_file(
    trained: Tokenizer, corpus_slice: Callable[[str], str], tmp_path: Path, lines: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MB of text and its 4 million ids need at most 6 MB, counting all allocations of Python and numpy."""
    monkeypatch.setattr(token_files, "BLOCK_BYTES", 1 << 18)
    block = (corpus_slice("en") * 10).encode()[: 1 << 18]
    trained.encode_flat([block])
    tracemalloc.start()
    try:
        with (tmp_path / "ids.npy").open("wb") as file, (tmp_path / "offsets.npy").open("wb") as offsets:
            source: Any = Endless(block, 64)
            batches = encode_file(trained, source, "text", lines=lines, allowed=(), threads=1)
            n_ids = write_npy(batches, "<u2", file, offsets if lines else None)
        with (tmp_path / "ids.npy").open("rb") as file:
            n_bytes = sum(map(len, decode_file(trained, file, "ids", None, lines=False)))
        assert tracemalloc.get_traced_memory()[1] < 6_000_000
    finally:
        tracemalloc.stop()
    assert n_ids > 3_000_000
    assert n_bytes > 0.9 * 64 * len(block)


# The verbs


@pytest.fixture
def folder(tmp_path: Path, small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    small.save("t.json")
    (tmp_path / "text.txt").write_bytes("\n".join(SAMPLES).encode())
    return tmp_path


def call(*arguments: str) -> int:
    return run(["tokenizer", *arguments, "--tokenizer", "t.json"])


def test_lines_to_an_array_with_offsets_and_back(folder: Path, small: Tokenizer) -> None:
    assert call("encode", "text.txt", "--lines", "--out", "ids.npy", "--quiet") == 0
    assert {path.name for path in folder.iterdir()} == {"t.json", "text.txt", "ids.npy", "ids.offsets.npy"}
    bounds = np.load("ids.offsets.npy")
    assert bounds.tolist()[1] == small.count(SAMPLES[0])
    assert call("decode", "ids.npy", "--lines", "--out", "back.txt", "--quiet") == 0
    assert (folder / "back.txt").read_bytes() == (folder / "text.txt").read_bytes() + b"\n"


def test_standard_input_to_standard_output(
    folder: Path, small: Tokenizer, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(data: bytes, *arguments: str) -> bytes:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert call(*arguments) == 0
        sys.stdout.flush()
        return capfdbinary.readouterr().out

    ids = said(b"the dog\nthe <|endoftext|>", "encode", "--lines", "--allowed-special", "all")
    assert ids.decode() == "".join(
        " ".join(map(str, small.encode(line, "all"))) + "\n" for line in ("the dog", "the <|endoftext|>")
    )
    assert said(ids, "decode", "--lines") == b"the dog\nthe <|endoftext|>\n"
    assert said(b"", "encode") == b"\n"
    assert said(b"", "encode", "--lines") == b""
    assert said(b"the\n\xff", "encode", "--json", "--lines").startswith(b'{"ids": [[')
    assert said(b"", "encode", "--json") == b'{"ids": []}\n'
    assert said(b"", "decode") == b""


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1 2 dog 3", "'ids': word 3 is 'dog', not a token id\n"),
        (b"1 2 1_0", "'ids': word 3 is '1_0', not a token id\n"),
        (b"1 2.5", "word 2 is '2.5'"),
        (b"9" * 9000, "word 1 is '99999999999999999999'"),
        (b"\xff\xfe", r"word 1 is '\xff\xfe'"),
        (b"1 99999", "'ids' has the unknown token id 99999 at position 1\nthe vocabulary has 400 ids"),
        (b"1 -1", "unknown token id -1 at position 1"),
        (npy([1, 2, 3])[:-1], "'ids' is cut short: 3 items are missing"),
        (npy([1, 2, 3])[:20], "'ids' is not a valid .npy file"),
        (npy([[1, 2]]), "'ids' has int64 of shape (1, 2)"),
        (npy([1.5]), "'ids' has float64 of shape (1,)"),
        (npy([True]), "'ids' has bool"),
        (npy(["a"]), "'ids' has <U1"),
        (npy(1), "'ids' has int64 of shape ()"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 4000, "'ids' is not a valid .npy file"),
        (b"\x93NUMPY\x09\x00v\x00" + b" " * 118, "'ids' is not a valid .npy file"),
        (npy(np.array([None], object)), "'ids' has object"),
        (npy([1]).replace(b"(1,), }", b"(2**9,)}"), "'ids' is not a valid .npy file"),
        (npy([1]).replace(b"(1,), }", b"(-1,), }"), "'ids' is not a valid .npy file"),
        (npy([1]).replace(b"(1,), }       ", b"(999999999,), }"), "'ids' is cut short: 999,999,999 items"),
    ],
)
def test_a_file_without_valid_ids_is_an_error(small: Tokenizer, data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        list(decode_file(small, io.BytesIO(data), "ids", None, lines=False))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([1, 2], "the offsets of ids begin with 1"),
        (np.array([], int), "begin with -1"),
        ([0, 3, 2], "decrease, or exceed the number of ids"),
        ([0, 4], "decrease, or exceed the number of ids"),
        ([0, 2], "the offsets of ids end at 2, before the ids"),
        ([0, -1], "decrease, or exceed the number of ids"),
        ([0.5], "'offsets of ids' has float64"),
    ],
)
def test_offsets_that_do_not_fit_are_an_error(small: Tokenizer, offsets: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(decode_file(small, io.BytesIO(npy([1, 2, 3])), "ids", io.BytesIO(npy(offsets)), lines=True))


def test_an_array_without_offsets_cannot_be_decoded_to_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("encode", "text.txt", "--out", "ids.npy", "--quiet") == 0
    assert call("decode", "ids.npy", "--lines") == 3
    assert "'ids.npy' has no offsets file beside it" in capsys.readouterr().err


def test_a_line_that_is_too_long_is_an_error(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "LONGEST_LINE", 1 << 20)
    source: Any = Endless(b"a" * 1000, 2000)
    with pytest.raises(InputError, match="line 1 of 'text' is longer than 1 MiB"):
        list(encode_file(small, source, "text", lines=True, allowed=(), threads=1))


def test_an_error_leaves_no_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(folder.iterdir())
    assert call("encode", "text.txt", "--out", "ids.npy", "--allowed-special", "<x>") == 2
    assert call("decode", "text.txt", "--out", "new.txt") == 3
    assert call("encode", "text.txt", "--lines", "--out", "ids.npy", "--dry-run") == 0
    assert call("encode", "nothing.txt", "--out", "ids.npy") == 3
    assert call("encode", "text.txt", "--out", "x/") == 2
    assert set(folder.iterdir()) == before
