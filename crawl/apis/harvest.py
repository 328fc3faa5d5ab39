"""Answers of an API as files: what was asked once lies on disk and is read as often as one likes, like a dump.

    HARVEST/harvest.json                     what is asked: written first, never changed
    HARVEST/00000.t3_88.harvest.jsonl.zst    answers; the name says where the next file goes on
    HARVEST/00001.end.harvest.jsonl.zst      the last

Each line is `{"api": which, "retrieved": UTC seconds, "data": the object as the API gave it}`. A file appears whole, by
rename: a harvest that was killed asks again only for what no file holds. `crawl/apis/harvested.py` reads them.
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
from webtext.base.storage import Folder

ABOUT = "harvest.json"
SUFFIX = ".harvest.jsonl.zst"
END = "end"
PART_RECORDS = 10_000
FORMAT_VERSION = 1
_PART = re.compile(r"(\d{5,9})\.([0-9A-Za-z_]{1,64})" + re.escape(SUFFIX))


class Step(NamedTuple):
    """What one request, or a few, brought: objects as they came, when, and the cursor that comes next; None at the end."""

    records: list[Any]
    read: int
    next: str | None


class Asker(Protocol):
    """Something that is asked step by step, from the cursor `first` on. A cursor is letters, digits and `_`, and not `end`."""

    api: str
    first: str

    async def ask(self, cursor: str) -> Step:
        """The step at `cursor`. Raises NetworkError when there is no answer to be had."""


class HarvestFiles:
    """The files of one harvest: which are there, where the next goes on."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._parts = self._found()

    @property
    def locations(self) -> list[str]:
        """The files of answers, in the order they were asked for."""
        return [self.folder.location(name) for name, _ in self._parts]

    @property
    def cursors(self) -> list[str]:
        """Where each file says that the next goes on; END is the last when all is there."""
        return [cursor for _, cursor in self._parts]

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing left to ask."""
        return self.cursors[-1:] == [END]

    def about(self) -> dict[str, Any] | None:
        """What the harvest is of, as it was written at its beginning; None before."""
        if not self.folder.exists(ABOUT):
            return None
        return self.folder.read_object(ABOUT, "remove the folder to ask again")

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write what the harvest is of."""
        text = json.dumps({"format": FORMAT_VERSION, **about}, indent=1, sort_keys=True)
        self.folder.write_bytes(ABOUT, (text + "\n").encode())

    def publish(self, lines: list[bytes], cursor: str) -> None:
        """Make a file of these lines appear; the next goes on at `cursor`."""
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
                f"files are missing in '{self.folder.url}': it holds numbers {numbers[:20]}",
                "remove the folder to ask again",
            )
        return [(name, cursor) for _, name, cursor in found]


async def harvest(asker: Asker, files: HarvestFiles, part_seconds: float, progress: Progress) -> None:
    """Ask from where the files end to the end, and publish as it goes: after an error or Ctrl-C too, what was answered."""
    cursor = (files.cursors or [asker.first])[-1]
    seen = {asker.first, *files.cursors}
    lines: list[bytes] = []
    began = time.monotonic()
    try:
        while cursor != END:
            step = await asker.ask(cursor)
            lines += [_line(asker.api, step.read, record) for record in step.records]
            cursor = END if step.next is None or step.next in seen else step.next  # a listing may lead in a circle
            seen.add(cursor)
            progress.advance(len(step.records))
            if len(lines) >= PART_RECORDS or time.monotonic() - began >= part_seconds:
                files.publish(lines, cursor)
                lines, began = [], time.monotonic()
    finally:
        if lines or (cursor == END and not files.is_complete):
            files.publish(lines, cursor)


def _line(api: str, read: int, record: Any) -> bytes:
    """ASCII, so that half a character (`\\ud83d`), which JSON can write and UTF-8 cannot, stays what it was."""
    return json.dumps({"api": api, "retrieved": read, "data": record}, separators=(",", ":")).encode() + b"\n"
