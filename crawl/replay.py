"""Pages out of WARC files at hand: an index of their responses on disk, then one record at a time."""

from __future__ import annotations

import fnmatch
import sqlite3
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from webtext.base.content_coding import dechunk
from webtext.base.errors import InputError
from webtext.base.storage import Folder
from webtext.base.urls import canonical_url
from webtext.base.warc import Response, read_response_at, read_responses
from webtext.crawl.archive_settings import WARC
from webtext.crawl.archived_record import read_record
from webtext.crawl.archives import Capture, Preference, not_archived
from webtext.crawl.client import Failure
from webtext.crawl.reasons import ARCHIVE_DAMAGED
from webtext.crawl.redirects import is_redirect
from webtext.crawl.surt import surt
from webtext.crawl.visit import PAGE_STATUSES, Visit

SUFFIXES = (".warc", ".warc.gz", ".warc.zst", ".warc.lz4")
_TABLE = """
CREATE TABLE captures (key TEXT, url TEXT, captured INT, status INT, folder TEXT, name TEXT, offset INT, length INT,
    is_revisit INT)
"""


class WarcReplay:
    """Finds captures in WARC files. The index lies in a temporary file: memory does not grow with the archive."""

    name = WARC

    def __init__(self, inputs: Sequence[str], preference: Preference, max_bytes: int) -> None:
        """Index the files; InputError when one is missing, or holds no WARC record."""
        self._preference = preference
        self._max_bytes = max_bytes
        self._scratch = tempfile.TemporaryDirectory(prefix="webtext-replay-", ignore_cleanup_errors=True)
        self._index = sqlite3.connect(Path(self._scratch.name) / "index.sqlite", isolation_level=None)
        self._index.execute("PRAGMA synchronous = OFF")
        self._index.execute(_TABLE)
        self._index.execute("BEGIN")
        for folder, name in warc_files(inputs):
            self._add(folder, name)
        self._index.execute("CREATE INDEX by_key ON captures (key)")
        self._index.execute("COMMIT")

    def __enter__(self) -> WarcReplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._index.close()
        self._scratch.cleanup()

    async def find(self, visit: Visit, url: str, voted: int) -> Capture:
        """The best capture of `url`; see `Archive.find`. Where it is damaged, the next best is taken."""
        rows = self._index.execute(
            "SELECT url, captured, status, folder, name, offset, length, is_revisit FROM captures WHERE key = ?",
            (surt(url),),
        )
        ranked = []
        for named, captured, status, *place in rows:
            rank = self._preference.rank(captured, voted, is_exact=named == url, is_redirect=is_redirect(status))
            if rank is not None:
                ranked.append((rank, place))
        failure = not_archived()
        for _, (folder, name, offset, length, is_revisit) in sorted(ranked):
            try:
                if is_revisit:
                    return _revisited(read_response_at(Folder(folder), name, offset, length))
                return self._read(Folder(folder), name, offset, length)
            except Failure as error:
                failure = error
        raise failure

    def _read(self, folder: Folder, name: str, offset: int, length: int) -> Capture:
        if length > 2 * self._max_bytes:
            raise Failure("too_large", f"{length} bytes in the archive")
        with folder.open(name) as file:
            file.seek(offset)
            record = read_record(file.read(length), self._max_bytes)
        return replace(record.capture, origin=[("WARC-Source-URI", f"<{record.record_id}>")])

    def _add(self, folder: Folder, name: str) -> None:
        for response in read_responses(folder, name):
            if response.damage or response.status is None or response.captured is None:
                continue
            if response.status not in PAGE_STATUSES and not is_redirect(response.status):
                continue
            if response.offset is None or response.length is None:
                location = folder.location(name)
                raise InputError(
                    f"'{location}' has several records in one compressed member",
                    "give each its own first: warcio recompress OLD NEW.warc.gz",
                )
            url = canonical_url(response.url)
            if url is not None:
                place = (folder.url, name, response.offset, response.length, response.is_revisit)
                row = (surt(url), url, response.captured, response.status, *place)
                self._index.execute("INSERT INTO captures VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _revisited(response: Response) -> Capture:
    """The page of a revisit record, whose body another record holds: it becomes a response again."""
    url, captured = canonical_url(response.url), response.captured
    if response.damage or url is None or captured is None or response.status is None:
        raise Failure(ARCHIVE_DAMAGED, response.damage or "")
    return Capture(
        url=url,
        captured=captured,
        status=response.status,
        headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.http_headers.fields],
        body=dechunk(response.raw),
        origin=[("WARC-Source-URI", response.warc_headers.get("WARC-Record-ID"))],
    )


def warc_files(inputs: Sequence[str]) -> list[tuple[Folder, str]]:
    """The WARC files that `inputs` name: files, folders, patterns in the last part of a name. InputError for none."""
    found: dict[str, tuple[Folder, str]] = {}
    for each in inputs:
        parent, _, last = each.rstrip("/").rpartition("/")
        folder = Folder(parent or ("/" if each.startswith("/") else "."))
        names = fnmatch.filter(folder.names(), last)
        if not names:
            folder = Folder(each)
            names = [name for name in folder.names() if name.endswith(SUFFIXES)]
        if not names:
            raise InputError(f"no WARC file is called '{each}'", f"name files or folders of {', '.join(SUFFIXES)}")
        found |= {folder.location(name): (folder, name) for name in names}
    return [found[location] for location in sorted(found)]
