"""The ways a site says that its pages must not be used, as one table.

Each row is a named setting (on by default), the reason counted in the fetch log, and what is looked at. robots.txt is
asked before a page is requested; headers are judged before its body is read. What holds is recorded with the page even
where a setting overrules it. Marks inside the page are `clean`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.wishes.robots import Robots, content_signal

PRODUCT_TOKEN = "webtext"

# Crawlers whose purpose, in their operators' own words, is training data, or whose corpora are known for it.
AI_TRAINING_TOKENS = (
    "anthropic-ai",
    "applebot-extended",
    "bytespider",
    "ccbot",
    "claudebot",
    "cohere-training-data-crawler",
    "diffbot",
    "google-extended",
    "gptbot",
    "meta-externalagent",
    "omgili",
    "webzio-extended",
)
KNOWN_TOKENS = frozenset({PRODUCT_TOKEN, *AI_TRAINING_TOKENS})

OPT_OUTS: Mapping[str, tuple[str, str]] = {
    "obey_robots": ("robots_disallowed", "robots.txt forbids the path to 'webtext' or to everybody"),
    "obey_ai_robots": (
        "robots_disallowed_ai_training",
        "robots.txt forbids the path to an AI-training crawler by name",
    ),
    "obey_content_signal": ("content_signal_no_training", "Content-Signal 'ai-train=no', in robots.txt or as a header"),
    "obey_tdm_reservation": ("tdm_reserved", "header 'TDM-Reservation: 1'"),
    "obey_noai": ("noai_header", "header 'X-Robots-Tag: noai'"),
    "obey_noindex": ("noindex_header", "header 'X-Robots-Tag: noindex' (or 'none')"),
}
"""Setting -> (reason, what is looked at)."""


def robots_opt_outs(robots: Robots, path: str) -> list[str]:
    """The reasons why robots.txt keeps `path` (with query) from us, in the table's order, whatever the settings say."""
    if robots.is_silent:
        return []
    own = robots.group(PRODUCT_TOKEN)
    found = []
    if not own.allows(path):
        found.append("robots_disallowed")
    if not all(group.allows(path) for group in robots.own_groups(AI_TRAINING_TOKENS)):
        found.append("robots_disallowed_ai_training")
    if own.content_signal.get("ai-train") == "no":
        found.append("content_signal_no_training")
    return found


def header_opt_outs(headers: Iterable[tuple[str, str]]) -> list[str]:
    """The reasons why the response's headers keep the page from us, whatever the settings say.

    Header names are lower-case.
    """
    found: set[str] = set()
    for name, value in headers:
        if name == "content-signal" and content_signal(value).get("ai-train") == "no":
            found.add("content_signal_no_training")
        elif name == "tdm-reservation" and value.strip() == "1":
            found.add("tdm_reserved")
        elif name == "x-robots-tag":
            rules = robots_tag_rules(value)
            if "noai" in rules:
                found.add("noai_header")
            if rules & {"noindex", "none"}:
                found.add("noindex_header")
    return [reason for reason, _ in OPT_OUTS.values() if reason in found] if found else []


def obeyed(opt_outs: Iterable[str], settings: FetchSettings) -> str | None:
    """The first of the wishes that the settings obey; None when they overrule all of them."""
    for reason in opt_outs:
        if any(getattr(settings, name) for name, (known, _) in OPT_OUTS.items() if known == reason):
            return reason
    return None


def robots_tag_rules(value: str) -> set[str]:
    """The rules of one X-Robots-Tag header that hold for us: those for everybody and those for `webtext`.

    >>> sorted(robots_tag_rules("noai, nofollow")), sorted(robots_tag_rules("googlebot: noindex, nofollow"))
    (['noai', 'nofollow'], [])
    """
    rules: set[str] = set()
    agent = PRODUCT_TOKEN
    for part in value.lower().split(","):
        name, colon, rule = part.partition(":")
        if colon and not name.strip().startswith(("max-", "unavailable_after")):
            agent, part = name.strip(), rule
        if agent in (PRODUCT_TOKEN, "*"):
            rules.add(part.strip())
    return rules
