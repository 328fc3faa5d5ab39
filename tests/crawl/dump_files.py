"""Small dumps of Reddit's submissions, and what a links set made from them contains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from webtext.base.parts.partset import PartSet
from webtext.crawl.links.sources.submission import Submission

BASE = {"url": "http://example.com/a", "score": 10, "created_utc": 1_400_000_000, "subreddit": "books"}
BASE |= {"is_self": False, "over_18": False}


def post(post_id: str, url: str | None = "http://example.com/a", **fields: object) -> dict[str, Any]:
    return {**BASE, "id": post_id, "url": url, **fields}


def dump(path: Path, *rows: dict[str, Any] | bytes) -> str:
    """Write rows, whose fields are completed, and lines as they are. Returns the path."""
    rows = tuple(row if isinstance(row, bytes) else {**BASE, "id": f"{i:x}", **row} for i, row in enumerate(rows))
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return str(path)


def submission(**fields: Any) -> Submission:
    """Return a post of Reddit's without any value, but with these fields."""
    given = {"source": "reddit", "post_id": "x", "url": "http://a.com/", "is_self": False, "over_18": False, **fields}
    return Submission(**dict.fromkeys(("subreddit", "score", "created", "retrieved")) | given)  # type: ignore[arg-type]


def rows_of(links: PartSet) -> list[dict[str, Any]]:
    return [row for part in links.parts for row in links.table(part).to_pylist()]


def by_url(links: PartSet) -> dict[str, dict[str, Any]]:
    return {row["url"]: row for row in rows_of(links)}


def counts_of(links: PartSet) -> dict[str, Any]:
    assert links.counts.balanced
    return links.counts.to_json()


def files_of(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != "run.json"}
