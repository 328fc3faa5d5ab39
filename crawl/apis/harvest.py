"""Answers of an API as files: they are requested once, stored on disk and then read like a dump.

    HARVEST/harvest.json                     the request: written first, never changed
    HARVEST/00000.t3_88.harvest.jsonl.zst    answers; the name contains the cursor of the next file
    HARVEST/00001.end.harvest.jsonl.zst      the last file

Each line is `{"api": name, "retrieved": UTC seconds, "data": the object as the API returned it}`. A file is published
by rename, so a harvest that was killed only repeats requests whose answers are in no file. `crawl/links/harvested.py`
reads the files.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import zstandard

from webtext.base.errors import InputError
from webtext.base.progress import Progress
from webtext.base.storage import Folder, check_version

ABOUT = "harvest.json"
SUFFIX = ".harvest.jsonl.zst"
END = "end"
PART_RECORDS = 10_000
FORMAT_VERSION = 1
_PART = re.compile(r"(\d{5,9})\.([0-9A-Za-z_]{1,64})" + re.escape(SUFFIX))


class Step(NamedTuple):
    """The result of one or a few requests: objects as received, the UTC second of reading, the next cursor or None."""

    records: list[Any]
    read: int
    next: str | None


class Asker(Protocol):
    """An API that is read step by step, from the cursor `first`. A cursor is letters, digits and `_`, but not `end`."""

    api: str
    first: str

    async def ask(self, cursor: str) -> Step:
        """Return the step at `cursor`. Raises NetworkError if there is no answer."""


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
        """Whether there is nothing left to request."""
        return self.cursors[-1:] == [END]

    def about(self) -> dict[str, Any] | None:
        """Return the request that was recorded when the harvest began; None before."""
        if not self.folder.exists(ABOUT):
            return None
        about = self.folder.read_object(ABOUT, "remove the folder to harvest again")
        check_version(about.get("format"), FORMAT_VERSION, self.folder.location(ABOUT))
        return about

    def begin(self, about: Mapping[str, Any]) -> None:
        """Record the request."""
        self.folder.write_object(ABOUT, {"format": FORMAT_VERSION, **about})

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


async def harvest(asker: Asker, files: HarvestFiles, part_seconds: float, progress: Progress) -> None:
    """Continue the harvest from its last file to the end, and publish files on the way.

    After an error or Ctrl-C the answers received so far are published, too.
    """
    cursor = (files.cursors or [asker.first])[-1]
    seen = {asker.first, *files.cursors}
    lines: list[bytes] = []
    began = time.monotonic()
    try:
        while cursor != END:
            step = await asker.ask(cursor)
            lines += [_line(asker.api, step.read, record) for record in step.records]
            cursor = END if step.next is None or step.next in seen else step.next  # a listing may be circular
            seen.add(cursor)
            progress.advance(len(step.records))
            if len(lines) >= PART_RECORDS or time.monotonic() - began >= part_seconds:
                files.publish(lines, cursor)
                lines, began = [], time.monotonic()
    finally:
        if lines or (cursor == END and not files.is_complete):
            files.publish(lines, cursor)


def _line(api: str, read: int, record: Any) -> bytes:
    """Return one line in ASCII, which preserves a lone surrogate (`\\ud83d`): JSON can contain it, UTF-8 cannot."""
    return json.dumps({"api": api, "retrieved": read, "data": record}, separators=(",", ":")).encode() + b"\n"
