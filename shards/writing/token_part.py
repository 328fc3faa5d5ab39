"""Writer for one part of a token set: the token files of its splits, and the rows of the document index."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from webtext.base.parts.partwriter import PartWriter
from webtext.base.storage import no_space_is_an_error
from webtext.shards.format import Tokens, shard_name
from webtext.shards.shardfile import ShardWriter

NO_TOKENS = "no_tokens"
BATCH_ROWS = 256


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """The facts that a token file stores about its tokenizer."""

    vocab_size: int
    eot_id: int
    tokenizer_hash: str


class TokenPartWriter:
    """Writes documents to the token files of their splits, and an index row for each; use it as a context manager."""

    def __init__(self, writer: PartWriter, vocabulary: TokenizerInfo, shard_tokens: int) -> None:
        self._writer = writer
        self._vocabulary = vocabulary
        self._shard_tokens = shard_tokens
        self._splits: dict[str, _SplitWriter] = {}
        self._rows: list[dict[str, Any]] = []

    def add(self, split: str, tokens: Tokens, *, id: str, source_part: str, row: int) -> None:
        """Write a document without its end-of-text, and count it as kept."""
        if split not in self._splits:
            self._splits[split] = _SplitWriter(split, self._writer, self._vocabulary, self._shard_tokens)
        shard, start = self._splits[split].append(tokens)
        self._writer.counts.keep()
        place = {"shard": shard, "start": start, "length": len(tokens) + 1}
        self._rows.append({**place, "id": id, "source_part": source_part, "row": row})
        if len(self._rows) == BATCH_ROWS:
            self._flush()

    def __enter__(self) -> TokenPartWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for split in self._splits.values():
            split.close(finish=kind is None)
        if kind is None:
            self._flush()

    def _flush(self) -> None:
        self._writer.write(self._rows)
        self._rows = []


class _SplitWriter:
    """Writes the token files of one split: opens one for the first document, and another when a file is full."""

    def __init__(self, split: str, writer: PartWriter, vocabulary: TokenizerInfo, shard_tokens: int) -> None:
        self._split = split
        self._writer = writer
        self._vocabulary = vocabulary
        self._shard_tokens = shard_tokens
        self._shard: ShardWriter | None = None
        self._name = ""
        self._n_shards = 0

    def append(self, tokens: Tokens) -> tuple[str, int]:
        """Write one document; return its shard's name and its start in the shard."""
        if self._shard is not None and self._shard.n_tokens + len(tokens) + 1 > self._shard_tokens:
            self.close(finish=True)
        if self._shard is None:
            self._name = shard_name(self._split, self._writer.index, self._n_shards)
            self._n_shards += 1
            self._shard = ShardWriter(self._writer.attach(self._name), **asdict(self._vocabulary))
        try:
            return self._name, self._shard.append(tokens)
        except OSError:
            with no_space_is_an_error(self._writer.folder.location(self._name)):
                raise

    def close(self, *, finish: bool) -> None:
        if self._shard is not None:
            with no_space_is_an_error(self._writer.folder.location(self._name)):
                self._shard.close(finish=finish)
            if finish:
                self._writer.describe(self._name, self._shard.in_manifest())
            self._shard = None
