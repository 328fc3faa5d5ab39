"""A generated corpus, a tokenizer of single bytes, and an engine that runs parts in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from part_sets import document, made_set

from webtext.base.console import Console
from webtext.base.parts.recipe import Recipe
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Run
from webtext.base.workers.attempt import Attempt
from webtext.shards.format import shard_name
from webtext.shards.reader import TokenShards
from webtext.shards.settings import FileSettings
from webtext.shards.shardfile import ShardWriter
from webtext.shards.writing import pack

FACTS: dict[str, Any] = {"vocab_size": 50_257, "eot_id": 50_256, "tokenizer_hash": "ab" * 32}


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
            on_done(i, function(Attempt(), task))
        return []


def write_corpus(folder: Path, parts: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Write a sealed part set of kind corpus with these documents."""
    return made_set(folder, "corpus", parts).folder.url


@pytest.fixture
def byte_tokenizer(monkeypatch: pytest.MonkeyPatch) -> ByteTokenizer:
    """Make `webtext shards pack` load this tokenizer for every path."""
    tokenizer = ByteTokenizer()
    monkeypatch.setattr(pack, "load_tokenizer", lambda _: tokenizer)
    return tokenizer


def make_set(
    folder: Path, n_shards: int, documents: int = 200, splits: Sequence[str] = ("train",), length: int = 100
) -> str:
    """Write shards with documents of 100 random tokens, two bytes each; the rows of the index state `length`."""
    tokens = SetWriter(str(folder), "tokens", Recipe(stage="test", code_version=1, settings=FACTS))
    parts, random = [], np.random.default_rng(0)
    for number in range(n_shards):
        with tokens.part(number, key=str(number)) as part:
            for split in splits:
                name = shard_name(split, number)
                with ShardWriter(part.attach(name), **FACTS) as shard:
                    starts = [shard.append(random.integers(0, 50_000, 99, np.uint16)) for _ in range(documents)]
                part.describe(name, shard.in_manifest())
                source = {"shard": name, "length": length, "source_part": "part-00000.parquet"}
                part.write([source | {"start": at, "id": f"{number}-{i}", "row": i} for i, at in enumerate(starts)])
            parts.append(part.publish())
    tokens.seal(parts)
    return str(folder)


def upload(folder: str) -> str:
    """Copy a set to a store in memory, in place of what is there; return its URL."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    for path in Path(folder).iterdir():
        if path.is_file():
            files.pipe(f"/bucket/tokens/{path.name}", path.read_bytes())
    return "memory://bucket/tokens"


def flip(location: str, token: int) -> None:
    """Change a bit of a token of two bytes, or of what follows the tokens."""
    content, at = bytearray(Path(location).read_bytes()), 256 + 2 * token
    content[at] ^= 4
    Path(location).write_bytes(content)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for copies of files in stores; nothing is in it."""
    monkeypatch.setenv("WEBTEXT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def quiet() -> Run:
    return Run(InProcessEngine(), Console("quiet"))


def pack_here(corpus: str, out: Path | str, **settings: Any) -> Any:
    return pack.pack_shards(corpus, "tokenizer.json", str(out), pack.PackSettings(**settings), quiet())


def pack_files_here(paths: Sequence[Path | str], out: Path, **settings: Any) -> Any:
    """Pack files in this process; `settings` are those for files."""
    files = FileSettings(**settings)
    return pack.pack_shards([*map(str, paths)], "tokenizer.json", str(out), pack.PackSettings(), quiet(), files)


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
