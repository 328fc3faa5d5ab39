"""The karma rule: which posts vote for a page, and for which pages a vote counts.

The profile `webtext` is GPT-2's rule (Radford et al. 2019, section 2.1: "all outbound links ... which received at least
3 karma", Wikipedia removed; the model card ends it with 2017), made exact: a post counts when its own score reaches the
threshold. Which sites stay is judged by OpenAI's list of WebText's 1,000 most frequent domains: Google, GitHub, eBay,
Wikia and link shorteners are in it, Wikipedia and Reddit are not.

Reasons, in the order they are looked at; the first that holds is the one that is counted:

    null_score  null_url  null_created      the source does not tell
    too_late                                created at or after `before`
    over_18  self_post                      what the post is
    too_little_karma                        score below `min_karma`
    not_http                                no http(s) URL by the WHATWG standard
    links_back                              to Reddit itself or its media hosts
    wikipedia                               Wikipedia in any language, or a mirror of it
    media                                   an image, audio or video file by its name
"""

from __future__ import annotations

import re

from webtext.base.urls import canonical_url, path_of, registrable_domain
from webtext.crawl.link_settings import LinkSettings, timestamp
from webtext.crawl.submission import Submission

__all__ = ["LinkSettings", "is_media", "judge", "judge_post", "judge_url"]

REDDIT_DOMAINS = frozenset({"reddit.com", "redd.it", "redditmedia.com", "reddituploads.com", "redditstatic.com"})
WIKIPEDIA_DOMAINS = frozenset(
    # Wikipedia's own names, then sites that show its articles and little else. Wikia and Wiktionary are not mirrors.
    {"wikipedia.org", "wikipedia.com", "enwp.org"}
    | {"wikiwand.com", "wikivisually.com", "wikimili.com", "wiki2.org", "wikizero.com", "thefullwiki.org"}
)
IMAGES = "bmp|gif|gifv|ico|jpeg|jpg|png|svg|tif|tiff|webp"
AUDIO = "aac|flac|m4a|mid|midi|mp3|ogg|opus|wav|wma"
VIDEO = "3gp|avi|flv|m4v|mkv|mov|mp4|mpeg|mpg|ogv|webm|wmv"


def judge(post: Submission, settings: LinkSettings) -> tuple[str, None] | tuple[None, str]:
    """(canonical URL, None) for a vote that counts, else (None, the reason why it does not)."""
    reason = judge_post(post, settings)
    if reason is not None:
        return None, reason
    url = canonical_url(post.url or "")
    if url is None:
        return None, "not_http"
    reason = judge_url(url, settings)
    return (url, None) if reason is None else (None, reason)


def judge_post(post: Submission, settings: LinkSettings) -> str | None:
    """Why the post does not count, whatever it links to; None when it does."""
    if post.score is None:
        return "null_score"
    if post.url is None:
        return "null_url"
    if post.created is None:
        return "null_created"
    if settings.before is not None and post.created >= timestamp(settings.before):
        return "too_late"
    if post.over_18 and not settings.keep_over_18:
        return "over_18"
    if post.is_self:
        return "self_post"
    if settings.min_karma is not None and post.score < settings.min_karma:
        return "too_little_karma"
    return None


def judge_url(url: str, settings: LinkSettings) -> str | None:
    """Why a canonical URL is not collected; None when it is."""
    domain = registrable_domain(url)
    if domain in REDDIT_DOMAINS:
        return "links_back"
    if domain in WIKIPEDIA_DOMAINS and not settings.keep_wikipedia:
        return "wikipedia"
    if not settings.keep_media and is_media(url):
        return "media"
    return None


def is_media(url: str) -> bool:
    """Whether the path names an image, audio or video file; a size after the extension (`.jpg:large`) does not hide it.

    >>> is_media("https://example.com/a.JPG?size=2"), is_media("https://example.com/?file=a.jpg")
    (True, False)
    """
    return _MEDIA.search(path_of(url)) is not None


_MEDIA = re.compile(rf"\.(?:{IMAGES}|{AUDIO}|{VIDEO})(?::[a-z0-9]+)?$", re.IGNORECASE)
