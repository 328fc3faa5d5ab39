"""Opt-outs, the ways in which a site forbids the use of its pages: a table of all, and the prescan that finds them.

A page's own opt-outs are in its response's header fields and in the `<meta>` tags of its head; robots.txt is fetched by
`crawl`. The prescan works on bytes, reads at most HEAD_BYTES of the body, and takes time linear in them. It follows the
tokenizer of the HTML standard (section 13.2.5), so comments, scripts, attribute values and the body's text don't match.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from webtext.base.web.content_coding import BodyError, decoded_start
from webtext.base.web.http_head import media_type

PRODUCT_TOKEN = "webtext"

AI_TRAINING_CRAWLERS: Mapping[str, tuple[str, str]] = {
    "ai2bot": ("Ai2", "https://allenai.org/crawler"),
    "ai2bot-dolma": ("Ai2", "https://allenai.org/crawler"),
    "amazonbot": ("Amazon", "https://developer.amazon.com/amazonbot"),
    "anthropic-ai": ("Anthropic", "https://www.anthropic.com"),
    "applebot-extended": ("Apple", "https://support.apple.com/en-us/119829#datausage"),
    "bytespider": ("ByteDance", "https://github.com/ai-robots-txt/ai.robots.txt"),
    "ccbot": ("Common Crawl", "https://commoncrawl.org/ccbot"),
    "claudebot": ("Anthropic", "https://www.anthropic.com"),
    "cohere-training-data-crawler": ("Cohere", "https://knownagents.com/agents/cohere-training-data-crawler"),
    "diffbot": ("Diffbot", "https://www.diffbot.com"),
    "facebookbot": ("Meta", "https://developers.facebook.com/docs/sharing/bot"),
    "google-extended": (
        "Google",
        "https://developers.google.com/search/docs/crawling-indexing/overview-google-crawlers",
    ),
    "gptbot": ("OpenAI", "https://platform.openai.com/docs/bots"),
    "img2dataset": ("users of img2dataset", "https://github.com/rom1504/img2dataset"),
    "meta-externalagent": ("Meta", "https://developers.facebook.com/docs/sharing/webmasters/web-crawlers"),
    "omgili": ("Webz.io", "https://webz.io"),
    "omgilibot": ("Webz.io", "https://webz.io"),
    "pangubot": ("Huawei", "https://knownagents.com/agents/pangubot"),
    "timpibot": ("Timpi", "https://timpi.io"),
    "webzio-extended": ("Webz.io", "https://webz.io"),
}
"""Crawlers that collect training data, or whose corpora are used for it -> operator and page, as of CRAWLERS_AS_OF."""
CRAWLERS_AS_OF = "2026-08-22"
KNOWN_TOKENS = frozenset({PRODUCT_TOKEN, *AI_TRAINING_CRAWLERS})


class OptOut(NamedTuple):
    """A way to forbid the use of a page: the setting that obeys it (default: on), what is checked, who defined it and when."""

    setting: str
    meaning: str
    source: str


OPT_OUTS: Mapping[str, OptOut] = {
    "robots_disallowed": OptOut(
        "obey_robots", "robots.txt disallows the path for 'webtext' or for all crawlers", "RFC 9309, 2022-09"
    ),
    "robots_disallowed_ai_training": OptOut(
        "obey_ai_robots",
        "robots.txt names an AI-training crawler and disallows the path for it",
        f"the operators' pages, as of {CRAWLERS_AS_OF}",
    ),
    "content_signal_no_training": OptOut(
        "obey_content_signal",
        "Content-Signal 'ai-train=no' in robots.txt or a header",
        "https://contentsignals.org, 2025-09",
    ),
    "content_usage_no_training": OptOut(
        "obey_content_signal",
        "Content-Usage 'train-ai=n' in robots.txt (for a path) or a header",
        "draft-ietf-aipref-attach-05, 2026-08-19",
    ),
    "tdm_reserved": OptOut(
        "obey_tdm_reservation",
        "'tdm-reservation' is 1 in a header, a meta tag or /.well-known/tdmrep.json",
        "W3C Community Group report TDMRep, 2024-05-10",
    ),
    "noai_header": OptOut("obey_noai", "header 'X-Robots-Tag: noai'", "DeviantArt, 2022-11-11"),
    "noai_meta": OptOut("obey_noai", "meta tag 'robots' with 'noai'", "DeviantArt, 2022-11-11"),
    "noimageai_header": OptOut("obey_noai", "header 'X-Robots-Tag: noimageai'", "DeviantArt, 2022-11-11"),
    "noimageai_meta": OptOut("obey_noai", "meta tag 'robots' with 'noimageai'", "DeviantArt, 2022-11-11"),
    "noindex_header": OptOut("obey_noindex", "header 'X-Robots-Tag: noindex' (or 'none')", "Google, 2007-07-27"),
    "noindex_meta": OptOut(
        "obey_noindex", "meta tag 'robots' with 'noindex' (or 'none')", "HTML 4.01 B.4.1, 1999-12-24"
    ),
}
"""Every opt-out by its reason, in the order in which they are reported."""
PAGE_OPT_OUTS = {reason: each for reason, each in OPT_OUTS.items() if not reason.startswith("robots_")}
"""The opt-outs that are part of the page itself."""

HEAD_BYTES = 64 << 10
GLANCED_BYTES = 16 << 10  # contain the head of most pages, at a quarter of the decompression cost

_TEXT_TYPES = ("text/plain", "text/markdown", "text/x-markdown")  # a tag in plain text is text
_USAGES = ("train-genai", "train-ai", "bots")
"""Training in draft-ietf-aipref-vocab: `train-ai`; earlier versions had two more. The most specific that is stated counts."""
_HEAD_TAGS = frozenset(b"html head base basefont bgsound link meta".split())
_RAW_TAGS = frozenset(b"script style title textarea template noscript noframes noembed iframe xmp".split())
_RAW_ENDS = {name: re.compile(rb"</" + name + rb"[\s/>]", re.IGNORECASE) for name in _RAW_TAGS}
_COMMENT_END = re.compile(rb"--!?>")
_BOGUS_COMMENT = re.compile(rb"<[!?/][^>]*+")
_TAG = re.compile(rb"<(/?)([a-zA-Z][^\s/>]*+)")
_ATTRIBUTE = re.compile(
    rb"""[\s/]*+([^\s/>][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)(?:"|\Z)|'([^']*+)(?:'|\Z)|([^\s>]*+)))?+"""
)
_REST_OF_TAG = re.compile(rb"(?:" + re.sub(rb"\((?!\?)", rb"(?:", _ATTRIBUTE.pattern) + rb")*+[\s/]*+>")
_SEPARATORS = re.compile(r"[\s,;]+")


def obeyed(opt_outs: Iterable[str], settings: Any) -> str | None:
    """Return the first of these reasons whose setting is on in `settings`; a missing setting counts as off."""
    return next(
        (each for each in opt_outs if each in OPT_OUTS and getattr(settings, OPT_OUTS[each].setting, False)), None
    )


def header_opt_outs(headers: Iterable[tuple[str, str]]) -> list[str]:
    """Return the opt-outs in a response's header fields, in the table's order, regardless of settings.

    Field names must be in lower case.
    """
    found: set[str] = set()
    for name, value in headers:
        if name == "content-signal" and content_signal(value).get("ai-train") == "no":
            found.add("content_signal_no_training")
        elif name == "content-usage" and forbids_training(value):
            found.add("content_usage_no_training")
        elif name == "tdm-reservation" and "1" in _SEPARATORS.split(value):
            found.add("tdm_reserved")
        elif name == "x-robots-tag":
            found |= {f"{rule}_header" for rule in _known(robots_tag_rules(value))}
    return _in_order(found)


def body_opt_outs(raw: bytes, transfer_encoding: str, content_encoding: str, content_type: str = "") -> list[str]:
    """Return the opt-outs in the `<meta>` tags of a body as it was sent; see `decode_body` and `meta_opt_outs`."""
    if media_type(content_type) in _TEXT_TYPES:
        return []
    found: list[str] = []
    for n_bytes in (GLANCED_BYTES, HEAD_BYTES):
        try:
            start = decoded_start(raw, transfer_encoding, content_encoding, n_bytes)
        except BodyError:
            break
        found, has_ended = _prescan(start)
        if has_ended or len(start) < n_bytes:
            break
    return found


def meta_opt_outs(body: bytes, content_type: str = "") -> list[str]:
    """Return the opt-outs in the `<meta>` tags of a decoded body; none if its Content-Type is plain text.

    >>> meta_opt_outs(b'<head><META content="noimageai, NoAI" name=robots><!-- <meta name=robots content=noindex> -->')
    ['noai_meta', 'noimageai_meta']
    """
    return [] if media_type(content_type) in _TEXT_TYPES else _prescan(body)[0]


def _prescan(body: bytes) -> tuple[list[str], bool]:
    """Return the opt-outs, and whether the head ended within these bytes."""
    found: set[str] = set()
    has_ended = False
    for attributes in _metas(_ascii_compatible(body)):
        if attributes is None:
            has_ended = True
            break
        if not attributes:  # like most tags, it can't be an opt-out
            continue
        values = (attributes.get(key, b"").decode("latin-1") for key in (b"name", b"content"))
        name, content = (html.unescape(value).strip().lower() for value in values)
        if name == "tdm-reservation" and content == "1":
            found.add("tdm_reserved")
        elif name == "robots" or name in KNOWN_TOKENS:
            found |= {f"{rule}_meta" for rule in _known(_SEPARATORS.split(content))}
    return _in_order(found), has_ended


def _metas(page: bytes) -> Iterator[dict[bytes, bytes] | None]:
    """Yield the attributes of each meta tag of the head, then None if the head ends before the bytes do."""
    at, in_head = 0, False
    while (at := page.find(b"<", at)) >= 0:
        tag = _TAG.match(page, at)
        if tag is None:
            if page.startswith(b"<!--", at):
                end = _COMMENT_END.search(page, at + 2)
                at = end.end() if end else len(page)
            else:
                end = _BOGUS_COMMENT.match(page, at)
                at = end.end() if end else at + 1
            continue
        end = _REST_OF_TAG.match(page, tag.end())
        if end is None:
            return
        at, name = end.end(), tag[2].lower()
        if tag[1]:
            in_head = in_head and name != b"head"
        elif name in _RAW_ENDS:
            end = _RAW_ENDS[name].search(page, at)
            if end is None:
                return
            at = end.start()
        elif name in (b"body", b"frameset") or not (in_head or name in _HEAD_TAGS):
            yield None
            return
        elif name == b"meta":
            yield _attributes(page[tag.end() : at - 1].lower())
        in_head = in_head or (name == b"head" and not tag[1])


def _attributes(tag: bytes) -> dict[bytes, bytes]:
    """Return names and values of a tag's attributes (in lower case); empty if it can't be an opt-out, as most can't."""
    if not (b"no" in tag or b"tdm" in tag or b"&" in tag):
        return {}
    found = _ATTRIBUTE.findall(tag)
    return {key: b"".join(values) for key, *values in reversed(found)}  # of equal names the first counts


def _ascii_compatible(body: bytes) -> bytes:
    """Return at most HEAD_BYTES of the body; UTF-16, with or without a byte order mark, is converted to ASCII."""
    codec = utf_16_codec(body)
    if codec is None:
        return body[:HEAD_BYTES]
    return body[: 2 * HEAD_BYTES].decode(codec, "replace").encode("ascii", "replace")


def utf_16_codec(body: bytes) -> str | None:
    """Return the codec of a text that begins as UTF-16 does, with or without a byte order mark; None otherwise."""
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\0" not in body[:2]:
        return None
    return "utf-16-be" if body[:1] == b"\0" else "utf-16-le"


def _known(rules: Iterable[str]) -> set[str]:
    known = {"noai": "noai", "noimageai": "noimageai", "noindex": "noindex", "none": "noindex"}
    return {known[rule] for rule in rules if rule in known}


def _in_order(found: set[str]) -> list[str]:
    return [reason for reason in OPT_OUTS if reason in found] if found else []


def robots_tag_rules(value: str) -> set[str]:
    """Return the rules of one X-Robots-Tag field that apply to everybody, to `webtext` or to AI crawlers.

    >>> sorted(robots_tag_rules("noai; nofollow")), sorted(robots_tag_rules("googlebot: noindex, nofollow"))
    (['noai', 'nofollow'], [])
    """
    rules: set[str] = set()
    agent = "*"
    for part in re.split("[,;]", value.lower()):
        name, colon, rule = part.partition(":")
        is_agent = len(name.split()) == 1  # and not the hours of a date, in which a comma may occur
        if colon and is_agent and not name.strip().startswith(("max-", "unavailable_after")):
            agent, part = name.strip(), rule
        if agent == "*" or agent in KNOWN_TOKENS:
            rules.update(part.split())
    return rules


def content_signal(value: str) -> dict[str, str]:
    """Parse the signals of a `Content-Signal` line or header; of contradictory answers 'no' counts.

    >>> content_signal("search=yes, ai-train=no, ai-train=yes")
    {'search': 'yes', 'ai-train': 'no'}
    """
    pairs = (part.partition("=") for part in re.split("[,;]", value.lower()))
    signals: dict[str, str] = {}
    for name, equals, answer in pairs:
        if equals and signals.get(name.strip()) != "no":
            signals[name.strip()] = answer.strip()
    return signals


def forbids_training(usage: str) -> bool:
    """Whether a `Content-Usage` statement disallows training; of a key that occurs twice the last value counts.

    Parameters are ignored (draft-ietf-aipref-vocab, section 6.5). Letters of either case are read.

    >>> forbids_training("train-ai=n, search=y"), forbids_training("train-ai;allow=n, train-ai=y")
    (True, False)
    """
    stated: dict[str, str] = {}
    for member in usage.lower().split(","):
        key, _, answer = member.partition(";")[0].partition("=")
        stated[key.strip()] = answer.strip()
    return next((stated[key] for key in _USAGES if key in stated), "") == "n"
