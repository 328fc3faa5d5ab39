"""Writes the posts that vote for the pages: a Reddit dump made from the packages, with declared stand-ins for people's votes.

score = log2(1 + packages that depend on the package's source) + pages of the same package that link to the page. Every 5th
page is posted twice, every 33rd also under an old address that redirects to it, and beside every 50th a page is posted that
is gone.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import zstandard

DUMP = "RS_2017-01.zst"
OLD, GONE = "/old/", "/gone/"  # paths that the site answers with a redirect and with 404
_LINK = re.compile(rb"""href\s*=\s*["']?([^"'#?>\s:]+)""", re.IGNORECASE)
_JANUARY_2017 = 1_483_228_800


def number_of(text: str) -> int:
    """A number that depends on the text alone: what is planted where."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def write_votes(out: Path, site: dict[str, Any]) -> None:
    """Write the dump, and `links.tsv`: URL, what it leads to (page, old or gone), score."""
    if (out / DUMP).exists():
        return
    count = 0
    with (
        open(out / "links.tsv", "w", encoding="utf-8") as links,
        open(out / "dump.partial", "wb") as file,
        zstandard.ZstdCompressor(9).stream_writer(file, closefd=False) as dump,
    ):
        for package in site["packages"]:
            for url, leads_to, score in _links(out / "site" / package["name"], package, site["port"]):
                links.write(f"{url}\t{leads_to}\t{score}\n")
                for again in range(1 + (number_of(url) % 5 == 0)):
                    count += 1
                    dump.write(json.dumps(_post(count, url, package["name"], score - again)).encode() + b"\n")
    (out / "dump.partial").rename(out / DUMP)


def _links(folder: Path, package: dict[str, Any], port: int) -> Iterator[tuple[str, str, int]]:
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    inbound = Counter(target for path in paths for target in _targets(folder, path))
    origin = f"http://{package['address']}:{port}"
    for path in paths:
        score = round(math.log2(1 + package["dependents"])) + inbound[path]
        number, address = number_of(path), quote(path)
        yield f"{origin}/{address}", "page", score
        if number % 33 == 0:
            yield f"{origin}{OLD}{address}", "old", score
        if number % 50 == 0:
            yield f"{origin}{GONE}{address}", "gone", score


def _targets(folder: Path, path: str) -> set[str]:
    """The pages of the same package that a page links to."""
    base = posixpath.dirname(path)
    hrefs = _LINK.findall((folder / path).read_bytes())
    return {posixpath.normpath(posixpath.join(base, unquote(href.decode("latin-1")))) for href in set(hrefs)} - {path}


def _post(number: int, url: str, title: str, score: int) -> dict[str, Any]:
    created = _JANUARY_2017 + number
    return {
        "id": f"p{number:06d}",
        "author": "someone",
        "created_utc": created,
        "domain": url.split("/")[2],
        "is_self": False,
        "num_comments": 0,
        "over_18": False,
        "retrieved_on": created + 3_000_000,
        "score": score,
        "subreddit": "documentation",
        "title": title,
        "url": html.escape(url, quote=False),  # as Reddit's dumps do
    }
