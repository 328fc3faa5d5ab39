"""Write a Reddit submission dump in the format of the public ones: JSON lines in a long-window zstd stream."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from webtext.app.demo.plan import Plan, Planted

WINDOW_LOG = 27
SUBREDDITS = ("programming", "python", "learnpython", "compsci")
BAD_LINES = ('{"id": "cut", "score": 5, "url": "http:', "[1, 2, 3]")
ODD_ROWS: tuple[dict[str, Any], ...] = (
    {
        "id": "null1",
        "score": None,
        "url": "http://127.0.0.1/null-score",
        "created_utc": 1_483_228_800,
        "is_self": False,
    },
    {"id": "null2", "score": 9, "url": None, "created_utc": 1_483_228_800, "is_self": False, "over_18": False},
)
"""Real dumps also contain truncated lines, null scores and null addresses."""


def write_dump(plan: Plan, path: Path) -> None:
    """Write a post for every URL of the plan; plain pages with an even number get a second, later post."""
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(9, window_log=WINDOW_LOG)
    with (
        open(path, "wb") as file,
        zstandard.ZstdCompressor(compression_params=parameters).stream_writer(file) as stream,
    ):
        for line in _lines(plan):
            stream.write(line.encode() + b"\n")


def _lines(plan: Plan) -> Iterator[str]:
    for i, page in enumerate(plan.all):
        yield json.dumps(_row(i, page), sort_keys=True)
        if i % 2 == 0 and page in plan.plain:
            yield json.dumps(_row(len(plan.all) + i, page) | {"score": 4, "subreddit": "copies"}, sort_keys=True)
    yield from BAD_LINES
    for row in ODD_ROWS:
        yield json.dumps(row)


def _row(number: int, page: Planted) -> dict[str, Any]:
    created = page.created + number
    return {
        "id": f"d{number:05d}",
        "author": "someone",
        "created_utc": str(created) if number % 10 == 0 else created,  # sometimes a string, as in 2014 and 2015
        "domain": "self.demo" if page.is_self else page.url.split("/")[2],
        "is_self": page.is_self,
        "num_comments": number % 7,
        "over_18": page.over_18,
        "retrieved_on": created + 3_000_000,
        "score": page.score,
        "subreddit": SUBREDDITS[number % len(SUBREDDITS)],
        "title": page.label,
        "url": html.escape(page.url, quote=False),  # dumps escape &, < and >
    }
