"""The settings of `webtext crawl refresh`. Apart from the code, so that `--help` loads no network code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from webtext.base.config import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshSettings:
    """Which posts still count. All else of the rule is as the links were collected."""

    min_karma: int | None | Literal["same"] = setting(
        "same", "keep posts with at least this score today; same: as the links were collected"
    )
