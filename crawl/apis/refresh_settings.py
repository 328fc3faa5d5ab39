"""Settings of `webtext crawl refresh`, in a file of their own so that `--help` loads no network code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from webtext.base.config import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshSettings:
    """Which posts still count. All other values of the rule come from the links set."""

    min_karma: int | None | Literal["same"] = setting(
        "same", "keep posts with at least this score today; same: the threshold of the links set"
    )
