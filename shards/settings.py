"""The settings of packing: the section [shards]."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting
from webtext.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class PackSettings:
    """Settings of the token files."""

    shard_tokens: int = setting(100_000_000, "maximum tokens per token file; a document is never split")

    def __post_init__(self) -> None:
        if self.shard_tokens < 1:
            raise ConfigError(f"[shards] shard_tokens = {self.shard_tokens}: expected at least 1")
