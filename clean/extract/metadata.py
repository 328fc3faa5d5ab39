"""Read a page's title, author, publication date and descriptions from its `<meta>` tags, JSON-LD and markup.

Known places are read first: Open Graph, schema.org (JSON-LD and microdata), Dublin Core, HTML's `rel=author` and
`<time>`. Only a date that none of them states is looked for elsewhere, by htmldate. The clock isn't used, so equal
pages always have equal metadata.
"""

from __future__ import annotations

import calendar
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from itertools import chain, islice
from typing import Any
from warnings import catch_warnings, simplefilter

from htmldate import find_date
from lxml import etree

MAX_CHARACTERS = 500
"""Maximum length of a title."""
MAX_NAME_CHARACTERS = 100
MAX_AUTHORS = 20
MAX_HEADINGS = 20
MAX_DESCRIPTIONS = 8
MAX_JSON_CHARACTERS = 1_000_000
"""Total length of the JSON-LD blocks that are read; json.loads takes about 10 ms for it."""
MAX_JSON_DEPTH = 5
MAX_SEARCHED = 300_000
"""Characters of a page that htmldate searches: 5 to 20 ms; on larger pages it takes up to 200 ms, and few have a date."""
FIRST_YEAR, LAST_YEAR = 1990, 2100
"""Plausible years of publication; a page with another year has a broken clock."""

_TITLE, _HEADINGS = etree.XPath("string(//head/title)"), etree.XPath("//h1")
_METAS, _NAMES = etree.XPath("//meta[@content]"), etree.XPath("descendant::*[@itemprop='name']")
_JSON_LD = etree.XPath("//script[@type='application/ld+json']/text()", smart_strings=False)
_RECIPE = ("recipeIngredient", "recipeInstructions")
_KEYS = ("author", "datePublished", "articleBody", *_RECIPE)
_AUTHORS, _LINKED_AUTHORS = etree.XPath("//*[@itemprop='author']"), etree.XPath("//a[@rel='author']")
_STATED_DATES = etree.XPath(  # one step for both attributes, because a union takes quadratic time
    "//*[@itemprop='datePublished' or self::time]/@*[name()='content' and ../@itemprop='datePublished' or"
    " name()='datetime' and parent::time[@itemprop='datePublished' or @pubdate]] | (//time/@datetime)[1]",
    smart_strings=False,
)
_MARKED_AUTHOR = re.compile(r"""author(?<=itemprop=.author)""")
_LINKED_AUTHOR = re.compile(r"""author(?<=rel=.author)""")
_AUTHOR_NAMES = ("author", "article:author", "dc.creator", "dcterms.creator", "parsely-author", "sailthru.author")
_DESCRIPTION_NAMES = ("description", "og:description", "twitter:description")
_DATE_NAMES = (
    "article:published_time og:published_time datepublished date dc.date dc.date.issued dcterms.created parsely-pub-date"
    " sailthru.date pubdate publishdate publish_date article.published"
)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata that a page states; `published` is UTC seconds, midnight if only a day is stated."""

    title: str | None = None
    author: str | None = None
    published: int | None = None
    descriptions: tuple[str, ...] = ()
    text: str = ""
    """The article as its JSON-LD has it."""
    recipe: str = ""
    """Ingredients and steps of a recipe as its JSON-LD has them, on lines."""


def read_metadata(tree: Any, html: str) -> Metadata:
    """Return the metadata of the page with source `html` and tree `tree`; never raises, whatever the page contains."""
    metas: dict[str, str] = {}
    descriptions: list[str] = []
    for meta in _METAS(tree):
        name = (meta.get("property") or meta.get("name") or meta.get("itemprop") or "").strip().lower()
        metas.setdefault(name, meta.get("content"))
        if name in _DESCRIPTION_NAMES and len(descriptions) < MAX_DESCRIPTIONS:
            descriptions.append(meta.get("content"))
    stated = list(_json_ld(tree))
    return Metadata(
        _title(tree, metas),
        _author(tree, html, metas, stated),
        _published(tree, html, metas, stated),
        tuple(descriptions),
        next((body for item in stated if isinstance(body := item.get("articleBody"), str) and "</" not in body), ""),
        "\n".join(line for item in stated for key in _RECIPE for line in _steps(item.get(key), MAX_JSON_DEPTH)),
    )


def parse_date(value: str) -> int | None:
    """Parse a date in ISO 8601 or RFC 5322 to UTC seconds; None for anything else. Without a time zone it is UTC.

    >>> parse_date("2017-06-01T14:00:00+02:00"), parse_date("2017-06-01"), parse_date("yesterday")
    (1496318400, 1496275200, None)
    """
    value = value.strip()[:64]
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        return None
    return calendar.timegm(moment.utctimetuple())


def _title(tree: Any, metas: dict[str, str]) -> str | None:
    """Return og:title, else <title>, else the first heading; the site's name after a heading is left out."""
    given = [metas.get("og:title") or "", str(_TITLE(tree))]
    given += ["".join(heading.itertext()) for heading in _HEADINGS(tree)[:MAX_HEADINGS]]
    titles = [" ".join(title.split()) for title in given]
    title = next(filter(None, titles), "")
    starts = (h for h in titles[2:] if h and title.startswith(h) and not title[len(h) : len(h) + 1].isalnum())
    return max(starts, key=len, default=title)[:MAX_CHARACTERS] or None


def _author(tree: Any, html: str, metas: dict[str, str], stated: Sequence[dict[str, Any]]) -> str | None:
    """Return the author names from the first source that has any, joined by "; "."""
    for item in stated:
        if names := _kept_names(_names(item.get("author"))):
            return names
    for key in _AUTHOR_NAMES:
        if names := _kept_names([metas.get(key, "")]):
            return names
    if _MARKED_AUTHOR.search(html) or _LINKED_AUTHOR.search(html):
        authors = _AUTHORS(tree)
        named = (name for author in authors for name in _NAMES(author))  # a path for both takes quadratic time
        for found in (named, authors, _LINKED_AUTHORS(tree)):
            if names := _kept_names(str(each.xpath("string()")) for each in islice(found, MAX_AUTHORS)):
                return names
    return None


def _kept_names(given: Iterable[str]) -> str:
    names = dict.fromkeys(" ".join(name.split()) for name in islice(given, MAX_AUTHORS))
    kept = (
        n for n in names if n and len(n) <= MAX_NAME_CHARACTERS and "://" not in n and not n.startswith(("@", "www."))
    )
    return "; ".join(kept)


def _published(tree: Any, html: str, metas: dict[str, str], objects: Sequence[dict[str, Any]]) -> int | None:
    given: Iterable[Any] = chain(
        (item.get("datePublished") for item in objects), (metas[name] for name in _DATE_NAMES.split() if name in metas)
    )
    if "datePublished" in html or "<time" in html:
        given = chain(given, (value for _ in "x" for value in _STATED_DATES(tree)))  # lazy: searched only if needed
    moments = (parse_date(value) for value in given if isinstance(value, str))
    stated = next((moment for moment in moments if moment is not None), None)
    return _found_date(tree) if stated is None and len(html) <= MAX_SEARCHED else stated


def _found_date(tree: Any) -> int | None:
    """Return the day that htmldate finds in a page that states none; without an upper limit it would read the clock."""
    first, last = f"{FIRST_YEAR}-01-01", f"{LAST_YEAR}-12-31"
    try:
        with catch_warnings():
            simplefilter("ignore")  # about time zones
            found = find_date(tree, extensive_search=False, original_date=True, min_date=first, max_date=last)
    except MemoryError:  # the machine's lack, not the page's
        raise
    except Exception:  # whatever a page does to it
        return None
    return parse_date(found) if found else None


def _json_ld(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the JSON-LD objects that state an author, a date or a text, in the page's order."""
    n_left = MAX_JSON_CHARACTERS
    for block in _JSON_LD(tree):
        n_left -= len(block)
        if n_left < 0:
            return
        if any(f'"{key}"' in block for key in _KEYS):
            try:
                yield from _objects(json.loads(block, strict=False), MAX_JSON_DEPTH)
            except (ValueError, RecursionError):
                continue


def _objects(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Yield the objects that describe the page: at the top level, in lists, in @graph and mainEntity."""
    if isinstance(value, list) and depth:
        for item in value:
            yield from _objects(item, depth - 1)
    elif isinstance(value, dict) and depth:
        if any(key in value for key in _KEYS):
            yield value
        for key in ("@graph", "mainEntity"):
            if key in value:
                yield from _objects(value[key], depth - 1)


def _steps(value: Any, depth: int) -> Iterator[str]:
    """Yield the texts of schema.org's ingredients, steps, and sections of steps."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth:
        for item in value:
            yield from _steps(item, depth - 1)
    elif isinstance(value, dict) and depth:
        yield from _steps(value.get("itemListElement", value.get("text")), depth - 1)


def _names(author: Any) -> Iterator[str]:
    """Yield the names of a schema.org person: a name, an object with a name, or a list of these."""
    for one in author if isinstance(author, list) else [author]:
        name = one.get("name") if isinstance(one, dict) else one
        if isinstance(name, str):
            yield name
