"""The links in a text in Reddit's Markdown: CommonMark, plus bare URLs as GitHub's and Reddit's parsers find them.

markdown-it-py parses the text, so code, escapes, references and nested brackets are treated as readers see them, in
time linear in the length. As on Reddit, and unlike CommonMark, HTML is shown as text, an image is a link, tables and
strikethrough are parsed, and bare URLs are links (GitHub Flavored Markdown, section 6.9; Reddit's parser, snudown, adds
brackets). A bare URL runs from `http://`, `https://` or `www.` to a blank or `<`, without punctuation at its end.
A closing bracket belongs to it only if the URL contains the opening one. Backslashes in it are the editor's escapes.

A hand-written scanner has to get code in lists, references, nested brackets and escapes right one by one. linkify-it-py
also links bare domains and mail addresses, so bare URLs are an inline rule of our own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

__all__ = ["links_in"]


def links_in(text: str, site: str) -> list[str]:
    """Return the distinct link targets in `text`, in order; a target without scheme and host is a page of `site`.

    >>> links_in("[a](http://a.com/x_(y)) and (http://b.com/?q, `http://c.com`) /r/books [d](/r/d)", "https://site.example")
    ['http://a.com/x_(y)', 'http://b.com/?q', 'https://site.example/r/d']
    """
    if not _MAY_LINK.search(text):
        return []
    found = (_absolute(link, site) for link in _links_of(_PARSER.parse(text)))
    return list(dict.fromkeys(link for link in found if link))


_MAY_LINK = re.compile(r"://|www\.|\]\(|\]:")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def _links_of(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "link_open":
            yield str(token.attrs["href"])
        elif token.children:
            yield from _links_of(token.children)


def _absolute(link: str, site: str) -> str:
    link = link.strip()
    if not link or _SCHEME.match(link):
        return link
    if link.startswith("//"):
        return "https:" + link
    if link.startswith("www."):
        return "http://" + link
    return f"{site}/{link.removeprefix('/')}"


def _bare_url(state: StateInline, silent: bool) -> bool:
    """Inline rule of markdown-it: at the `:` of a scheme or the `w` of `www.`, turn the bare URL into a link.

    Returns False in look-ahead (`silent`), so that a URL inside a link's text does not hide the `]` that ends the text.
    """
    here = state.src[state.pos]
    if silent or state.linkLevel > 0 or here not in ":w":
        return False
    scheme = ""
    if here == ":":
        match = _BEFORE.search(state.src[max(0, state.pos - 6) : state.pos])
        # The scheme must still be plain text: not the end of an escape or of an entity.
        if not match or not state.pending.lower().endswith(match[1].lower()):
            return False
        scheme = match[1]
    elif state.pos > 0 and state.src[state.pos - 1].isalnum():
        return False
    match = (_AFTER_SCHEME if scheme else _AFTER_WWW).match(state.src, state.pos, state.posMax)
    if not match:
        return False
    url = _without_end(match[0])
    if scheme:
        state.pending = state.pending[: -len(scheme)]
    state.push("link_open", "a", 1).attrs = {"href": _ESCAPE.sub(r"\1", scheme + url)}
    state.push("link_close", "a", -1)
    state.pos += len(url)
    return True


_BEFORE = re.compile(r"(?:^|[^A-Za-z0-9])(https?)$", re.IGNORECASE)
_HOST = r"[^\W_](?:[\w-]|\\_)*(?:\.(?:[\w-]|\\_)+)+"  # a name with a dot; the URL parser checks the rest
_REST = r'(?:[^\s<>"\[\]]|\[[^\s<>"\[\]]*\])*'
_AFTER_SCHEME = re.compile(rf"://(?:[^\s/?#@<>\[\]]*@)?{_HOST}{_REST}")
_AFTER_WWW = re.compile(rf"www\.{_HOST}{_REST}")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENTITY = re.compile(r"&[A-Za-z0-9]+;\Z")
_OPENING = {")": "(", "]": "[", "}": "{"}


def _without_end(url: str) -> str:
    """Return the URL without trailing punctuation, which belongs to the sentence around it.

    >>> _without_end("://a.com/x_(y)),"), _without_end("://a.com/?x&gt;!")
    ('://a.com/x_(y)', '://a.com/?x')
    """
    count = Counter(url)
    end = len(url)
    while end > 0:
        last = url[end - 1]
        if last in "?!.,:*_~'\\":
            length = 1
        elif last == ";":
            entity = _ENTITY.search(url, max(0, end - 32), end)
            length = len(entity[0]) if entity else 1
        elif last in _OPENING and count[last] > count[_OPENING[last]]:
            length = 1
        else:
            break
        count.subtract(url[end - length : end])
        end -= length
    return url[:end]


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable(["image", "html_block", "html_inline"])
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    parser.inline.ruler.after("text", "bare_url", _bare_url)
    parser.inline.add_terminator_char("w")
    return parser


_PARSER = _parser()
