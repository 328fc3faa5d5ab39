"""Takes pages from Common Crawl: finds records in its columnar index, fetches them by range, checks and judges them.

Records close together in one WARC file are fetched in one request, to spare the file server. The file server is
`https://data.commoncrawl.org`, a mirror, or a folder (local or fsspec) with the same file names. The target of a
redirect and the original of a revisit are looked up in the next pass over the index.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.base.web.urls import canonical_url
from webtext.crawl.archives.archived_record import ArchivedRecord, read_archived_record
from webtext.crawl.archives.captures import CaptureJudge, Preference, archived_robots, not_archived, reasons
from webtext.crawl.archives.cc_index import LinkJoin, Lookup, Place, open_index
from webtext.crawl.archives.server import ArchiveServer
from webtext.crawl.fetch.client.failures import BAD_RESPONSES
from webtext.crawl.fetch.page_source import Finish, Queue
from webtext.crawl.fetch.settings import COMMON_CRAWL, FetchSettings
from webtext.crawl.pages.reasons import ARCHIVE_DAMAGED
from webtext.crawl.pages.visit import FetchFailed, Visit

MAX_RANGE_BYTES = 4 << 20  # one request for several records
MAX_GAP = 128 << 10  # bytes between two of them: at 10 MB per second they take as long as a request of its own
GROUPS_AT_A_TIME = 16  # groups of neighbouring records whose sites' opt-outs are checked at the same time
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(?:\d+|\*)")
_FILE_NAME = re.compile(r"(?!/)(?!.*(?:^|/)\.\.?(?:/|$))[\w./=+-]+")

T = TypeVar("T")


class CommonCrawl:
    """A source of pages that reads all its links first and joins them with the index in one pass."""

    name = COMMON_CRAWL

    def __init__(
        self, server: ArchiveServer | None, judge: CaptureJudge, settings: FetchSettings, preference: Preference
    ) -> None:
        """`server` is None if `cc_data` is a folder."""
        self._server = server
        self._judge = judge
        self._settings = settings
        self._preference = preference
        self._index = open_index(settings.cc_index)
        self._base = settings.cc_data.rstrip("/")
        self._folder = None if server else Folder(self._base)

    async def run(self, queues: Iterable[Queue], finish: Finish) -> None:
        """Finish every link: see `PageSource.run`. Each hop of a redirect takes another pass over the index."""
        with contextlib.ExitStack() as stack:
            join = stack.enter_context(contextlib.closing(LinkJoin()))
            for queue in queues:
                for link in queue():
                    join.add(Lookup(link, Visit(url=link.url, source=COMMON_CRAWL, at=link.url)))
            while join.n_wanted:
                later = stack.enter_context(contextlib.closing(LinkJoin()))
                await self._look_up(join, later, finish)
                join.close()
                join = later

    async def _look_up(self, join: LinkJoin, later: LinkJoin, finish: Finish) -> None:
        """Finish each look-up of `join`, or add the next look-up of its link to `later`."""
        await asyncio.to_thread(join.choose, self._index, self._preference)
        for lookup in join.others():
            if lookup.page is None:
                lookup.visit.fail(not_archived(_sought(lookup)))
                finish(lookup.link, lookup.visit)
            else:  # without a robots.txt
                later.add(lookup, lookup.page)
        room = asyncio.Semaphore(GROUPS_AT_A_TIME)
        try:
            async with asyncio.TaskGroup() as tasks:
                for group in neighbours(join.placed(), MAX_GAP):
                    await room.acquire()
                    task = tasks.create_task(self._take(group, later, finish))
                    task.add_done_callback(lambda _: room.release())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _take(self, group: Sequence[tuple[Lookup, Place]], later: LinkJoin, finish: Finish) -> None:
        """Fetch the records of one group whose sites have not opted out. Of gone sites, look up robots.txt instead."""
        wanted = []
        are_gone = await asyncio.gather(*(self._ask(lookup, place) for lookup, place in group))
        for (lookup, place), is_gone in zip(group, are_gone, strict=True):
            if lookup.visit.reason is not None:
                finish(lookup.link, lookup.visit)
            elif is_gone:
                later.add(Lookup(lookup.link, lookup.visit, lookup.revisit, place))
            else:
                wanted.append((lookup, place))
        for members in neighbours(wanted, MAX_GAP):
            await self._take_records(members, later, finish)

    async def _take_records(self, members: Sequence[tuple[Lookup, Place]], later: LinkJoin, finish: Finish) -> None:
        """Fetch neighbouring records in one request, or one by one if that fails because one of them is damaged."""
        asker, first = members[0]  # a request for several links counts for the first one
        end = max(place.offset + place.length for _, place in members)
        data, failure = b"", None
        is_robots = asker.page not in (None, first)  # whose requests don't count
        try:
            data = await self._fetch(
                Visit(url="") if is_robots else asker.visit, first.file, first.offset, end - first.offset
            )
        except FetchFailed as error:
            failure = error
        if failure is not None and failure.reason == ARCHIVE_DAMAGED and len(members) > 1:
            for member in members:
                await self._take_records([member], later, finish)
            return
        for lookup, place in members:
            further: Lookup | None = None
            with reasons(lookup.visit):
                if failure is not None:
                    raise failure
                start = place.offset - first.offset
                record = self._read_record(place, data[start : start + place.length])
                if lookup.page in (None, place):
                    further = self._accept(lookup, record)
                else:
                    robots = archived_robots(replace(record.capture, has_body=record.original is None))
                    await self._judge.obey(lookup.visit, lookup.visit.at, robots, self.name)
                    further = lookup
            if further is None:
                finish(lookup.link, lookup.visit)
            else:
                later.add(further, further.page)

    async def _ask(self, lookup: Lookup, place: Place) -> bool:
        """Check the opt-outs of the record's sites. If the record may not be taken, the visit gets the reason.

        Returns whether robots.txt has to be looked up first, because a site is gone.
        """
        visit, is_gone = lookup.visit, False
        with reasons(visit):
            if not _FILE_NAME.fullmatch(place.file):
                raise FetchFailed(ARCHIVE_DAMAGED, f"the index has an invalid file name {place.file!r}")
            if place.length > 2 * self._settings.max_bytes:
                raise FetchFailed("too_large", f"{place.length} bytes in the archive")
            if lookup.page is not None:
                return False
            if lookup.revisit is None:  # the original of a revisit may be another link's page: its body is stored twice
                self._judge.known.check(visit, place.url)
            is_gone = not await self._judge.opt_outs.ask_for_archive(visit, visit.at)
            if place.url != visit.at:
                is_gone |= not await self._judge.opt_outs.ask_for_archive(visit, place.url)
        return is_gone

    def _read_record(self, place: Place, data: bytes) -> ArchivedRecord:
        """Read a record, and check that it is the one in the index."""
        record = read_archived_record(data, self._settings.max_bytes)
        if record.capture.url != place.url:
            raise FetchFailed(ARCHIVE_DAMAGED, f"the record is of '{record.capture.url}'")
        if place.digest is not None and place.digest not in record.digests:
            raise FetchFailed(ARCHIVE_DAMAGED, "the record's payload does not have the digest in its index")
        source = f"{self._base}/{place.file}" if "://" in self._base else place.file
        origin = [("WARC-Source-URI", source), ("WARC-Source-Range", _range(place.offset, place.length))]
        return replace(record, capture=replace(record.capture, origin=origin))

    def _accept(self, lookup: Lookup, record: ArchivedRecord) -> Lookup | None:
        """Make the record the page of the visit, or return the next look-up for a redirect or revisit."""
        if lookup.revisit is not None:
            next_url = self._judge.take(lookup.visit, lookup.revisit.with_body_of(record))
        elif record.original is not None:
            return Lookup(lookup.link, lookup.visit, record)
        else:
            next_url = self._judge.take(lookup.visit, record.capture)
        if next_url is None:
            return None
        lookup.visit.at = next_url
        return Lookup(lookup.link, lookup.visit)

    async def _fetch(self, visit: Visit, file: str, offset: int, length: int) -> bytes:
        """Return `length` bytes of a file at `offset`. Raises FetchFailed if the archive does not return exactly these."""
        if self._server is None:
            visit.requests += 1
            return await asyncio.to_thread(self._read, file, offset, length)
        url = canonical_url(f"{self._base}/{file}")
        if url is None:
            raise FetchFailed(ARCHIVE_DAMAGED, f"the index has an invalid file name {file!r}")
        headers = {"Range": _range(offset, length), "Accept": "*/*", "Accept-Encoding": "identity"}
        try:
            reply = await self._server.get(url, headers, lambda status, _: status == 206, visit, length)
        except FetchFailed as failure:
            is_damage = failure.reason in {"too_large", *BAD_RESPONSES}
            raise FetchFailed(ARCHIVE_DAMAGED if is_damage else failure.reason, str(failure)) from None
        sent = _CONTENT_RANGE.fullmatch((reply.header("content-range") or "").strip())
        if not reply.has_body or sent is None or (int(sent[1]), len(reply.body)) != (offset, length):
            raise FetchFailed(ARCHIVE_DAMAGED, f"HTTP status {reply.status} instead of {_range(offset, length)}")
        return reply.body

    def _read(self, file: str, offset: int, length: int) -> bytes:
        assert self._folder is not None
        try:
            with self._folder.open(file) as opened:
                opened.seek(offset)
                data = opened.read(length)
        except InputError as error:
            raise FetchFailed(ARCHIVE_DAMAGED, error.lines[0]) from None
        if len(data) < length:
            raise FetchFailed(ARCHIVE_DAMAGED, f"'{file}' ends before {_range(offset, length)}")
        return data


def neighbours(members: Iterable[tuple[T, Place]], max_gap: int) -> Iterator[list[tuple[T, Place]]]:
    """Group members, which come sorted by file and offset, so that one request fetches each group.

    A group is in one file, with at most `max_gap` bytes between two records and `MAX_RANGE_BYTES` from start to end.
    """
    group: list[tuple[T, Place]] = []
    end = 0
    for member in members:
        place = member[1]
        if group:
            first = group[0][1]
            too_far = place.file != first.file or place.offset - end > max_gap
            if too_far or place.offset + place.length - first.offset > MAX_RANGE_BYTES:
                yield group
                group, end = [], 0
        group.append(member)
        end = max(end, place.offset + place.length)
    if group:
        yield group


def _sought(lookup: Lookup) -> str:
    """Describe a look-up that found nothing, for people; empty for the link's own URL."""
    if lookup.revisit is not None:
        return "the original of a revisit is not in the index"
    return f"redirects to {lookup.visit.at}" if lookup.visit.redirects else ""


def _range(offset: int, length: int) -> str:
    return f"bytes={offset}-{offset + length - 1}"
