"""The books of an unpacked package: sources that belong together, with their pages if the package has them."""

from __future__ import annotations

import bz2
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from gold.truth import Book

_FILENAME = re.compile(rb'<FILENAME filename="([^"]*)\.html">')
_LANGUAGE = re.compile(rb"""<html[^>]*\slang=["']?([A-Za-z]{2,3}(?:[-_][A-Za-z]+)?)""")
_SUFFIXES = re.compile(r"(\.rst|\.md)?(\.txt)?$")
_MAN = re.compile(r"usr/share/man/(?:([a-z]{2,3}(?:_[A-Z]{2})?)(?:\.[^/]*)?/)?man[1-9]/([^/]+)\.gz$")


def books(tree: Path) -> Iterator[Book]:
    """Yield every book of an unpacked package."""
    yield from _sphinx(tree)
    yield from _kde(tree)
    yield from _help(tree)
    yield from _man(tree)
    yield from _written(tree)


def _sphinx(tree: Path) -> Iterator[Book]:
    for folder in sorted(path for path in tree.rglob("_sources") if path.is_dir()):
        # The kernel's translations are enough of it.
        parts = [path for path in (folder / "translations").glob("*") if path.is_dir()] or [folder]
        for part in sorted(parts):
            found = {_SUFFIXES.sub("", str(path.relative_to(folder))): path for path in _files(part, "*")}
            pages = {name: page.read_bytes() for name in found if (page := folder.parent / f"{name}.html").is_file()}
            if pages:
                stated = _LANGUAGE.search(next(iter(pages.values())))
                named = re.fullmatch("[a-z]{2}(_[A-Z]{2})?", part.parent.name if part == folder else part.name)
                language = named[0] if named else stated[1].decode() if stated else "en"
                yield Book("rst", part, language, found, pages, "sphinx")


def _kde(tree: Path) -> Iterator[Book]:
    """Handbooks of KDE: DocBook beside all its pages in one compressed file."""
    for cache in sorted(tree.rglob("index.cache.bz2")):
        parts = _FILENAME.split(bz2.decompress(cache.read_bytes()).replace(b"</FILENAME>", b""))
        pages = {name.decode(): page for name, page in zip(parts[1::2], parts[2::2], strict=True)}
        main = cache.with_name("index.docbook")
        if pages:
            language = cache.relative_to(tree).parts[4]
            yield Book("docbook", cache.parent, language, dict.fromkeys(pages, main), pages, "meinproc")


def _help(tree: Path) -> Iterator[Book]:
    """Help of GNOME, MATE and others: Mallard or DocBook, without pages."""
    for folder in sorted((tree / "usr/share/help").glob("*/*")):
        language = "en" if folder.parent.name == "C" else folder.parent.name
        if found := {path.stem: path for path in _files(folder, "*.page")}:
            yield Book("mallard", folder, language, found)
        elif (main := folder / "index.docbook").is_file():
            yield Book("docbook", folder, language, {"index": main})


def _man(tree: Path) -> Iterator[Book]:
    found: dict[str, dict[str, Path]] = {}
    for path in _files(tree, "*.gz"):
        if place := _MAN.search(str(path)):
            page = path.with_suffix("")
            page.write_bytes(gzip.decompress(path.read_bytes()))
            found.setdefault(place[1] or "en", {})[place[2]] = page
    for language, pages in sorted(found.items()):
        yield Book("man", next(iter(pages.values())).parent, language, pages)


def _written(tree: Path) -> Iterator[Book]:
    """Manuals in source packages: Markdown of MkDocs, Texinfo, AsciiDoc."""
    for settings in sorted(tree.rglob("mkdocs.yml")):
        docs = settings.with_name("docs")
        if found := {str(path.relative_to(docs).with_suffix("")): path for path in _files(docs, "*.md")}:
            yield Book("markdown", docs, "en", found)
    for path in sorted(path for suffix in ("texi", "texinfo", "txi") for path in _files(tree, f"*.{suffix}")):
        text = path.read_bytes()
        language = re.search(rb"^@documentlanguage (\w+)", text, re.MULTILINE)
        if text.startswith(b"\\input texinfo"):  # others are only included
            yield Book("texinfo", path.parent, language[1].decode() if language else "en", {path.stem: path})
    for folder in sorted({path.parent for path in _files(tree, "*.adoc") + _files(tree, "*.asciidoc")}):
        yield Book("asciidoc", folder, "en", {path.stem: path for path in folder.glob("*doc") if path.is_file()})


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file() and not path.is_symlink())
