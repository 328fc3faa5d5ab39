"""Extract pages with one extractor, in an environment that has it: `python extractors.py NAME`, started by score.py.

Answers each line {html: base64, language} by {text, error, seconds: of CPU}. A page that takes too long ends the process.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

SECONDS = 20


def ours(html: bytes, _: str) -> str:
    """Extract as `clean extract` does by default."""
    from webtext.clean.extract.body import ExtractSettings, extract_body

    return getattr(extract_body(html, "text/html", ExtractSettings()), "text", "")


def trafilatura(html: bytes, _: str, **options: bool) -> str:
    """Extract with trafilatura."""
    from trafilatura import extract

    return extract(html, **options) or ""


def resiliparse(html: bytes | str, _: str, main: bool = True) -> str:
    """Extract with Resiliparse, or all text if not `main`; without the numbers that it would add to lists."""
    from resiliparse.extract.html2text import extract_plain_text

    return extract_plain_text(decoded(html), main_content=main, preserve_formatting=True, list_bullets=False)


def readability(html: bytes, language: str) -> str:
    """Extract with readability-lxml; its HTML becomes text by Resiliparse."""
    from readability import Document

    return resiliparse(Document(html).summary(), language, main=False)


def newspaper(html: bytes, language: str) -> str:
    """Extract with Newspaper4k, which is given the language if it knows it."""
    from newspaper import article
    from newspaper.languages import get_available_languages

    code = re.split("[_@-]", language)[0]
    code = code if code in get_available_languages() and code != "ko" else None  # Korean needs nltk and its data
    return article("http://page.example/", code, input_html=decoded(html), fetch_images=False).text


def magic_html(html: bytes, language: str) -> str:
    """Extract with magic-html; its HTML becomes text by Resiliparse."""
    from magic_html import GeneralExtractor

    return resiliparse(GeneralExtractor().extract(decoded(html))["html"], language, main=False)


def decoded(html: bytes | str) -> str:
    """Return a page as text, for extractors that don't read bytes."""
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding

    return html if isinstance(html, str) else bytes_to_str(html, detect_encoding(html, html5_compatible=True))


EXTRACTORS: dict[str, Callable[[bytes, str], str]] = {
    "ours": ours,
    "trafilatura": trafilatura,
    "trafilatura-no-comments": partial(trafilatura, include_comments=False),
    "trafilatura-precision": partial(trafilatura, favor_precision=True),
    "resiliparse": resiliparse,
    "readability": readability,
    "newspaper": newspaper,
    "magic-html": magic_html,
}


def offline(event: str, _: object) -> None:
    """Refuse connections: an audit hook."""
    if event in ("socket.getaddrinfo", "socket.connect"):
        raise OSError("an extractor gets no network")


def main(name: str) -> None:
    """Answer every line of the standard input; what extractors print goes to the standard error."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.addaudithook(offline)
    for line in sys.stdin:
        given, text, error = json.loads(line), None, None
        html, started = base64.b64decode(given["html"]), time.process_time()
        signal.alarm(SECONDS)
        try:
            text = EXTRACTORS[name](html, given["language"])
        except Exception as raised:  # whatever an extractor raises
            error = repr(raised)
        print(json.dumps({"text": text, "error": error, "seconds": time.process_time() - started}), file=out)
        signal.alarm(0)


if __name__ == "__main__":
    main(sys.argv[1])
