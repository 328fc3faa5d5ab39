"""Lists of removal requests: URLs, domains and document ids, one per line, in plain UTF-8 text.

    # letter of 3 May
    https://example.org/a-page      # the page, by http or https, and every document that a link to it led to
    example.net                     # the domain and its subdomains
    0f115db062b7c0dd030b16878c99dea5
    id:urn:uuid:1c0f                # the id of an imported document, in any form

A comment is a line that starts with `#`, or the text after a blank and `#`. Any other line is an error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from webtext.base.errors import InputError
from webtext.base.parts.identifiers import ID_HEX_DIGITS, link_id
from webtext.base.parts.recipe import sha256_json
from webtext.base.storage import Folder
from webtext.base.web.urls import SCHEMES, canonical_url, host_of

KIND = "removal_list"
_COMMENT = re.compile(r"(?:^|\s)#.*")
_ID = re.compile(rf"[0-9a-f]{{{ID_HEX_DIGITS}}}")
_HOST = re.compile(r"[^\s./\\@?:*\[\]][^\s/\\@?:*\[\]]*\.[^\s/\\@?:*\[\]]+|\[[0-9A-Fa-f:.]+\]")
_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a list, without its comment."""

    list: str  # path or URL of the list
    number: int
    written: str

    def __str__(self) -> str:
        return f"'{self.list}' line {self.number:,}: {self.written[:_MAX_SHOWN]!r}"


@dataclass(frozen=True, slots=True)
class RequestList:
    """A parent in a manifest: one hash for a set of lines, whatever their order and lists."""

    hash: str
    folder: Folder
    kind: str = KIND


@dataclass(slots=True)
class Requests:
    """The entries of removal lists as look-up tables; if two lines name the same thing, the first one counts."""

    lists: tuple[str, ...] = ()
    lines: list[Line] = field(default_factory=list)
    _ids: dict[str, Line] = field(default_factory=dict)
    _urls: dict[str, Line] = field(default_factory=dict)  # without scheme
    _links: dict[str, Line] = field(default_factory=dict)
    _domains: dict[str, Line] = field(default_factory=dict)

    @classmethod
    def read(cls, locations: Iterable[str]) -> Requests:
        """Read the lists at these paths or fsspec URLs. Raises InputError with file and number of an invalid line."""
        requests = cls(tuple(dict.fromkeys(locations)))
        for location in requests.lists:
            for line in _lines(location):
                requests._add(line)
        return requests

    def __reduce__(self) -> tuple[Any, ...]:
        """Let workers read the lists themselves: the tables may be large."""
        return _read_again, (self.lists, sha256_json([str(line) for line in self.lines]))

    def lines_for(self, identifier: str, link_ids: Sequence[str], url: str | None) -> list[Line]:
        """Return the lines that name a document, the most specific first: its id, a link's URL, its URL, its domain."""
        found = [self._ids.get(identifier), *(self._links.get(each) for each in link_ids)]
        canonical = canonical_url(url) if url and (self._urls or self._domains) else None
        if canonical is not None:
            found.append(self._urls.get(_without_scheme(canonical)))
            found += self._of_host(host_of(canonical))
        return list(dict.fromkeys(line for line in found if line is not None))

    def parent(self, lines: Iterable[Line]) -> RequestList:
        """Return the lines that named documents, as a parent of the sets made without these documents."""
        return RequestList(sha256_json(sorted({line.written for line in lines})), Folder(self.lists[0]))

    def _of_host(self, host: str) -> list[Line | None]:
        labels = host.removesuffix(".").split(".")
        return [self._domains.get(".".join(labels[start:])) for start in range(len(labels))]

    def _add(self, line: Line) -> None:
        written = line.written
        host = _host(written)
        self.lines.append(line)
        if written.startswith("id:") and written != "id:":
            self._ids.setdefault(written.removeprefix("id:").strip(), line)
        elif _ID.fullmatch(written):
            self._ids.setdefault(written, line)
        elif host is not None:
            self._domains.setdefault(host, line)
        elif (url := canonical_url(written)) is not None:
            bare = _without_scheme(url)
            self._urls.setdefault(bare, line)
            for scheme in SCHEMES:
                self._links.setdefault(link_id(scheme + bare), line)
        else:
            raise InputError(
                f"{line} is not a URL, domain or document id",
                "write one per line: https://example.org/page, example.org (without scheme and path), or id:ANY-ID; "
                "a comment starts with '#'",
            )


@functools.lru_cache(maxsize=1)
def _read_again(lists: tuple[str, ...], digest: str) -> Requests:
    requests = Requests.read(lists)
    if sha256_json([str(line) for line in requests.lines]) != digest:
        raise InputError("a removal list changed while it was read", "rerun the same command")
    return requests


def _lines(location: str) -> Iterable[Line]:
    folder, name = Folder.split(location)
    if not folder.exists(name):
        raise InputError(f"removal list '{location}' does not exist", "check the path")
    data = folder.read_bytes(name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"'{location}' line {line:,} is not UTF-8", "save the list as UTF-8") from None
    for number, row in enumerate(text.split("\n"), 1):
        written = _COMMENT.sub("", row).strip()
        if written:
            yield Line(location, number, written)


def _host(written: str) -> str | None:
    """Return the domain that a line names in canonical form (lower case, IDNA); None if it isn't a domain."""
    url = canonical_url(f"http://{written}/") if _HOST.fullmatch(written) else None
    return host_of(url).removesuffix(".") if url else None


def _without_scheme(url: str) -> str:
    return url.partition("://")[2]
