"""Extract text and metadata from one HTTP body (content coding already undone): kind, charset, bounds, extractor.

The Content-Type decides whether a body is HTML or text. If it is missing, generic or clearly wrong, the first bytes
decide (WHATWG MIME Sniffing §7.1). text/plain and Markdown need no extractor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from webtext.base.config import setting
from webtext.base.errors import ConfigError, did_you_mean
from webtext.base.web.http_head import media_type
from webtext.clean.extract.charset import Undecodable, decode
from webtext.clean.reasons import Dropped, Refused, TooMuch
from webtext.clean.text.clean_text import clean_text

EXTRACTORS = ("fused", "blocks", "trafilatura", "resiliparse")
OWN = ("fused", "blocks")
MAX_BODY_BYTES = 10_000_000

Kind = Literal["html", "text"]

_HTML_TYPES = {"text/html", "application/xhtml+xml"}
_TEXT_TYPES = {"text/plain", "text/markdown", "text/x-markdown"}
_GENERIC_TYPES = "application/octet-stream unknown/unknown application/unknown */* text/xml application/xml"
_BINARY_START = re.compile(rb"%PDF-|\x89PNG|GIF8|\xff\xd8\xff|PK\x03\x04|\x1f\x8b|RIFF|OggS|ID3|\x7fELF")
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")  # soft hyphens and blanks of no width; joiners stay
_HEADER_BYTES = 1445  # length of the resource header in WHATWG MIME Sniffing
_BINARY_BYTES = bytes({*range(0x20)} - {*b"\t\n\x0c\r\x1b"})
_BYTE_ORDER_MARKS = (b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf")
_BEFORE_TAG = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|<!--.{0,4096}?-->|<\?xml[^>]{0,512}>)*", re.DOTALL)
_HTML_TAG = re.compile(
    rb"<(?:!doctype\s+html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|meta|link)[\s/>]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractSettings:
    """How pages are extracted, and which opt-outs are obeyed."""

    extractor: str = setting("fused", "fused, blocks, trafilatura, resiliparse")
    markdown: bool = setting(False, "write headings, lists, code and tables of pages as Markdown", flag=False)
    encoding: str = setting("utf-8", "encoding of files, or auto", in_recipe=False)
    obey_content_signal: bool = setting(True, "drop pages whose headers say 'ai-train=no' or 'train-ai=n'", flag=False)
    obey_tdm_reservation: bool = setting(True, "drop pages whose header or meta tag 'tdm-reservation' is 1", flag=False)
    obey_noai: bool = setting(True, "drop pages whose X-Robots-Tag or meta tag says 'noai' or 'noimageai'", flag=False)
    obey_noindex: bool = setting(True, "drop pages whose X-Robots-Tag or meta tag says 'noindex'", flag=False)
    scrub: bool = setting(False, "replace e-mail and public IP addresses by placeholders, as FineWeb does", flag=False)

    def __post_init__(self) -> None:
        if self.extractor not in EXTRACTORS:
            raise ConfigError(f"unknown extractor '{self.extractor}'", did_you_mean(self.extractor, EXTRACTORS))
        if self.markdown and self.extractor not in OWN:
            raise ConfigError(
                f"markdown is on for extractor '{self.extractor}'", "choose 'fused' or 'blocks', or turn markdown off"
            )


@dataclass(frozen=True, slots=True)
class Body:
    """The text of a body, normalised by `clean/text/clean_text.py`, and the page's own metadata."""

    text: str
    title: str | None = None
    author: str | None = None
    published: int | None = None
    """UTC seconds; midnight if the page states only a day."""
    kind: str | None = None
    """The kind of an HTML page (`kinds.py`); None if the extractor doesn't estimate it."""
    agreement: float | None = None
    """How far trafilatura's text agrees, in [0, 1]; None if it wasn't asked (`opinion.py`)."""


def extract_body(body: bytes, content_type: str, settings: ExtractSettings) -> Body | Dropped | Refused:
    """Extract the document from a decoded body; the result depends only on the arguments and library versions."""
    from webtext.clean.extract.html import extract_html

    if len(body) > MAX_BODY_BYTES:
        return Refused("body_too_large", f"{len(body):,} bytes")
    kind = body_kind(body, content_type)
    if kind is None:
        return Dropped("not_html")
    try:
        text = decode(body, content_type)
        if kind == "text":
            found = Body(clean_text(text))
        else:
            extracted = extract_html(text, extractor=settings.extractor, markdown=settings.markdown)
            stated = extracted.metadata
            title, author = _clean(stated.title), _clean(stated.author)
            text = clean_text(_INVISIBLE.sub("", extracted.text))
            found = Body(text, title, author, stated.published, extracted.kind, extracted.agreement)
    except Undecodable as error:
        return Refused("undecodable", str(error))
    except TooMuch as error:
        return Refused(error.reason, str(error))
    return found if found.text.strip() else Dropped("empty_text")


def _clean(name: str | None) -> str | None:
    return (clean_text(name) or None) if name else None


def prepare(settings: ExtractSettings) -> None:
    """Load the libraries that `extract_body` needs, so that the first page isn't charged with the time."""
    extract_body(b"<html><p>a page<p>with text", "text/html", settings)


def body_kind(body: bytes, content_type: str) -> Kind | None:
    """Return whether a body is HTML, text or neither.

    >>> body_kind(b"\\n<!doctype HTML><p>hi", ""), body_kind(b"hi", "text/plain charset=x"), body_kind(b"%PDF-", "text/html")
    ('html', 'text', None)
    """
    if _BINARY_START.match(body):
        return None
    stated = media_type(content_type)
    if stated in _HTML_TYPES:
        return "html"
    if stated in _TEXT_TYPES:
        return None if _is_binary(body, content_type) else "text"
    before = _BEFORE_TAG.match(body)
    has_tag = _HTML_TAG.match(body, before.end() if before else 0)
    return "html" if has_tag and stated in ("", *_GENERIC_TYPES.split()) else None


def _is_binary(body: bytes, content_type: str) -> bool:
    """Whether a body declared as text is binary: more than 1 % of its first bytes are control bytes.

    In WHATWG MIME Sniffing §7.2 one such byte is enough, which would reject a text with a single stray NUL.
    """
    if body.startswith(_BYTE_ORDER_MARKS) or "utf-16" in content_type.lower() or "utf-32" in content_type.lower():
        return False
    head = body[:_HEADER_BYTES]
    return len(head) - len(head.translate(None, _BINARY_BYTES)) > len(head) // 100
