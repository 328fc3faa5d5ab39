"""Reading a packed set: its numbers, its documents, the ring of its tokens, and damaged sets."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError, InputError, ShardCorrupt
from webtext.base.parts.recipe import Recipe, with_check
from webtext.base.parts.stage import SetWriter
from webtext.shards import Sampler, TokenShards
from webtext.shards.shardfile import ShardWriter
from webtext.shards.trace import trace

from .conftest import FACTS, ByteTokenizer

Make = Callable[..., TokenShards]
Read = Callable[[TokenShards], object]
READERS: dict[str, Read] = {
    "read": lambda shards: shards.read(0, 1),
    "tokens": lambda shards: shards.tokens(0),
    "document": lambda shards: shards.document(0),
    "streams": lambda shards: shards.streams()[0][0],
    "bounds": lambda shards: shards.document_bounds,
    "sampler": lambda shards: next(Sampler(shards, context=2, batch_size=1)),
    "verify": lambda shards: shards.verify(),
}


def test_shards_know_their_numbers_and_their_tokenizer(shards_of: Make, byte_tokenizer: ByteTokenizer) -> None:
    shards = shards_of([["abc", "de"], ["f"]])
    assert (len(shards), shards.n_tokens, shards.n_documents) == (2, 9, 3)
    assert (shards.vocab_size, shards.eot_id, shards.tokenizer_hash) == (257, 256, byte_tokenizer.hash)
    assert shards.hash == shards.set.hash
    assert repr(shards_of([["a"]], folder="one")).endswith("', 'train'): 2 tokens, 1 shard")


def test_documents_are_numbered_through_all_shards(shards_of: Make) -> None:
    shards = shards_of([["abc", "de"], ["f"], ["gh"]], shard_tokens=4)
    found = [(shards.document(i).id, bytes(shards.document(i).tokens[1:].astype(np.uint8))) for i in range(4)]
    assert found == [("0-0", b"abc"), ("0-1", b"de"), ("1-0", b"f"), ("2-0", b"gh")]
    assert [d.id for d in shards.documents()] == [i for i, _ in found]
    with pytest.raises(InputError, match="has no train document 4"):
        shards.document(4)


def test_the_set_is_opened_with_its_tokens_unread_and_read_only(shards_of: Make) -> None:
    shards = shards_of([["abc"]])
    with pytest.raises(ValueError, match="read-only"):
        shards.tokens(0)[0] = 1


def test_reading_goes_through_shards_and_from_the_end_to_the_start(shards_of: Make) -> None:
    shards = shards_of([["abc"], ["d"], ["ef"]])
    ring = "|abc|d|ef" * 4

    @given(start=st.integers(0, 8), length=st.integers(-2, 25))
    def holds(start: int, length: int) -> None:
        found = "".join("|" if token == 256 else chr(token) for token in shards.read(start, length))
        assert found == ring[start : start + max(length, 0)]

    holds()


def test_every_token_is_traced_to_its_document_and_corpus_row(shards_of: Make) -> None:
    shards = shards_of([["abc", "de"], ["f"]])
    found = [trace(shards, "train-00000.tok", offset) for offset in range(7)]
    assert [origin.id for origin in found] == ["0-0"] * 4 + ["0-1"] * 3
    assert [origin.token_in_document for origin in found] == [0, 1, 2, 3, 0, 1, 2]
    origin = trace(shards, 1, 0)
    assert (origin.id, origin.source_set, origin.source_part, origin.row) == ("1-0", "corpus", "part-00001.parquet", 0)


@pytest.mark.parametrize(
    ("shard", "offset", "complaint"),
    [
        ("train-00009.tok", 0, "no shard 'train-00009.tok'"),
        (2, 0, "no shard 2"),
        (0, 7, "no token 7"),
        (0, -1, "no token -1"),
    ],
)
def test_tracing_a_missing_token_is_an_error(shards_of: Make, shard: str | int, offset: int, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        trace(shards_of([["abc", "de"], ["f"]]), shard, offset)


def test_another_tokenizer_is_refused(shards_of: Make, byte_tokenizer: ByteTokenizer) -> None:
    shards = shards_of([["abc"]])
    shards.check_tokenizer(byte_tokenizer)
    with pytest.raises(InputError, match=f"was packed with tokenizer {byte_tokenizer.hash[:12]}…, not "):
        shards.check_tokenizer(ByteTokenizer(name="other"))


def test_an_unknown_split_gets_a_hint(shards_of: Make) -> None:
    shards = shards_of([["abc"]])
    with pytest.raises(ConfigError, match="did you mean 'validation'"):
        TokenShards(shards.set.folder.url, "validate")


def test_a_folder_that_is_not_a_token_set_is_rejected(shards_of: Make, tmp_path: Path) -> None:
    shards_of([["abc"]])
    with pytest.raises(InputError, match="no such folder"):
        TokenShards(tmp_path / "gone")
    with pytest.raises(InputError, match="contains corpus, not tokens"):
        TokenShards(tmp_path / "corpus")
    (tmp_path / "tokens" / "manifest.json").unlink()
    with pytest.raises(InputError, match="is not sealed"):
        TokenShards(tmp_path / "tokens")


def test_a_missing_shard_is_refused_on_opening(shards_of: Make) -> None:
    shards = shards_of([["abc"], ["def"]])
    Path(shards.file(1).location).unlink()
    with pytest.raises(InputError, match=r"train-00001\.tok' is missing"):
        TokenShards(shards.set.folder.url)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_truncated_and_an_invalid_shard_are_rejected_when_they_are_read(shards_of: Make, read: Read) -> None:
    shards = shards_of([["abc" * 100], ["def"]])
    path = Path(shards.file(0).location)
    whole = path.read_bytes()
    for content, complaint in [
        (b"", "0 bytes, the manifest says"),
        (whole[:200], "200 bytes, the manifest says"),
        (whole + b"x", "881 bytes, the manifest says 880"),
        (b"PAR1" + whole[4:], "SHA-256 "),
        (whole[:32] + bytes(32) + whole[64:], "SHA-256 "),
        (whole[:-20] + bytes(20), "SHA-256 "),
    ]:
        path.write_bytes(content)
        again = TokenShards(shards.set.folder.url)
        assert again.read(301, 4).tolist() == [256, *b"def"]  # the other one is as it was
        with pytest.raises(InputError, match=rf"train-00000\.tok' was altered: {complaint}"):
            read(again)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_shard_of_another_set_is_refused_when_it_is_read(shards_of: Make, read: Read) -> None:
    """The shard is valid, with the same tokenizer and size: only the manifest shows that it is from another set."""
    foreign = Path(shards_of([["xyz"]], folder="other").file(0).location).read_bytes()
    shards = shards_of([["abc"]])
    path = Path(shards.file(0).location)
    assert path.stat().st_size == len(foreign)
    path.write_bytes(foreign)
    again = TokenShards(shards.set.folder.url)
    with pytest.raises(InputError, match=r"train-00000\.tok' was altered: SHA-256"):
        read(again)


@pytest.mark.parametrize(
    ("starts", "complaint"),
    [
        ([0, 4, 4, 8], "length of document 1 is 0"),
        ([0, 6, 4, 8], "length of document 1 is -2"),
        ([0, 2**63, 4, 8], "length of document"),
        ([1, 4, 6, 8], "range of the document index is 1 to 8"),
        ([0, 4, 6, 9], "range of the document index is 0 to 9"),
    ],
)
def test_a_wrong_document_index_is_rejected_by_every_reader_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: list[int], complaint: str
) -> None:
    """Its hash, header and manifest are right. Three documents have three, one and one tokens."""
    as_array = np.append

    def lying(*_: object) -> np.ndarray[Any, Any]:
        return as_array(np.array(starts[:-1], np.uint64), np.uint64(starts[-1]))

    folder = tmp_path / "set"
    made = SetWriter(str(folder), "tokens", Recipe(stage="test", code_version=1, settings=FACTS))
    with made.part(0, key="0") as part, monkeypatch.context() as patch:
        with ShardWriter(part.attach("train-00000.tok"), **FACTS) as shard:
            for n in (3, 1, 1):
                shard.append(np.ones(n, np.uint16))
            patch.setattr(np, "append", lying)
        part.describe("train-00000.tok", shard.in_manifest())
        made.seal([part.publish()])
    for needs in (
        lambda shards: Sampler(shards, context=2, crosses_documents=False),
        lambda shards: shards.document(1),
        lambda shards: trace(shards, 0, 5),
        lambda shards: shards.verify(),
    ):
        with pytest.raises(ShardCorrupt, match=rf"train-00000\.tok': {complaint}"):
            needs(TokenShards(folder))


@pytest.mark.parametrize(
    ("about", "complaint"),
    [
        ({}, "the manifest doesn't describe '.*train-00000.tok'"),
        ({"n_tokens": 5}, "n_tokens 5 and n_documents 1 need"),
        ({"n_tokens": "many"}, "the manifest doesn't describe"),
        ({"n_documents": 9}, "train-00000.tok' in the manifest of '.*': n_documents is 9"),
        ({"n_tokens": 3}, "train-00000.tok': header is not the manifest's"),
    ],
)
def test_a_manifest_that_does_not_know_its_shards_is_refused(
    shards_of: Make, about: dict[str, object], complaint: str
) -> None:
    shards = shards_of([["abc"]])
    manifest = json.loads((shards.set.folder.local_path() / "manifest.json").read_text())
    attachment = manifest["parts"][0]["attachments"][0]
    attachment["about"] = attachment["about"] | about if about else {}
    del manifest["check"]
    (shards.set.folder.local_path() / "manifest.json").write_text(json.dumps(with_check(manifest)))
    with pytest.raises(InputError, match=complaint):
        TokenShards(shards.set.folder.url).verify()


def test_shards_travel_to_other_processes_by_name(shards_of: Make) -> None:
    shards = shards_of([["abc"] * 1000])
    pickled = pickle.dumps(shards)
    assert len(pickled) < 500
    assert pickle.loads(pickled).tokens(0).tolist() == shards.tokens(0).tolist()
