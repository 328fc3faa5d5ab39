"""Which link source reads a file: chosen by its name, or by the setting `source` for all files at once.

    submissions    RS_*, *_submissions          Reddit's monthly dumps, or one subreddit's
    comments       RC_*, *_comments             the links in Reddit's comments
    csv            *.csv, *.tsv                 a table whose first line names its columns
    jsonl          *.jsonl, *.ndjson, *.json    one object per line
    parquet        *.parquet
    urls           *.txt, *.urls                one URL per line
    harvest        *.harvest.jsonl.zst          answers of APIs (crawl/apis/harvest.py), whatever `source` is
    huggingface    huggingface:...              a dataset's column

Endings of compressed files (`.xz`, `.bz2`, `.zst`, `.gz`) are ignored: compression is detected from the content.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from webtext.base.config import timestamp
from webtext.base.errors import InputError
from webtext.crawl.links.settings import SOURCES, LinkSettings
from webtext.crawl.links.submission import LinkSource

SUBMISSIONS, COMMENTS, CSV, JSONL, PARQUET, URLS = SOURCES
HUGGING_FACE, HARVEST = "huggingface", "harvest"
PATTERNS: Mapping[str, tuple[str, ...]] = {
    HARVEST: ("*.harvest.jsonl",),
    SUBMISSIONS: ("RS_*", "*_submissions", "*_submissions.jsonl", "*_submissions.ndjson", "r_*_posts.jsonl"),
    COMMENTS: ("RC_*", "*_comments", "*_comments.jsonl", "*_comments.ndjson"),
    CSV: ("*.csv", "*.tsv"),
    JSONL: ("*.jsonl", "*.ndjson", "*.json"),
    PARQUET: ("*.parquet",),
    URLS: ("*.txt", "*.urls"),
}
"""File name patterns by source; the first source that matches reads the file."""

_COMPRESSED = re.compile(r"\.(?:xz|bz2|zst|gz)$", re.IGNORECASE)


def source_by_name(name: str) -> str | None:
    """Return the source that reads a file of this name; None if no pattern matches.

    >>> source_by_name("RC_2017-12.xz"), source_by_name("links.csv.gz"), source_by_name("notes")
    ('comments', 'csv', None)
    """
    plain = _COMPRESSED.sub("", name)
    names = (plain, plain.lower())  # RS_ is always upper case, but .CSV occurs as well as .csv
    for source, patterns in PATTERNS.items():
        if any(fnmatch.fnmatchcase(each, pattern) for each in names for pattern in patterns):
            return source
    return None


def need_source(name: str, location: str, asked_for: str | None) -> str:
    """Return the source that reads a file of this name. Raises InputError, with the known names, if it is unclear."""
    source = source_by_name(name)
    if asked_for and source != HARVEST:
        return asked_for
    if source is None:
        known = "; ".join(f"{source}: {' '.join(PATTERNS[source][:2])}" for source in SOURCES)
        raise InputError(f"the name of '{location}' matches no source", f"set --source ({known})")
    return source


def check_source(source: str, file: BinaryIO, location: str) -> None:
    """Raise InputError if a table is damaged or has no column of URLs."""
    if source in (CSV, PARQUET):
        from webtext.crawl.links.lists import check_csv, check_parquet

        (check_csv if source == CSV else check_parquet)(file, location)


def link_source(source: str, folder: str, name: str, settings: LinkSettings) -> LinkSource[Any]:
    """Return the reader for `folder`/`name`. Imports are local, since some readers load Arrow or a parser."""
    if source == SUBMISSIONS:
        from webtext.crawl.links.dumps import RedditDump

        return RedditDump()
    if source == COMMENTS:
        from webtext.crawl.links.comments import RedditComments

        return RedditComments()
    if source == HARVEST:
        from webtext.crawl.links.harvested import Harvested

        return Harvested()
    from webtext.crawl.links.lists import CsvFile, Defaults, JsonLines, ParquetFile, UrlList

    created = (
        None
        if settings.default_created is None
        else timestamp(settings.default_created, "[crawl.links] default_created")
    )
    defaults = Defaults(file=name, score=settings.default_score, created=created)
    if source == HUGGING_FACE:
        from webtext.crawl.links.hugging_face import HuggingFaceColumn

        return HuggingFaceColumn(defaults, folder)
    readers: list[Callable[[Defaults], LinkSource[Any]]] = [CsvFile, JsonLines, ParquetFile, UrlList]
    return readers[(CSV, JSONL, PARQUET, URLS).index(source)](defaults)
