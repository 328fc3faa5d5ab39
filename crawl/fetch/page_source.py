"""The interface of page sources: the web and the archives, which look for the pages of links.

Sources are asked in the order of `--from`. A link goes to the next source if one failed. A page, a redirect to another
link's page and a refusal are final, because a site's opt-out applies to every copy of its pages.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa

from webtext.base.parts.schemas import LINK
from webtext.crawl.pages.reasons import CRAWL_DELAY_TOO_LONG, FAILED, NOT_TEXT, ROBOTS_UNREACHABLE, outcome_of
from webtext.crawl.pages.visit import QueuedLink, Visit

Queue = Callable[[], Iterator[QueuedLink]]
"""Reads the links of a host from the first."""
Finish = Callable[[QueuedLink, Visit], None]

LINKS_AT_A_TIME = 1024
SCHEMA = pa.schema(
    [
        *(LINK.field(name) for name in ("link_id", "url", "karma", "split", "posts")),
        pa.field("voted", pa.int64()),
        pa.field("tried", pa.string()),
        pa.field("requests", pa.int64()),
    ]
)
"""The fields of `QueuedLink` as columns."""


class PageSource(Protocol):
    """A source of pages."""

    name: str

    async def run(self, queues: Iterable[Queue], finish: Finish) -> None:
        """Call `finish` exactly once for every link of all queues, which are one queue per host.

        The run ends if `finish` raises or if the source is unusable, but never because of a single page.
        """
        ...


class Leftovers(contextlib.AbstractContextManager["Leftovers"]):
    """The links that a source leaves to the next one, in a scratch file made at `path` and unlinked at once."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "w+b")  # noqa: SIM115 - closed by __exit__
        path.unlink()

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, link: QueuedLink) -> None:
        self._file.write(msgspec.json.encode(link) + b"\n")

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._file.seek(0)
        links = map(msgspec.json.decode, self._file)
        while some := list(itertools.islice(links, LINKS_AT_A_TIME)):
            yield pa.RecordBatch.from_pylist(some, SCHEMA)


def is_final(reason: str, *, take_gone_sites: bool = False) -> bool:
    """Whether no other source is asked after this reason.

    A refusal is final, except `not_text`, which is not the site's decision, `crawl_delay_too_long`, which an archive's
    copy meets, and, with `take_gone_sites`, `robots_unreachable`, since the site may be gone.

    >>> is_final("robots_disallowed"), is_final("http_404"), is_final("not_text")
    (True, False, False)
    """
    may_be_gone = take_gone_sites and reason == ROBOTS_UNREACHABLE
    return outcome_of(reason) != FAILED and reason not in (NOT_TEXT, CRAWL_DELAY_TOO_LONG) and not may_be_gone
