"""Writer for the token files of one split in one part of a token set."""

from __future__ import annotations

from typing import Protocol

from webtext.base.parts.partwriter import PartWriter
from webtext.base.storage import no_space_is_an_error
from webtext.shards.format import Tokens, shard_name
from webtext.shards.shardfile import ShardWriter


class Vocabulary(Protocol):
    """What a token file stores about its tokenizer."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def eot_id(self) -> int | None: ...
    @property
    def hash(self) -> str: ...


class SplitWriter:
    """Writes one split of one part: opens a token file for the first document, and another when a file is full."""

    def __init__(self, split: str, part: int, writer: PartWriter, vocabulary: Vocabulary, shard_tokens: int) -> None:
        self._split = split
        self._part = part
        self._writer = writer
        self._vocabulary = vocabulary
        self._shard_tokens = shard_tokens
        self._shard: ShardWriter | None = None
        self._name = ""
        self._n_shards = 0

    def append(self, tokens: Tokens) -> tuple[str, int]:
        """Write one document; return its shard's name and its start in the shard."""
        shard = self._shard
        if shard is not None and shard.n_tokens + len(tokens) + 1 > self._shard_tokens:
            self._close(finish=True)
        if self._shard is None:
            self._open()
        assert self._shard is not None
        try:
            return self._name, self._shard.append(tokens)
        except OSError:
            with no_space_is_an_error(self._writer.folder.location(self._name)):
                raise

    def __enter__(self) -> SplitWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(finish=kind is None)

    def _open(self) -> None:
        assert self._vocabulary.eot_id is not None
        self._name = shard_name(self._split, self._part, self._n_shards)
        self._n_shards += 1
        self._shard = ShardWriter(
            self._writer.attach(self._name),
            vocab_size=self._vocabulary.vocab_size,
            eot_id=self._vocabulary.eot_id,
            tokenizer_hash=self._vocabulary.hash,
        )

    def _close(self, *, finish: bool) -> None:
        if self._shard is not None:
            with no_space_is_an_error(self._writer.folder.location(self._name)):
                self._shard.close(finish=finish)
            if finish:
                self._writer.describe(self._name, self._shard.in_manifest())
            self._shard = None
