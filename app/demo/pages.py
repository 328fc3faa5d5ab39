"""Render the documentation of Python and of some installed libraries as a small web: real, free text that is always there.

Around the text of articles with comments, forum threads and pages of source code are the usual menus, sidebars, buttons and
footers, which the extractor has to leave out.

Run as `python -m webtext.app.demo.pages FOLDER [MODULE...]`, because importing the entire standard library is best done
in a separate process. Writes FOLDER/NAME.html for each language topic and each module with enough text (NAME-2.html and
so on for a long one), and finally FOLDER/names.json.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import json
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

SKIPPED_MODULES = {"antigravity", "this", "idlelib", "turtledemo", "lib2to3", "test", "tkinter", "turtle", "encodings"}
"""Modules with side effects on import (a browser, a window, a poem), or without prose."""
LIBRARIES = (
    "aiohttp",
    "click",
    "numpy",
    "pyarrow",
    "torch",
    "torch.nn",
    "torch.nn.modules",
    "torch.optim",
    "torch.distributions",
)
"""Libraries that the demo itself needs and whose docstrings are prose."""
MIN_WORDS = 120  # words of docstrings; a page with fewer is only a list of names
MAX_WORDS = 2_000  # a module with more has several pages
MIN_DOCSTRING_WORDS = 8
CODE_RATIO = 0.25  # characters of code for each of prose: a fifth of the text, as in manuals that people read
MAX_SOURCE_LINES = 30
NAMES = "names.json"
HEADING = re.compile(r"^(\S.*)\n([*=\-~^\"'])\2{2,}$", re.M)
CODE = re.compile(r"^ *(?:>>>|[$%@] ?\w|(?:def|class) .*:$|(?:from \S+ )?import \S+$)|::=| = |^\.\. \w", re.M)
ROLE = re.compile(r":[a-z:]+:`~?\.?([^`]+)`")
SENTENCE = re.compile(r"[A-Z\"'*(`].*[.:!?)]", re.S)
ITEM = re.compile(r"^ *(?:[*•-]|\d+\.) +(?=\S)", re.M)
READERS = ("mira", "old_gopher", "tabs4ever", "jonas_w", "quietbyte", "lena.k", "parsnip", "nightbuild")
PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} | The Daily Docstring</title></head><body>
<header><nav><ul><li><a href="/latest">Latest posts</a></li><li><a href="/forum">Forum</a></li>
<li><a href="/snippets">Snippets</a></li><li><a href="/login">Sign in</a></li></ul></nav></header>
<main>{main}</main>
<aside class="sidebar"><h3>Related posts</h3><ul>{related}</ul><h3>Newsletter</h3>
<form><input type="email"><button>Subscribe to our weekly letter</button></form></aside>
<footer><p class="copyright">All rights reserved. This site uses cookies to improve your experience.</p></footer>
</body></html>
"""
COMMENTS = """<div class="share">Share Tweet Print</div><div id="comments" class="comments-area"><h3>Comments</h3><ol>
<li class="comment"><div class="comment-meta">mira</div>
<div class="comment-content"><p>Thanks for writing this up, it saved my afternoon!</p></div></li>
<li class="comment"><div class="comment-meta">quietbyte</div>
<div class="comment-content"><p>Does anybody know whether this changed in the last release?</p></div></li>
</ol></div>"""
POST = """<div class="post"><div class="user-info"><b>{reader}</b> Posts: 1,204</div>
<div class="post-body">{body}</div><div class="post-buttons">Quote Reply Report</div></div>
"""
TOOLBAR = '<div class="toolbar"><button>Copy</button> <a href="#">Raw</a> <a href="#">Blame</a></div>'


class PageSection(NamedTuple):
    """A heading, the plain text below it, and optionally the source code that it describes."""

    title: str
    text: str
    source: str = ""


def render_pages(folder: Path, modules: Iterable[str] | None = None) -> list[str]:
    """Write HTML pages for each topic and each of `modules` (default: the standard library and `LIBRARIES`).

    Returns the names of the pages in order. The same version of Python always produces the same pages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for name, page in _pages(_module_names() if modules is None else modules):
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
        names.append(name)
    (folder / NAMES).write_text(json.dumps(names), encoding="utf-8")
    return names


def _pages(modules: Iterable[str]) -> Iterator[tuple[str, str]]:
    from pydoc_data.topics import topics

    seen: set[str] = set()
    layouts = (article, thread, listing)
    for name in modules:
        for number, sections in enumerate(_parts(_sections(name, seen)), 1):
            layout = layouts[crc32(name.encode()) % len(layouts)]
            yield name if number == 1 else f"{name}-{number}", layout(name, sections, sorted(topics)[:5])
    for name, text in sorted(topics.items()):
        title, _, text = text.strip().partition("\n")
        if len((text := _prose_of(_new(text.partition("\n")[2], seen))).split()) >= MIN_DOCSTRING_WORDS:
            yield f"topic-{name}", article(title, [PageSection(name, text)], sorted(topics)[:5])


def _parts(sections: Iterable[PageSection]) -> Iterator[list[PageSection]]:
    """Yield the sections of each page of a module, in order; too few words at the end aren't a page."""
    part: list[PageSection] = []
    n_words = 0
    for section in sections:
        part.append(section)
        n_words += len(section.text.split())
        if n_words >= MAX_WORDS:
            yield part
            part, n_words = [], 0
    if n_words >= MIN_WORDS:
        yield part


def _module_names() -> Iterator[str]:
    public = (name for name in sorted(sys.stdlib_module_names - SKIPPED_MODULES) if not name.startswith("_"))
    for name in (*public, *LIBRARIES):
        yield name
        with contextlib.suppress(Exception):
            for inner in pkgutil.iter_modules(getattr(importlib.import_module(name), "__path__", ())):
                if not inner.name.startswith(("_", "test")):
                    yield f"{name}.{inner.name}"


def _sections(name: str, seen: set[str]) -> Iterator[PageSection]:
    """Yield the docstrings of a module and its public members."""
    for title, thing in _documented(name):
        text = _prose_of(_new(inspect.cleandoc(thing.__doc__), seen)) if isinstance(thing.__doc__, str) else ""
        if len(text.split()) >= MIN_DOCSTRING_WORDS and " at 0x" not in text:
            source = _source(thing)
            yield PageSection(title, text, source if len(source) <= CODE_RATIO * len(text) else "")


def _new(text: str, seen: set[str]) -> str:
    """Return a text without its paragraphs in `seen`, which then has the others: aliases, subclasses and topics repeat them."""
    paragraphs = [each for each in re.split(r"\n\s*\n", text) if each not in seen]
    seen.update(each for each in paragraphs if len(each.split()) >= MIN_DOCSTRING_WORDS)
    return "\n\n".join(paragraphs)


def _prose_of(text: str) -> str:
    """Return a text without the code that is more than `CODE_RATIO` of its prose."""
    paragraphs = [(each, len(each) * _is_code(each)) for each in re.split(r"\n\s*\n", text)]
    room = CODE_RATIO * sum(len(each) for each, n_code in paragraphs if not n_code)
    so_far = itertools.accumulate(n_code for _, n_code in paragraphs)
    kept = [each for (each, n_code), n in zip(paragraphs, so_far, strict=True) if not n_code or n <= room]
    return "\n\n".join(kept)


def _documented(name: str) -> Iterator[tuple[str, Any]]:
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit):
        return  # a module of another operating system
    yield name, module
    for title, thing in sorted(vars(module).items()):
        defined_here = getattr(thing, "__module__", None) in (name, f"_{name}", "posix")
        if defined_here and not title.startswith("_") and (inspect.isclass(thing) or inspect.isroutine(thing)):
            yield title, thing
            for inner, attribute in sorted(vars(thing).items()) if inspect.isclass(thing) else ():
                if not inner.startswith("_") and (inspect.isroutine(attribute) or isinstance(attribute, property)):
                    yield f"{title}.{inner}", attribute


def _source(thing: Any) -> str:
    """Return the source of a short function without its docstring; "" for anything else."""
    source = ""
    if inspect.isfunction(thing):
        with contextlib.suppress(OSError, TypeError):
            source = re.sub(r"""\n *r?("{3}|'{3}).*?\1""", "", inspect.getsource(thing), count=1, flags=re.S)
    return textwrap.dedent(source) if source.count("\n") <= MAX_SOURCE_LINES else ""


def article(title: str, sections: Sequence[PageSection], related: Iterable[str]) -> str:
    """Return a page with one continuous text and readers' comments below it."""
    return _page(title, f"<article><h1>{escape(title)}</h1>\n{_body(sections)}</article>{COMMENTS}", related)


def thread(title: str, sections: Sequence[PageSection], related: Iterable[str]) -> str:
    """Return a forum thread: a question, and each section as an answer."""
    question = PageSection(
        f"What is {title} for?", "I keep seeing it in programs. What does it do, and how do I use it?"
    )
    posts = zip(itertools.cycle(READERS), (question, *sections))  # noqa: B905 - there are always more readers
    main = "".join(POST.format(reader=reader, body=_body([post])) for reader, post in posts)
    return _page(question.title, main, related)


def listing(title: str, sections: Sequence[PageSection], related: Iterable[str]) -> str:
    """Return a page that alternates explanations and source code."""
    body = "".join(_body([section]) + _code(section.source) for section in sections)
    return _page(title, f"<h1>{escape(title)}</h1>{TOOLBAR}<div>{body}</div>", related)


def _page(title: str, main: str, related: Iterable[str]) -> str:
    links = "".join(f'<li><a href="{escape(name)}.html">{escape(name)}</a></li>' for name in related)
    return PAGE.format(title=escape(title), main=main, related=links)


def _body(sections: Iterable[PageSection]) -> str:
    return "".join(f"<h2>{escape(section.title)}</h2>\n{blocks(section.text)}" for section in sections)


def blocks(text: str) -> str:
    """Convert plain text to HTML: underlined headings, paragraphs, list items, rows of ASCII tables, code."""
    chunks = re.split(r"\n\s*\n", HEADING.sub(r"\n\n# \1\n\n", text).strip("\n"))
    grouped = itertools.groupby(chunks, _is_code)
    return "".join(_code("\n\n".join(group)) if is_code else "".join(map(_prose, group)) for is_code, group in grouped)


def _is_code(chunk: str) -> bool:
    indented = chunk.startswith(" ") and not (ITEM.match(chunk) or SENTENCE.fullmatch(chunk.strip()))
    return not chunk.lstrip().startswith("+--") and (indented or bool(CODE.search(chunk)))


def _code(text: str) -> str:
    return text and f"<pre><code>{escape(text, quote=False)}</code></pre>\n"


def _prose(chunk: str) -> str:
    if chunk.startswith("# "):
        return f"<h3>{_inline(chunk[2:])}</h3>\n"
    paragraph, *items = _rows(chunk) if chunk.lstrip().startswith("+--") else ITEM.split(chunk)
    listed = "".join(f"<li>{_inline(item)}</li>\n" for item in items)
    return (f"<p>{_inline(paragraph)}</p>\n" if paragraph.strip() else "") + (listed and f"<ul>\n{listed}</ul>\n")


def _rows(table: str) -> Iterator[str]:
    """Yield each row of an ASCII table as one line, with dashes between the cells."""
    for row in re.split(r"^ *[+|][-=+|]+$", table, flags=re.M)[:-1]:
        lines = [line.strip()[1:-1].split(" | ") for line in row.strip().splitlines()]
        yield " – ".join(" ".join(cell) for cell in itertools.zip_longest(*lines, fillvalue=""))


def _inline(text: str) -> str:
    line = ROLE.sub(r"``\1``", escape(" ".join(text.split()), quote=False))
    return re.sub(r"``(.+?)``", r"<code>\1</code>", re.sub(r"\*(\w+)\*", r"<em>\1</em>", line))


if __name__ == "__main__":
    render_pages(Path(sys.argv[1]), sys.argv[2:] or None)
