"""Takes pages from the user's WARC files: indexes their responses on disk, then reads one record at a time.

A revisit, ours or another crawler's, gets the body of its original, which is looked up in all files by URL and time and
must have the digest that the revisit states.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from webtext.base.errors import InputError
from webtext.base.inputs.files import files_of
from webtext.base.storage import Folder
from webtext.base.warc.reader import read_responses
from webtext.base.web.urls import canonical_url
from webtext.crawl.archives.archived_record import ArchivedRecord, read_archived_record, truncation
from webtext.crawl.archives.captures import Preference, not_archived
from webtext.crawl.fetch.answers import PAGE_STATUSES
from webtext.crawl.fetch.client.headers import is_redirect
from webtext.crawl.fetch.settings import WARC
from webtext.crawl.pages.exchange import Exchange
from webtext.crawl.pages.reasons import ARCHIVE_DAMAGED
from webtext.crawl.pages.surt import surt
from webtext.crawl.pages.visit import FetchFailed, Visit

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-;=?-~]+")  # in ASCII without spaces, to be a header's value
SUFFIXES = (".warc", ".warc.gz", ".warc.zst", ".warc.lz4")
_TABLE = """
CREATE TABLE captures (key TEXT, url TEXT, captured INT, status INT, folder TEXT, name TEXT, offset INT, length INT,
    is_revisit INT, is_truncated INT);
"""


class WarcReplay(contextlib.AbstractContextManager["WarcReplay"]):
    """Finds captures in WARC files. The index is an unlinked temporary file; memory doesn't grow with the archive."""

    name = WARC

    def __init__(self, inputs: Sequence[str], preference: Preference, max_bytes: int) -> None:
        """Index the files. Raises InputError if one is missing or has no usable WARC records."""
        self._preference = preference
        self._max_bytes = max_bytes
        self._index = sqlite3.connect("", isolation_level=None)
        self._index.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_TABLE} BEGIN;")
        files = {file.location: file for each in inputs for file in files_of(each, "pages", SUFFIXES)}
        for _, file in sorted(files.items()):
            self._add(file.folder, file.name)
        self._index.execute("CREATE INDEX by_key ON captures (key)")
        self._index.execute("COMMIT")

    def __exit__(self, *_: object) -> None:
        self._index.close()

    async def find(self, visit: Visit, url: str, voted: int) -> Exchange:
        """Return the best capture of `url` that is not damaged; see `Archive.find`."""
        rows = self._index.execute(
            "SELECT url, captured, status, is_truncated, folder, name, offset, length FROM captures WHERE key = ?",
            (surt(url),),
        )
        ranked = []
        for named, captured, status, is_cut, *place in rows:
            is_hop = is_redirect(status)
            rank = self._preference.rank(
                captured, voted, is_exact=named == url, is_redirect=is_hop, is_truncated=is_cut
            )
            if rank is not None and not (is_hop and named in visit.redirects):  # to another spelling of itself
                ranked.append((rank, place))
        failure = not_archived()
        for _, place in sorted(ranked):
            try:
                return self._page(self._read(*place))
            except FetchFailed as error:
                failure = error
        raise failure

    def _page(self, record: ArchivedRecord) -> Exchange:
        """Return the capture of a record; a revisit gets its original's body. Raises FetchFailed if that is missing."""
        capture, original = record.capture, record.original
        if original is not None:
            failure = not_archived("the original of a revisit is in none of the files")
            places = self._index.execute(
                "SELECT folder, name, offset, length FROM captures "
                "WHERE key = ? AND url = ? AND captured = ? AND NOT is_revisit ORDER BY folder, name, offset",
                (surt(original.url), original.url, original.captured),
            ).fetchall()
            for place in places:
                try:
                    capture = record.with_body_of(self._read(*place))
                    break
                except FetchFailed as error:
                    failure = error
            else:
                raise failure
        if not _URI.fullmatch(record.record_id):
            raise FetchFailed(ARCHIVE_DAMAGED, "the record has no valid WARC-Record-ID")
        return replace(capture, origin=[("WARC-Source-URI", f"<{record.record_id}>")])

    def _read(self, folder: str, name: str, offset: int, length: int) -> ArchivedRecord:
        if length > 2 * self._max_bytes:
            raise FetchFailed("too_large", f"{length} bytes in the archive")
        with Folder(folder).open(name) as file:
            file.seek(offset)
            return read_archived_record(file.read(length), self._max_bytes)

    def _add(self, folder: Folder, name: str) -> None:
        location = folder.location(name)
        for response in read_responses(folder, name, follow_revisits=False):
            if not response.warc_headers.fields and response.url:
                raise InputError(
                    f"'{location}' is an ARC file; pages are taken from WARC files only",
                    "convert it first: warcio recompress OLD NEW.warc.gz",
                )
            is_used = response.status in PAGE_STATUSES or is_redirect(response.status or 0)
            if response.damage or response.captured is None or not is_used:
                continue
            if response.offset is None or response.length is None:
                raise InputError(
                    f"'{location}' has several records in one compressed member",
                    "compress each record separately first: warcio recompress OLD NEW.warc.gz",
                )
            url = canonical_url(response.url)
            if url is not None:
                place = (folder.url, name, response.offset, response.length)
                kinds = response.is_revisit, truncation(response.warc_headers) is not None
                row = (surt(url), url, response.captured, response.status, *place, *kinds)
                self._index.execute(f"INSERT INTO captures VALUES ({', '.join('?' * len(row))})", row)
