"""The settings of packing: the sections [shards] and [shards.files]."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError
from webtext.base.parts.identifiers import VALIDATION_RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class PackSettings:
    """Settings of the token files."""

    shard_tokens: int = setting(100_000_000, "maximum tokens per token file")

    def __post_init__(self) -> None:
        if self.shard_tokens < 1:
            raise ConfigError(f"[shards] shard_tokens = {self.shard_tokens}: expected at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """Settings of `shards pack` for files; a part set has its documents and splits."""

    text_field: str = setting("text", "field or column with the text")
    separator: str | None = setting(None, r"text between documents, e.g. \n  [default: a file is one]")
    encoding: str = setting("utf-8", "encoding of files, or auto")
    validation_ratio: float = setting(VALIDATION_RATIO, "share of documents held out")

    def __post_init__(self) -> None:
        if self.separator == "":
            raise ConfigError("[shards.files] separator is empty", "leave it out to make each file one document")
        if not 0 <= self.validation_ratio < 1:
            raise ConfigError(f"[shards.files] validation_ratio = {self.validation_ratio}: expected 0 to below 1")
