"""The demo's plan: the pages and links planted in its web, the outcome expected for each, and the dump of their posts.

The plan depends only on the names of the rendered pages and the port, so the server, the dump and the check agree.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from webtext.base.parts.identifiers import link_id, split_of

HOSTS = tuple(f"127.0.0.{i}" for i in range(1, 9))
CANARY = "zebrafinch quillwort canary seven four one"
"""Occurs only on a held-out page; it must reach neither the tokenizer nor the training tokens."""

RESERVED = ("topic-import", "topic-formatstrings", "topic-typesmapping")
"""Pages served only at planted addresses: behind redirects, and with the canary."""

WINDOW_LOG = 27
SUBREDDITS = ("programming", "python", "learnpython", "compsci")
BAD_LINES = ('{"id": "cut", "score": 5, "url": "http:', "[1, 2, 3]")
NEW_YEAR = 1_483_228_800  # 2017-01-01T00:00:00Z
ODD_ROWS: tuple[dict[str, Any], ...] = (
    {"id": "null1", "score": None, "url": "http://127.0.0.1/null-score", "created_utc": NEW_YEAR, "is_self": False},
    {"id": "null2", "score": 9, "url": None, "created_utc": NEW_YEAR, "is_self": False, "over_18": False},
)
"""Real dumps also contain truncated lines, null scores and null addresses."""

Content = Literal[
    "page", "copy", "edited", "short", "german", "canary", "redirect", "missing", "pdf", "endless", "deep"
]
Stage = Literal["links", "pages", "documents", "dropped", "corpus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One URL of the demo: the server's answer, its votes, and the stage and reason where it must end."""

    label: str
    url: str
    content: Content = "page"
    page: str = ""  # name of the rendered page it shows, copies or redirects to
    score: int = 10
    created: int = NEW_YEAR
    over_18: bool = False
    is_self: bool = False
    location: str = ""
    stage: Stage = "corpus"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All URLs of the demo: the plain pages and the planted ones."""

    port: int
    plain: tuple[Planted, ...]
    planted: tuple[Planted, ...]

    @property
    def all(self) -> tuple[Planted, ...]:
        """The plain pages, then the planted ones."""
        return self.plain + self.planted


def make_plan(names: Sequence[str], port: int) -> Plan:
    """Spread the rendered pages over the hosts and add the planted URLs."""
    plain = tuple(
        Planted(label=name, url=_plain_url(names, name, port), page=name, score=4 + _number(name) % 4000)
        for name in names
        if name not in RESERVED
    )
    return Plan(port, plain, tuple(_planted(names, port)))


def _planted(names: Sequence[str], port: int) -> list[Planted]:
    original, second, third = (n for n in ("argparse", "logging", "unittest.mock") if n in names)
    behind_redirect, behind_escape, under_canary = RESERVED

    def url(host: int, path: str) -> str:
        return _url(host, port, path)

    def url_beside(host: int, stem: str, name: str) -> str:
        """Return a URL in the same split as the page `name`, so that dedup across splits doesn't apply."""
        return _numbered_url(host, port, stem, split_of(link_id(_plain_url(names, name, port))))

    def copy_url(host: int, name: str) -> str:
        """Return a URL for a copy, so that only karma decides between the copy and its original."""
        return url_beside(host, f"copy-of-{name}", name)

    late = 1_514_764_800  # 2018-01-01T00:00:00Z, the first second after the cutoff
    return [
        Planted(label="mirror of a page", url=copy_url(3, original), content="copy", page=original, score=3,
                stage="dropped", reason="exact_duplicate"),
        Planted(label="mirror on another host", url=copy_url(5, second), content="copy", page=second, score=3,
                stage="dropped", reason="exact_duplicate"),
        Planted(label="lightly edited copy", url=copy_url(6, third), content="edited", page=third, score=3,
                stage="dropped", reason="near_duplicate"),
        Planted(label="Wikipedia link", url="https://en.wikipedia.org/wiki/WebText", stage="links", reason="wikipedia"),
        Planted(label="two points of karma", url=url(0, "/low-karma.html"), score=2, stage="links", reason="too_little_karma"),
        Planted(label="over 18", url=url(0, "/over-18.html"), over_18=True, stage="links", reason="over_18"),
        Planted(label="self post", url="https://www.reddit.com/r/demo/comments/a/b/", is_self=True,
                stage="links", reason="self_post"),
        Planted(label="posted in 2018", url=url(0, "/late.html"), created=late, stage="links", reason="too_late"),
        Planted(label="forbidden by robots.txt", url=url(1, "/private/page.html"), stage="pages", reason="robots_disallowed"),
        Planted(label="redirect to a page nobody linked", url=url(2, "/moved"), content="redirect",
                location=url(4, f"/unlinked/{behind_redirect}.html"), stage="corpus"),
        Planted(label="redirect to a page that is a link too", url=url_beside(2, "also-moved", second),
                content="redirect",
                location=_plain_url(names, second, port), stage="pages", reason="redirects_to_link"),
        Planted(label="redirect into a private network", url=url(2, "/inward"), content="redirect",
                location="http://10.0.0.1/", stage="pages", reason="address_not_public"),
        Planted(label="404", url=url(3, "/gone.html"), content="missing", stage="pages", reason="http_404"),
        Planted(label="PDF", url=url(4, "/paper"), content="pdf", stage="pages", reason="not_text"),
        Planted(label="page that never ends", url=url(5, "/endless"), content="endless", stage="pages", reason="too_large"),
        Planted(label="100,000 nested elements", url=url(6, "/deep.html"), content="deep", stage="documents", reason="too_deep"),
        Planted(label="too short", url=url(7, "/short.html"), content="short", stage="dropped", reason="too_few_words"),
        Planted(label="German page", url=url(7, "/deutsch.html"), content="german", stage="dropped", reason="other_language"),
        Planted(label="held-out page with a canary", url=_numbered_url(4, port, "held-out", "validation"),
                content="canary", page=under_canary, stage="corpus"),
        Planted(label="HTML-escaped URL", url=url(0, "/docs/escaped?module=json&view=full"), content="redirect",
                location=url(4, f"/unlinked/{behind_escape}.html"), stage="corpus"),
    ]  # fmt: skip


def robots_txt(host: str) -> str:
    """Return a host's robots.txt; the second host's disallows a folder."""
    return "User-agent: *\nDisallow: /private/\n" if host == HOSTS[1] else "User-agent: *\nDisallow:\n"


def _url(host: int, port: int, path: str) -> str:
    return f"http://{HOSTS[host % len(HOSTS)]}:{port}{path}"


def _plain_url(names: Sequence[str], name: str, port: int) -> str:
    return _url(names.index(name), port, f"/docs/{name}.html")


def _numbered_url(host: int, port: int, stem: str, split: str) -> str:
    """Return the first numbered address that the keyed hash assigns to `split`."""
    candidates = (_url(host, port, f"/{stem}-{i}.html") for i in range(10_000))
    return next(url for url in candidates if split_of(link_id(url)) == split)


def _number(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big")


def write_dump(plan: Plan, path: Path) -> None:
    """Write a Reddit submission dump in the format of the public ones: JSON lines in a long-window zstd stream.

    It has a post for every URL of the plan; plain pages with an even number get a second, later post.
    """
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
