"""A generated corpus, a tokenizer of single bytes, and an engine that runs parts in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webtext.base.console import Console
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partwriter import SetWriter
from webtext.base.parts.recipe import Recipe
from webtext.base.run import Run
from webtext.base.workers.journal import Journal
from webtext.shards.reading.reader import TokenShards
from webtext.shards.settings import FileSettings
from webtext.shards.writing import pack


class ByteTokenizer:
    """Each byte is its own token; 256 is end-of-text. `vocab_size` may be larger, to cross the u16 boundary."""

    def __init__(self, vocab_size: int = 257, name: str = "bytes") -> None:
        self.vocab_size = vocab_size
        self.eot_id: int | None = vocab_size - 1
        self.hash = hashlib.sha256(f"{name} {vocab_size}".encode()).hexdigest()

    def encode_numpy(self, text: str) -> Any:
        return np.frombuffer(text.encode(), np.uint8).astype(np.uint16 if self.vocab_size <= 65_536 else np.uint32)

    def decode(self, ids: Sequence[int], errors: str = "replace") -> str:
        return "".join("<|endoftext|>" if i == self.eot_id else chr(i) for i in ids)


class InProcessEngine:
    """Runs every part in this process, in order."""

    workers = 1

    def map(self, function: Callable[..., Any], tasks: Sequence[Any], *, on_done: Any, **_: Any) -> list[Any]:
        for i, task in enumerate(tasks):
            on_done(i, function(Journal(), task))
        return []


def document(identifier: str, text: str, split: str = "train") -> dict[str, Any]:
    return {
        "id": identifier,
        "link_ids": [],
        "posts": [],
        "text": text,
        "text_digest": text_digest(text),
        "split": split,
    }


def write_corpus(folder: Path, parts: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Write a sealed part set of kind corpus with these documents."""
    corpus = SetWriter(str(folder), "corpus", Recipe(stage="test", code_version=1, settings={}))
    made = []
    for index, rows in enumerate(parts):
        with corpus.part(index, key=f"part {index}") as part:
            part.write(rows)
            made.append(part.publish())
    corpus.seal(made)
    return str(folder)


@pytest.fixture
def byte_tokenizer(monkeypatch: pytest.MonkeyPatch) -> ByteTokenizer:
    """Make `webtext shards pack` load this tokenizer for every path."""
    tokenizer = ByteTokenizer()
    monkeypatch.setattr(pack, "load_tokenizer", lambda _: tokenizer)
    return tokenizer


def pack_here(corpus: str, out: Path | str, **settings: Any) -> Any:
    run = Run(InProcessEngine(), Console("quiet"))
    return pack.pack_shards(corpus, "tokenizer.json", str(out), pack.PackSettings(**settings), run)


def pack_files_here(paths: Sequence[Path | str], out: Path, **settings: Any) -> Any:
    """Pack files in this process; `settings` are those for files."""
    run, files = Run(InProcessEngine(), Console("quiet")), FileSettings(**settings)
    return pack.pack_shards([*map(str, paths)], "tokenizer.json", str(out), pack.PackSettings(), run, files)


@pytest.fixture
def shards_of(tmp_path: Path, byte_tokenizer: ByteTokenizer) -> Callable[..., TokenShards]:
    """shards_of([["text", ...], ...]) packs one part for each list of training texts and opens it."""

    def make(
        parts: Sequence[Sequence[str]], split: str = "train", folder: str = "tokens", **settings: Any
    ) -> TokenShards:
        rows = [[document(f"{p}-{i}", text, split) for i, text in enumerate(texts)] for p, texts in enumerate(parts)]
        pack_here(write_corpus(tmp_path / "corpus", rows), tmp_path / folder, **settings)
        return TokenShards(tmp_path / folder, split)

    return make
