"""HTML of the demo's web: articles with comments, forum threads and pages of source code, made from plain text.

Around the text are the usual menus, sidebars, buttons and footers, which the extractor has to leave out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

HEADING = re.compile(r"^(\S.*)\n([*=\-~^\"'])\2{2,}$", re.M)
CODE = re.compile(r"^ *(?:>>>|[$%@] ?\w|(?:def|class) .*:$|(?:from \S+ )?import \S+$)|::=| = ", re.M)
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


class Section(NamedTuple):
    """A heading, the plain text below it, and optionally the source code that it describes."""

    title: str
    text: str
    source: str = ""


def article(title: str, sections: Sequence[Section], related: Iterable[str]) -> str:
    """Return a page with one continuous text and readers' comments below it."""
    return _page(title, f"<article><h1>{escape(title)}</h1>\n{_body(sections)}</article>{COMMENTS}", related)


def thread(title: str, sections: Sequence[Section], related: Iterable[str]) -> str:
    """Return a forum thread: a question, and each section as an answer."""
    question = Section(f"What is {title} for?", "I keep seeing it in programs. What does it do, and how do I use it?")
    posts = zip(itertools.cycle(READERS), (question, *sections))  # noqa: B905 - there are always more readers
    main = "".join(POST.format(reader=reader, body=_body([post])) for reader, post in posts)
    return _page(question.title, main, related)


def listing(title: str, sections: Sequence[Section], related: Iterable[str]) -> str:
    """Return a page that alternates explanations and source code."""
    body = "".join(_body([section]) + _code(section.source) for section in sections)
    return _page(title, f"<h1>{escape(title)}</h1>{TOOLBAR}<div>{body}</div>", related)


def _page(title: str, main: str, related: Iterable[str]) -> str:
    links = "".join(f'<li><a href="{escape(name)}.html">{escape(name)}</a></li>' for name in related)
    return PAGE.format(title=escape(title), main=main, related=links)


def _body(sections: Iterable[Section]) -> str:
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
    line = escape(" ".join(text.split()), quote=False)
    return re.sub(r"``(.+?)``", r"<code>\1</code>", re.sub(r"\*(\w+)\*", r"<em>\1</em>", line))
