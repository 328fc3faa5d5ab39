"""Inputs that name a listing of Reddit's, and its answers as files: requested once, and then read like a dump.

    reddit:r/programming/top?t=year      a listing (hot, new, top, rising or controversial) of subreddits (r/a+b),
    reddit:domain/example.org/new        of posts that link to a site, or of all of Reddit (reddit:top?t=all)

The answers are kept in `harvest/` beside the links set, in one folder per input, so `crawl links` stays a function of
files:

    HARVEST/harvest.json                     the request: written first, never changed
    HARVEST/00000.t3_88.harvest.jsonl.zst    answers; the name contains the cursor of the next file
    HARVEST/00001.end.harvest.jsonl.zst      the last file

Each line is `{"api": "reddit", "retrieved": UTC seconds, "data": the post as the API returned it}`. A file is published
by rename, so a harvest that was killed only repeats requests whose answers are in no file. `crawl/links/sources/reddit.py` reads
the files.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import zstandard

from webtext.base.console import Progress
from webtext.base.errors import ConfigError, DryRun, InputError
from webtext.base.run import Run
from webtext.base.storage import Folder, check_version
from webtext.crawl.links.reddit_api.listing import Credentials, Reddit, open_reddit
from webtext.crawl.links.settings import ApiSettings

PREFIX = "reddit:"
SORTS = ("hot", "new", "top", "rising", "controversial")
PERIODS = ("hour", "day", "week", "month", "year", "all")
_LISTING = re.compile(
    r"(?:r/[A-Za-z0-9_]{2,50}(?:\+[A-Za-z0-9_]{2,50})*/|domain/[A-Za-z0-9.-]{1,253}/)?" + f"(?:{'|'.join(SORTS)})"
)

FOLDER = "harvest"
ABOUT = "harvest.json"
SUFFIX = ".harvest.jsonl.zst"
END = "end"
FORMAT_VERSION = 1
PART_RECORDS = 10_000
PART_SECONDS = 30.0
"""Seconds of answers per file, which is the most that a killed run has to request again."""

_PART = re.compile(r"(\d{5,9})\.([0-9A-Za-z_]{1,64})" + re.escape(SUFFIX))


@dataclass(frozen=True, slots=True)
class Listing:
    """A listing of Reddit's posts; `period` is the time that `top` and `controversial` cover."""

    path: str
    period: str | None

    @classmethod
    def parse(cls, text: str) -> Listing:
        """Return the listing that an input names. Raises ConfigError for an unknown one.

        >>> Listing.parse("reddit:r/programming/top?t=year")
        Listing(path='r/programming/top', period='year')
        """
        path, _, query = text.removeprefix(PREFIX).strip("/").partition("?")
        path = path.strip("/")
        if not _LISTING.fullmatch(path):
            raise ConfigError(
                f"'{text}' is not a listing of Reddit",
                "write reddit:r/NAME/SORT, reddit:domain/SITE/SORT or reddit:SORT, e.g. reddit:r/programming/top?t=year",
                f"SORT is one of {', '.join(SORTS)}",
            )
        given = parse_qsl(query, keep_blank_values=True)
        period = dict(given).get("t")
        if query and (len(given) != 1 or period not in PERIODS):
            raise ConfigError(
                f"'{text}': '?{query}' is not a period", f"use {', '.join('?t=' + each for each in PERIODS)}"
            )
        return cls(path, period)


def harvest_inputs(inputs: Sequence[str], out: str, settings: ApiSettings, run: Run) -> list[str]:
    """Return the inputs with each listing replaced by the files of its answers; missing answers are requested.

    `out` is the links set to be written. Raises ConfigError if the settings do not allow the requests, and NetworkError
    if the API does not answer; earlier answers are kept.
    """
    asked = {text: Listing.parse(text) for text in dict.fromkeys(inputs) if text.startswith(PREFIX)}
    files = {text: HarvestFiles(_folder(out, text)) for text in asked}
    missing = [text for text in asked if not files[text].is_complete]
    for text in asked.keys() - missing:
        began = datetime.fromtimestamp((files[text].about() or {}).get("began", 0), UTC)
        run.console.say(f"{text}: answers of {began:%Y-%m-%d} in '{files[text].folder.url}'; remove it to ask again")
    if missing:  # before anything is sent
        assert settings.reddit_name
        Credentials.read(settings.reddit_credentials)
    for text in missing:
        if run.dry_run:
            run.console.say(f"{text}: to be harvested into '{files[text].folder.url}'")
            continue
        with files[text].folder.held(), run.console.progress(None, text, "records") as progress:
            files[text].folder.remove_leftovers()
            asyncio.run(_harvest(text, asked[text], files[text], settings, progress))
    if missing and run.dry_run:
        raise DryRun
    return [name for text in inputs for name in (files[text].locations if text in files else [text])]


def _folder(out: str, text: str) -> Folder:
    """Return the folder for an input, beside `out` (in it, if that is a bucket): its name is readable, with a hash."""
    folder = Folder(out)
    above = Path(folder.url).resolve().parent if folder.is_local else re.sub("(?<![:/])/[^/]*$", "", folder.url)
    name = re.sub("[^0-9A-Za-z]+", "-", text).strip("-")[:60]
    return Folder(above).child(FOLDER).child(f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}")


class HarvestFiles:
    """The files of one harvest, and the cursor at which the next one continues."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._parts = self._found()

    @property
    def locations(self) -> list[str]:
        """The files of answers in the order of the requests."""
        return [self.folder.location(name) for name, _ in self._parts]

    @property
    def cursors(self) -> list[str]:
        """The cursor after each file; the last one is END if the harvest is complete."""
        return [cursor for _, cursor in self._parts]

    @property
    def is_complete(self) -> bool:
        return self.cursors[-1:] == [END]

    def about(self) -> dict[str, Any] | None:
        """Return the request that was recorded when the harvest began; None before."""
        if not self.folder.exists(ABOUT):
            return None
        about = self.folder.read_object(ABOUT, "remove the folder to harvest again")
        check_version(about.get("format"), FORMAT_VERSION, self.folder.location(ABOUT))
        return about

    def begin(self, text: str, began: int) -> None:
        self.folder.write_object(ABOUT, {"format": FORMAT_VERSION, "input": text, "began": began})

    def publish(self, lines: list[bytes], cursor: str) -> None:
        """Publish a file with these lines; the next file continues at `cursor`."""
        name = f"{len(self._parts):05d}.{cursor}{SUFFIX}"
        data = zstandard.ZstdCompressor(level=10, write_checksum=True).compress(b"".join(lines))
        self.folder.write_bytes(name, data)
        self._parts.append((name, cursor))

    def _found(self) -> list[tuple[str, str]]:
        parts = [(name, match) for name in self.folder.names(SUFFIX) if (match := _PART.fullmatch(name))]
        found = sorted((int(match[1]), name, match[2]) for name, match in parts)
        numbers = [number for number, _, _ in found]
        if numbers != list(range(len(found))) or any(cursor == END for _, _, cursor in found[:-1]):
            raise InputError(
                f"files are missing in '{self.folder.url}': it contains numbers {numbers[:20]}",
                "remove the folder to harvest again",
            )
        return [(name, cursor) for _, name, cursor in found]


async def _harvest(text: str, listing: Listing, files: HarvestFiles, settings: ApiSettings, progress: Progress) -> None:
    async with open_reddit(settings) as reddit:
        if files.about() is None:
            files.begin(text, int(time.time()))
        await harvest(reddit, listing, files, progress)


async def harvest(reddit: Reddit, listing: Listing, files: HarvestFiles, progress: Progress) -> None:
    """Continue the harvest from its last file to the end, page by page, and publish files on the way.

    After an error or Ctrl-C the answers received so far are published, too.
    """
    query = {"t": listing.period} if listing.period else {}
    cursor = files.cursors[-1] if files.cursors else None
    seen = set(files.cursors)
    lines: list[bytes] = []
    began = time.monotonic()
    try:
        while cursor != END:
            page = await reddit.listing(listing.path, query, cursor)
            lines += [_line(page.read, thing) for thing in page.things]
            cursor = END if page.after is None or page.after in seen else page.after  # a listing may be circular
            seen.add(cursor)
            progress.advance(len(page.things))
            if len(lines) >= PART_RECORDS or time.monotonic() - began >= PART_SECONDS:
                files.publish(lines, cursor)
                lines, began = [], time.monotonic()
    finally:
        if cursor is not None and (lines or (cursor == END and not files.is_complete)):
            files.publish(lines, cursor)


def _line(read: int, thing: Any) -> bytes:
    """Return one line in ASCII, which preserves a lone surrogate (`\\ud83d`): JSON can contain it, UTF-8 cannot.

    It contains the post in the thing; a thing of another kind is kept as it is, for the link source to count.
    """
    post = thing["data"] if isinstance(thing, dict) and thing.get("kind") == "t3" and "data" in thing else thing
    return json.dumps({"api": "reddit", "retrieved": read, "data": post}, separators=(",", ":")).encode() + b"\n"
