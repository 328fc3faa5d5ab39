"""Packing end to end: the real tokenizer, worker processes, the command line, and interrupted runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from webtext.app.main import run as webtext
from webtext.base.run import Run
from webtext.base.workers.local_engine import LocalEngine
from webtext.shards import TokenShards
from webtext.shards.writing.pack import PackSettings, pack_shards

from .conftest import document, write_corpus
from .test_pack import files

TEXTS = [
    "Documents are packed one after the other.",
    "Tokens and text: <|endoftext|> is text here.",
    "naïve café 中文 🙂",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from webtext.tokenizer import Tokenizer

    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    trained = Tokenizer.train(TEXTS * 3, vocab_size=300, special_tokens=["<|endoftext|>"])
    trained.save(path)
    return path, trained


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    parts = [
        [
            document(f"{p}-{i}", f"{TEXTS[(p + i) % 3]} {p} {i}", "validation" if i % 5 == 4 else "train")
            for i in range(12)
        ]
        for p in range(5)
    ]
    return write_corpus(tmp_path / "corpus", parts)


def pack(corpus: str, tokenizer: Any, out: Path, workers: int) -> Path:
    run = Run.quiet(workers)
    try:
        pack_shards(corpus, str(tokenizer[0]), str(out), PackSettings(shard_tokens=150), run)
    finally:
        if isinstance(run.engine, LocalEngine):
            run.engine.close()
    return out


def test_two_workers_write_the_bytes_of_one(corpus: str, tokenizer: Any, tmp_path: Path) -> None:
    one, two = (pack(corpus, tokenizer, tmp_path / str(n), n) for n in (1, 2))
    assert files(one) == files(two)
    assert sum(name.endswith(".tok") for name in files(one)) > 10


def test_every_document_decodes_to_its_text(corpus: str, tokenizer: Any, tmp_path: Path) -> None:
    shards = TokenShards(pack(corpus, tokenizer, tmp_path / "tokens", 1))
    shards.verify()
    shards.check_tokenizer(tokenizer[1])
    texts = {d.id: tokenizer[1].decode(d.tokens[1:].tolist()) for d in shards.documents()}
    assert texts == {f"{p}-{i}": f"{TEXTS[(p + i) % 3]} {p} {i}" for p in range(5) for i in range(12) if i % 5 != 4}


def test_an_interrupted_run_resumes_to_the_same_bytes(corpus: str, tokenizer: Any, tmp_path: Path) -> None:
    """Half of a part, a part without its entry and a temporary file, as kill -9 leaves them."""
    out = pack(corpus, tokenizer, tmp_path / "tokens", 1)
    whole = files(out)
    (out / "manifest.json").unlink()
    (out / "_parts" / "00001.json").unlink()
    (out / "train-00003.tok").write_bytes(b"half")
    (out / ".train-00004.tok.1.tmp").write_bytes(b"left over")
    kept = (out / "train-00000.tok").stat().st_mtime_ns
    assert files(pack(corpus, tokenizer, out, 2)) == whole
    assert (out / "train-00000.tok").stat().st_mtime_ns == kept


def test_the_command_packs_and_answers(corpus: str, tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    arguments = ["shards", "pack", corpus, "--tokenizer", str(tokenizer[0]), "--out", str(tmp_path / "tokens")]
    assert webtext([*arguments, "--workers", "1", "--dry-run"]) == 0
    assert "5 to do" in capsys.readouterr().err
    assert not (tmp_path / "tokens").exists()
    assert webtext([*arguments, "--workers", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["kept"] == 60
    assert found["splits"]["validation"]["documents"] == 10
    assert found["vocab_size"] == tokenizer[1].vocab_size
