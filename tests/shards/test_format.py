"""The token file: the header byte by byte, round trips, wrong headers, and verification."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import InputError, ShardCorrupt
from webtext.shards.format import HEADER_BYTES, ShardHeader, shard_name, shard_place
from webtext.shards.reader import TokenShards
from webtext.shards.shardfile import ShardFile, ShardWriter, verify_shard

from .conftest import make_set

HASH = "0123456789abcdef" * 4
CHECKSUM_AT = 252


def write(path: Path, documents: list[list[int]], vocab_size: int = 300, eot_id: int = 256) -> Path:
    with ShardWriter(path, vocab_size=vocab_size, eot_id=eot_id, tokenizer_hash=HASH) as shard:
        for document in documents:
            shard.append(np.array(document, np.uint32))
    return path


def edit(path: Path, offset: int, data: bytes, *, seal: bool = False) -> None:
    """Overwrite bytes; with `seal`, update the header's own checksum."""
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    if seal:
        content[CHECKSUM_AT:HEADER_BYTES] = struct.pack("<I", zlib.crc32(content[:CHECKSUM_AT]))
    path.write_bytes(content)


def test_the_file_is_byte_for_byte_what_the_reference_describes(tmp_path: Path) -> None:
    """Two documents, 'Hi' and 'a', with bytes as tokens: 256 72 105 256 97, ten bytes and six of padding."""
    data = write(tmp_path / "a.tok", [[72, 105], [97]]).read_bytes()
    assert data[0:8] == b"\x89TOKENS\n"
    assert struct.unpack("<II", data[8:16]) == (4, 2)  # version, bytes per token
    assert struct.unpack("<QQ", data[16:32]) == (300, 256)  # vocabulary, end of text
    assert data[32:64].hex() == HASH
    assert struct.unpack("<QQ", data[64:80]) == (5, 2)  # tokens, documents
    assert data[80:252] == bytes(172)
    assert struct.unpack("<I", data[252:256])[0] == zlib.crc32(data[:252])
    assert struct.unpack("<5H", data[256:266]) == (256, 72, 105, 256, 97)
    assert data[266:272] == bytes(6)
    assert struct.unpack("<3Q", data[272:296]) == (0, 3, 5)
    assert len(data) == 296


@given(
    documents=st.lists(st.lists(st.integers(0, 99_999).filter(lambda i: i != 50_000), max_size=40), max_size=12),
    wide=st.booleans(),
)
def test_what_is_written_is_read_back_and_verifies(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], wide: bool
) -> None:
    vocab_size = 100_000 if wide else 65_000
    documents = [[i if wide else i % 50_000 for i in document] for document in documents]
    path = write(tmp_path_factory.mktemp("t") / "a.tok", documents, vocab_size, 50_000)
    shard = ShardFile(path)
    verify_shard(shard)
    assert [shard.tokens[a:b].tolist() for a, b in pairwise(shard.index.tolist())] == [[50_000, *d] for d in documents]
    assert shard.header.n_tokens == sum(map(len, documents)) + len(documents)
    assert path.stat().st_size == shard.header.file_bytes


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_535, "<u2"), (65_536, "<u2"), (65_537, "<u4")])
def test_a_vocabulary_past_65536_takes_four_bytes_per_token(tmp_path: Path, vocab_size: int, dtype: str) -> None:
    shard = ShardFile(write(tmp_path / "a.tok", [[0, vocab_size - 2]], vocab_size, vocab_size - 1))
    assert shard.tokens.dtype == np.dtype(dtype)
    assert shard.tokens.tolist() == [vocab_size - 1, 0, vocab_size - 2]


def test_an_id_past_the_vocabulary_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="token id 300 is not in the vocabulary of 300 tokens"):
        write(tmp_path / "a.tok", [[1], [2, 300]])


def test_a_file_whose_writing_stopped_is_not_a_shard(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not in the vocabulary"):
        write(tmp_path / "a.tok", [[1] * 5000, [999]])
    with pytest.raises(ShardCorrupt, match="magic"):
        ShardFile(tmp_path / "a.tok")


@pytest.mark.parametrize(
    ("offset", "data", "complaint"),
    [
        (0, b"PAR1", "magic is b'PAR1ENS"),
        (8, struct.pack("<I", 1), "version is 1\nthis version of webtext reads version 4\nmake the token set again"),
        (12, struct.pack("<I", 4), "bytes per token is 4"),
        (16, struct.pack("<Q", 0), "vocab_size is 0"),
        (16, struct.pack("<Q", 1 << 40), "vocab_size is 1099511627776"),
        (24, struct.pack("<Q", 300), "eot_id is 300"),
        (64, struct.pack("<Q", 9), "n_tokens 9 and n_documents 2 need"),
        (64, struct.pack("<Q", 6), "range of the document index is 0 to 8"),
        (64, struct.pack("<Q", 2**63), "n_tokens 9,223,372,036,854,775,808"),
        (72, struct.pack("<Q", 1), "n_documents 1 need"),
        (72, struct.pack("<Q", 9), "n_documents is 9"),
        (80, b"x", "reserved bytes is not zero"),
    ],
)
def test_a_wrong_header_is_rejected_with_field_and_value(
    tmp_path: Path, offset: int, data: bytes, complaint: str
) -> None:
    path = write(tmp_path / "a.tok", [[72, 105], [97, 98, 99, 100]])
    edit(path, offset, data, seal=True)
    with pytest.raises(ShardCorrupt) as caught:
        ShardFile(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)


@given(offset=st.integers(0, HEADER_BYTES - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_of_the_header_is_found_on_opening(
    tmp_path_factory: pytest.TempPathFactory, offset: int, bit: int
) -> None:
    path = write(tmp_path_factory.mktemp("t") / "a.tok", [[72, 105]])
    edit(path, offset, bytes([path.read_bytes()[offset] ^ 1 << bit]))
    with pytest.raises(ShardCorrupt):
        ShardFile(path)


def test_a_truncated_or_padded_file_is_refused_on_opening(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tok", [[1] * 100])
    whole = path.read_bytes()
    for content in (b"", whole[:100], whole[:256], whole[:-1], whole + b"\0"):
        path.write_bytes(content)
        with pytest.raises(ShardCorrupt, match=r"header is \d+ bytes|file size is"):
            ShardFile(path)


@given(st.sampled_from(["train", "validation"]), st.integers(0, 10**7), st.integers(0, 200))
def test_names_of_shards_contain_their_place(split: str, part: int, number: int) -> None:
    assert shard_place(shard_name(split, part, number)) == (split, part, number)


@pytest.mark.parametrize(
    "name", ["part-00000.parquet", "train-0.tok", "train-00000-0.tok", "test-00000.tok", "train-00000.tok.bak"]
)
def test_other_names_are_not_shards(name: str) -> None:
    assert shard_place(name) is None


def test_the_layout_follows_from_the_header() -> None:
    """3 tokens of 2 bytes are padded to 8; 2 positions of 8."""
    header = ShardHeader(vocab_size=9, eot_id=0, tokenizer_hash=HASH, n_tokens=3, n_documents=1)
    assert (header.index_offset, header.file_bytes) == (264, 280)


@given(st.data())
def test_any_flipped_bit_after_the_header_is_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("t")
    path = Path(make_set(folder, 1, documents=2)) / "train-00000.tok"
    content = path.read_bytes()
    offset = data.draw(st.integers(HEADER_BYTES, len(content) - 1))
    edit(path, offset, bytes([content[offset] ^ 1 << data.draw(st.integers(0, 7))]))
    with pytest.raises(InputError, match=r"train-00000\.tok' was altered: SHA-256"):
        TokenShards(folder).verify()


@pytest.mark.parametrize(
    ("offset", "data", "complaint"),
    [
        (256, struct.pack("<H", 300), "token 0 is 300"),
        (256, struct.pack("<H", 1), "first token of document 0 is 1"),
        (258, struct.pack("<H", 256), "number of end-of-text tokens is 3"),
        (266, b"\x01", "padding after the tokens is not zero"),
        (272, struct.pack("<Q", 1), "range of the document index is 1 to 5"),
        (280, struct.pack("<Q", 0), "length of document 0 is 0"),
        (280, struct.pack("<Q", 2**63), "length of document"),
        (288, struct.pack("<Q", 4), "range of the document index is 0 to 4"),
    ],
)
def test_an_error_that_its_writer_made_is_found(tmp_path: Path, offset: int, data: bytes, complaint: str) -> None:
    path = write(tmp_path / "a.tok", [[72, 105], [97]])  # tokens at 256 to 265, index at 272, 280, 288
    edit(path, offset, data)
    with pytest.raises(ShardCorrupt) as caught:
        verify_shard(ShardFile(path))
    assert complaint in str(caught.value)


def test_a_document_index_that_the_rows_of_the_set_contradict_is_found(tmp_path: Path) -> None:
    folder = make_set(tmp_path / "set", 1, documents=5, length=99)
    with pytest.raises(ShardCorrupt, match=r"train-00000\.tok': document index is not the set's"):
        TokenShards(folder).verify()
