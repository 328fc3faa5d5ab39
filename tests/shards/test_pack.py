"""Packing: documents and end-of-text in order, separate splits, every document counted, equal bytes each time."""

from __future__ import annotations

import errno
import hashlib
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webtext.base.errors import ConfigError, InputError, MachineError
from webtext.base.parts.partset import PartSet
from webtext.shards import TokenShards
from webtext.shards.writing import pack

from .conftest import ByteTokenizer, document, pack_here, write_corpus

EOT = 256
GOLDEN = "8f7436543bcb41efef30d5075f33fab8fa8e1ab745a2240821687b400106be35"
CANARY = "zanzibar-7f3a"


def files(folder: Path) -> dict[str, bytes]:
    """Return a set's files except run.json, which has times."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }


def text_of(shards: TokenShards) -> str:
    tokens = [shards.tokens(i) for i in range(len(shards))]
    return "".join("|" if token == EOT else chr(token) for token in np.concatenate(tokens))


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    first = [document("a", "one"), document("b", CANARY, "validation"), document("c", "two")]
    return write_corpus(tmp_path / "corpus", [first, [document("d", "three")], [document("e", "four", "validation")]])


def test_each_document_is_opened_by_one_end_of_text(corpus: str, tmp_path: Path, byte_tokenizer: Any) -> None:
    tokens = pack_here(corpus, tmp_path / "tokens")
    assert text_of(TokenShards(tmp_path / "tokens")) == "|one|two|three"
    assert text_of(TokenShards(tmp_path / "tokens", "validation")) == f"|{CANARY}|four"
    assert (tokens.counts.records_in, tokens.counts.kept) == (5, 5)


def test_a_split_without_documents_writes_no_file(corpus: str, tmp_path: Path, byte_tokenizer: Any) -> None:
    pack_here(corpus, tmp_path / "tokens")
    names = sorted(path.stem for path in (tmp_path / "tokens").glob("*.tok"))
    assert names == ["train-00000", "train-00001", "validation-00000", "validation-00002"]


def test_the_index_leads_from_tokens_back_to_the_corpus_row(corpus: str, tmp_path: Path, byte_tokenizer: Any) -> None:
    tokens = pack_here(corpus, tmp_path / "tokens")
    assert tokens.table(0).to_pylist() == [
        {"shard": shard, "start": start, "length": length, "id": i, "source_part": "part-00000.parquet", "row": row}
        for shard, start, length, i, row in [
            ("train-00000.tok", 0, 4, "a", 0),
            ("validation-00000.tok", 0, len(CANARY) + 1, "b", 1),
            ("train-00000.tok", 4, 4, "c", 2),
        ]
    ]


def test_the_manifest_says_which_tokenizer_and_which_corpus(
    corpus: str, tmp_path: Path, byte_tokenizer: ByteTokenizer
) -> None:
    tokens = pack_here(corpus, tmp_path / "tokens")
    tokenizer = {"tokenizer_hash": byte_tokenizer.hash, "vocab_size": 257, "eot_id": 256}
    assert tokens.recipe["settings"] == tokenizer | {"shard_tokens": 100_000_000}
    assert tokens.manifest["parents"] == [{"kind": "corpus", "hash": PartSet.open(corpus).hash}]


def test_a_canary_in_a_validation_document_never_reaches_the_training_tokens(
    corpus: str, tmp_path: Path, byte_tokenizer: Any
) -> None:
    pack_here(corpus, tmp_path / "tokens")
    canary = np.frombuffer(CANARY.encode(), np.uint8).astype("<u2").tobytes()
    found = {path.name for path in (tmp_path / "tokens").glob("*.tok") if canary in path.read_bytes()}
    assert found == {"validation-00000.tok"}


def test_special_tokens_in_a_text_are_text(tmp_path: Path, byte_tokenizer: Any) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[document("a", "x<|endoftext|>y")]])
    pack_here(corpus, tmp_path / "tokens")
    shards = TokenShards(tmp_path / "tokens")
    assert text_of(shards) == "|x<|endoftext|>y"
    shards.verify()


def test_a_document_without_tokens_is_dropped_and_counted(tmp_path: Path, byte_tokenizer: Any) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[document("a", ""), document("b", "x")], [document("c", "")]])
    tokens = pack_here(corpus, tmp_path / "tokens")
    assert tokens.counts.to_json() == {"records_in": 3, "kept": 1, "dropped": {"no_tokens": 2}, "failed": {}}
    assert TokenShards(tmp_path / "tokens").n_documents == 1


@pytest.mark.parametrize("parts", [[], [[]], [[], []]])
def test_an_empty_corpus_packs_to_an_empty_set(parts: list[list[Any]], tmp_path: Path, byte_tokenizer: Any) -> None:
    tokens = pack_here(write_corpus(tmp_path / "corpus", parts), tmp_path / "tokens")
    assert (tokens.records, len(tokens.parts)) == (0, len(parts))
    shards = TokenShards(tmp_path / "tokens")
    shards.verify()
    assert (len(shards), shards.n_tokens, shards.vocab_size) == (0, 0, 257)


def test_a_document_the_tokenizer_fails_on_is_counted_and_the_others_stay(
    corpus: str, tmp_path: Path, byte_tokenizer: ByteTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = byte_tokenizer.encode_numpy

    def failing(text: str) -> Any:
        if text == "two":
            raise ValueError("no two today")
        return encode(text)

    monkeypatch.setattr(byte_tokenizer, "encode_numpy", failing)
    tokens = pack_here(corpus, tmp_path / "tokens")
    assert tokens.counts.failed == {"raised": 1}
    assert [failure.id for failure in tokens.failures(0)] == ["c"]
    assert text_of(TokenShards(tmp_path / "tokens")) == "|one|three"


def test_a_full_shard_is_followed_by_another_and_documents_are_not_cut(tmp_path: Path, byte_tokenizer: Any) -> None:
    """With 8 tokens per shard: '|abc|def' is full, '|ghijklmnop' is longer than any and gets its own, then '|q'."""
    texts = ["abc", "def", "ghijklmnop", "q"]
    corpus = write_corpus(tmp_path / "corpus", [[document(t, t) for t in texts], [document("z", "z")]])
    pack_here(corpus, tmp_path / "tokens", shard_tokens=8)
    shards = TokenShards(tmp_path / "tokens")
    assert shards.names == ["train-00000.tok", "train-00000-1.tok", "train-00000-2.tok", "train-00001.tok"]
    assert [len(shards.tokens(i)) for i in range(4)] == [8, 11, 2, 2]
    assert text_of(shards) == "|abc|def|ghijklmnop|q|z"
    shards.verify()


TEXTS = st.lists(st.tuples(st.text(st.characters(max_codepoint=90), max_size=12), st.booleans()), max_size=8)


@given(parts=st.lists(TEXTS, max_size=4), shard_tokens=st.integers(1, 30))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_document_comes_back_whole_from_its_split(
    tmp_path_factory: pytest.TempPathFactory,
    byte_tokenizer: Any,
    parts: list[list[tuple[str, bool]]],
    shard_tokens: int,
) -> None:
    folder = tmp_path_factory.mktemp("t")
    rows = [
        [document(f"{p}-{i}", text, "train" if train else "validation") for i, (text, train) in enumerate(part)]
        for p, part in enumerate(parts)
    ]
    tokens = pack_here(write_corpus(folder / "corpus", rows), folder / "tokens", shard_tokens=shard_tokens)
    assert tokens.counts.balanced
    for split in ("train", "validation"):
        shards = TokenShards(folder / "tokens", split)
        shards.verify()
        expected = [(d["id"], d["text"]) for part in rows for d in part if d["split"] == split and d["text"]]
        found = [(d.id, bytes(d.tokens[1:].astype(np.uint8)).decode()) for d in shards.documents()]
        assert found == expected


def test_packing_twice_changes_nothing_and_redoes_nothing(
    corpus: str, tmp_path: Path, byte_tokenizer: ByteTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_here(corpus, tmp_path / "tokens")
    before = files(tmp_path / "tokens")
    monkeypatch.setattr(byte_tokenizer, "encode_numpy", None)
    pack_here(corpus, tmp_path / "tokens")
    assert files(tmp_path / "tokens") == before


def test_another_tokenizer_packs_again(corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        tokenizer = ByteTokenizer(name=name)
        monkeypatch.setattr(pack, "load_tokenizer", lambda _, tokenizer=tokenizer: tokenizer)
        pack_here(corpus, tmp_path / "tokens")
        assert TokenShards(tmp_path / "tokens").tokenizer_hash == tokenizer.hash


def test_a_tokenizer_without_end_of_text_is_refused(corpus: str, tmp_path: Path, byte_tokenizer: ByteTokenizer) -> None:
    byte_tokenizer.eot_id = None
    with pytest.raises(InputError, match=r"the tokenizer 'tokenizer.json' has no <\|endoftext\|> token"):
        pack_here(corpus, tmp_path / "tokens")


def test_a_document_of_an_unknown_split_is_rejected_with_its_id(tmp_path: Path, byte_tokenizer: Any) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[document("a", "x", "test")]])
    with pytest.raises(InputError, match=r"document a in '.*part-00000\.parquet' has split 'test'"):
        pack_here(corpus, tmp_path / "tokens")
    assert not list((tmp_path / "tokens").glob("*.tok"))


def test_a_foreign_or_altered_set_is_refused(corpus: str, tmp_path: Path, byte_tokenizer: Any) -> None:
    tokens = tmp_path / "tokens"
    pack_here(corpus, tokens)
    with pytest.raises(InputError, match="contains tokens, not corpus or documents"):
        pack_here(str(tokens), tmp_path / "again")
    part = Path(corpus) / "part-00001.parquet"
    part.write_bytes(part.read_bytes()[::-1])
    with pytest.raises(InputError, match=r"part-00001\.parquet' was altered"):
        pack_here(corpus, tmp_path / "again")


def test_shard_tokens_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"shard_tokens = 0: expected at least 1"):
        pack.PackSettings(shard_tokens=0)


def test_the_bytes_of_a_shard_are_pinned(corpus: str, tmp_path: Path, byte_tokenizer: Any) -> None:
    """If this changes, raise CODE_VERSION, so that older sets are packed again."""
    pack_here(corpus, tmp_path / "tokens")
    assert pack.CODE_VERSION == 4
    assert hashlib.sha256((tmp_path / "tokens" / "train-00000.tok").read_bytes()).hexdigest() == GOLDEN


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("method", ["shardfile.ShardWriter.append", "format.ShardHeader.to_bytes"])
def test_a_disk_that_fills_up_is_named_nothing_is_published_and_a_rerun_resumes(
    corpus: str, tmp_path: Path, byte_tokenizer: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    out = tmp_path / "tokens"
    with monkeypatch.context() as patch:
        patch.setattr(f"webtext.shards.{method}", _full)
        with pytest.raises(MachineError, match=r"no space left while writing '.*/(train|validation)-00000\.tok'"):
            pack_here(corpus, out)
    assert [path.name for path in out.rglob("*") if path.is_file()] == []
    pack_here(corpus, out)
    pack_here(corpus, tmp_path / "undisturbed")
    assert files(out) == files(tmp_path / "undisturbed")


def test_a_file_above_the_limit_on_sizes_is_named_and_nothing_is_published(tmp_path: Path, byte_tokenizer: Any) -> None:
    """The system rejects 40,000 bytes of tokens, since a file may have 20,000; this needs no full disk."""
    corpus = write_corpus(tmp_path / "corpus", [[document("a", "x" * 20_000)]])
    before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(MachineError, match=r"train-00000\.tok' exceeds the limit.*\nraise the limit"):
            pack_here(corpus, tmp_path / "tokens")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert [path.name for path in (tmp_path / "tokens").rglob("*") if path.is_file()] == []
