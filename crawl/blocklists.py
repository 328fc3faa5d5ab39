"""Sites that are neither collected nor reached by a redirect: Reddit, Wikipedia, and those on the user's blocklists.

A blocklist has domains or subreddits, one per line, in plain text:

    # name: sites that sell links
    # licence: CC0
    example.org             # with its subdomains
    bücher.example

Text from `#` on is a comment. Two comments have a meaning, on any line: `name:` (by default the file's name) and
`licence:` (by default none). Recipes record both, the file's SHA-256 and its number of entries, but not its path. A
domain is a host name of at least two labels, or an IP address, without scheme, port or path. A subreddit may be written
`books`, `r/books` or `/r/books`, in any case. Any other line is an error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webtext.base.errors import InputError, visible
from webtext.base.storage import Folder
from webtext.base.web.urls import canonical_url, host_of, path_of, registrable_domain


@dataclass(frozen=True, slots=True)
class Blocklist:
    """One list. `entries` are normalized for look-ups: canonical host names, or subreddits in lower case."""

    name: str
    licence: str | None
    sha256: str
    entries: frozenset[str]

    def about(self) -> dict[str, Any]:
        """Return the recipe's entry for the list."""
        return {"name": self.name, "licence": self.licence, "sha256": self.sha256, "entries": len(self.entries)}


class _Blocklists:
    """Several lists of one kind; memory is about 100 bytes per entry."""

    def __init__(self, lists: Sequence[Blocklist] = ()) -> None:
        self.lists = tuple(sorted(lists, key=lambda each: each.sha256))
        self.entries = frozenset[str]().union(*(each.entries for each in self.lists))

    def about(self) -> list[dict[str, Any]]:
        """Return the recipe's entries for the lists, in an order that does not depend on the command line."""
        return [each.about() for each in self.lists]


class DomainBlocklists(_Blocklists):
    """Blocked domains, each with its subdomains."""

    @classmethod
    def read(cls, locations: Iterable[str]) -> DomainBlocklists:
        """Read the lists at these paths or fsspec URLs. Raises InputError for a line that is not a domain."""
        return cls([_read(location, _domain, "domain", "example.org") for location in dict.fromkeys(locations)])

    def blocks(self, host: str) -> bool:
        """Whether the host (`base.urls.host_of`) or a domain above it is on a list.

        >>> lists = DomainBlocklists([Blocklist("made", None, "", frozenset({"example.org"}))])
        >>> lists.blocks("example.org"), lists.blocks("a.b.example.org."), lists.blocks("notexample.org")
        (True, True, False)
        """
        host = host.removesuffix(".")
        while host not in self.entries:
            _, dot, host = host.partition(".")
            if not dot:
                return False
        return True


class SubredditBlocklists(_Blocklists):
    """Blocked subreddits, whose posts do not count."""

    @classmethod
    def read(cls, locations: Iterable[str]) -> SubredditBlocklists:
        """Read the lists at these paths or fsspec URLs. Raises InputError for a line that is not a subreddit."""
        return cls([_read(location, _subreddit, "subreddit", "books") for location in dict.fromkeys(locations)])

    def blocks(self, subreddit: str | None) -> bool:
        """Whether the subreddit is on a list; False for a post without one.

        >>> lists = SubredditBlocklists([Blocklist("made", None, "", frozenset({"books"}))])
        >>> lists.blocks("Books"), lists.blocks("bookshelf"), lists.blocks(None)
        (True, False, False)
        """
        return subreddit is not None and subreddit.lower() in self.entries


def _read(location: str, parse: Callable[[str], str | None], what: str, example: str) -> Blocklist:
    folder, name = Folder.split(location)
    data = folder.read_bytes(name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"'{location}' is not UTF-8: byte {error.start:,}", "save the list as UTF-8") from None
    about: dict[str, str] = {}
    entries = set()
    for number, line in enumerate(text.splitlines(), 1):
        written, _, comment = line.partition("#")
        named = _ABOUT.fullmatch(comment.strip())
        if named:
            about.setdefault(named[1].lower(), named[2])
        if not written.strip():
            continue
        entry = parse(written.strip())
        if entry is None:
            raise InputError(
                f"'{location}' line {number:,}: {written.strip()[:80]!r} is not a {what}",
                f"write one {what} per line, e.g. {example}; text from '#' on is a comment",
            )
        entries.add(entry)
    if not entries:
        raise InputError(f"'{location}' contains no {what}", f"write one {what} per line, e.g. {example}, or omit it")
    return Blocklist(
        about.get("name", visible(name)), about.get("licence"), hashlib.sha256(data).hexdigest(), frozenset(entries)
    )


_ABOUT = re.compile(r"(name|licence)\s*:\s*(\S.*)", re.IGNORECASE)
_HOST = re.compile(r"[^\s/\\@?:*\[\]]+\.[^\s/\\@?:*\[\]]+|\[[0-9A-Fa-f:.]+\]")
_SUBREDDIT = re.compile(r"(?:/?r/)?([A-Za-z0-9_][A-Za-z0-9_.:-]{0,49})/?")


def _domain(written: str) -> str | None:
    """Return the canonical host (lower case, IDNA), or None if it is not a domain."""
    url = canonical_url(f"http://{written}/") if _HOST.fullmatch(written) else None
    return host_of(url).removesuffix(".") if url else None


def _subreddit(written: str) -> str | None:
    match = _SUBREDDIT.fullmatch(written)
    return match[1].lower() if match else None


REDDIT_DOMAINS = frozenset({"reddit.com", "redd.it", "redditmedia.com", "reddituploads.com", "redditstatic.com"})
WIKIPEDIA_DOMAINS = frozenset(
    # Wikipedia's own domains, then sites that show little but its articles. Wikia and Wiktionary are not mirrors.
    {"wikipedia.org", "wikipedia.com", "enwp.org"}
    | {"wikiwand.com", "wikivisually.com", "wikimili.com", "wiki2.org", "wikizero.com", "thefullwiki.org"}
)
WIKIMEDIA_DOMAIN = "wikimedia.org"
WIKIPEDIA_OVER_TLS = "secure.wikimedia.org"  # until 2011; its paths are /wikipedia/LANGUAGE/wiki/ARTICLE


class Exclusions:
    """Judges targets of redirects by the settings in a links set's recipe. Missing settings have webtext's defaults."""

    def __init__(self, link_settings: Mapping[str, Any], domains: DomainBlocklists | None = None) -> None:
        self._keeps_links_back = bool(link_settings.get("keep_links_back", False))
        self._keeps_wikipedia = bool(link_settings.get("keep_wikipedia", False))
        self._domains = domains or DomainBlocklists()

    def excludes(self, url: str) -> bool:
        """Whether the site of this canonical URL is excluded.

        >>> rule = Exclusions({})
        >>> rule.excludes("https://de.m.wikipedia.org/wiki/A"), rule.excludes("https://example.org/wiki/A")
        (True, False)
        """
        if not self._keeps_links_back and registrable_domain(url) in REDDIT_DOMAINS:
            return True
        if not self._keeps_wikipedia and is_wikipedia(url):
            return True
        return self._domains.blocks(host_of(url))


def is_wikipedia(url: str) -> bool:
    """Whether a canonical URL leads to Wikipedia in any language, to a mirror, or to its old HTTPS address.

    >>> is_wikipedia("https://de.m.wikipedia.org/wiki/A"), is_wikipedia("http://en.wiktionary.org/wiki/a")
    (True, False)
    """
    domain = registrable_domain(url)
    if domain == WIKIMEDIA_DOMAIN:
        return host_of(url) == WIKIPEDIA_OVER_TLS and path_of(url).startswith("/wikipedia/")
    return domain in WIKIPEDIA_DOMAINS


def unnamed_lists(link_settings: Mapping[str, Any], domains: DomainBlocklists) -> list[str]:
    """Return the names of the blocklists that were applied to the links but are not in `domains`."""
    given = {each.sha256 for each in domains.lists}
    known = link_settings.get("domain_blocklists") or []
    return [str(each.get("name")) for each in known if each.get("sha256") not in given]
