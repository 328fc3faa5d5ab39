"""Verification: the altered file is reported, and so are errors in one that has the manifest's hash."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import InputError, ShardCorrupt
from webtext.shards.format import HEADER_BYTES
from webtext.shards.reader import TokenShards
from webtext.shards.shardfile import ShardFile, verify_shard

from .conftest import make_set
from .test_format import edit, write


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
