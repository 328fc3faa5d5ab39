"""The karma rule: which posts vote for a page, and for which pages a vote counts.

The profile `webtext` is GPT-2's rule (Radford et al. 2019, section 2.1: "all outbound links ... which received at least
3 karma", Wikipedia removed; the model card ends it with 2017 and names a blocklist of subreddits), made exact: a post
counts if its own score reaches the threshold, and a link is kept if one of its posts counts. Which sites are dropped
follows OpenAI's list of WebText's 1,000 most frequent domains: it contains Google, GitHub, eBay, Wikia and link
shorteners, but neither Wikipedia nor Reddit. The other profiles are in `crawl/links/settings.py`.

Drop reasons in the order of the checks; only the first that applies is counted:

    null_score  null_url  null_created      the source lacks the value
    too_late                                created at or after `before`
    over_18  self_post                      marked over 18; a text without a link
    blocked_subreddit                       the post's subreddit is on a blocklist
    too_little_karma                        score below `min_karma`; for `sum_karma` see crawl/links/collect.py
    score_too_fresh                         the score was read less than `min_score_age` after the post was created
    not_http                                not an http(s) URL by the WHATWG standard
    url_too_long                            its canonical form is longer than 8 KiB
    links_back                              links to Reddit itself or its media hosts
    wikipedia                               links to Wikipedia in any language or to a mirror
    blocked_domain                          the domain is on a blocklist
    media                                   the path names an image, audio or video file
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from webtext.base.web.urls import MAX_URL_BYTES, canonical_url, host_of, path_of, registrable_domain
from webtext.crawl.blocklists import REDDIT_DOMAINS, DomainBlocklists, SubredditBlocklists, is_wikipedia
from webtext.crawl.links.settings import KarmaRule, LinkSettings, PostRule
from webtext.crawl.links.sources.submission import Submission
from webtext.crawl.tracking import without_tracking

IMAGES = "bmp|gif|gifv|ico|jpeg|jpg|png|svg|tif|tiff|webp"
AUDIO = "aac|flac|m4a|mid|midi|mp3|ogg|opus|wav|wma"
VIDEO = "3gp|avi|flv|m4v|mkv|mov|mp4|mpeg|mpg|ogv|webm|wmv"


class KarmaJudge:
    """A rule with its blocklists. Call it with a post: (link URL, None) if the vote counts, else (None, reason)."""

    def __init__(
        self,
        rule: KarmaRule,
        subreddits: SubredditBlocklists | None = None,
        domains: DomainBlocklists | None = None,
        min_score_age: int | None = None,
    ) -> None:
        self.rule = rule
        self._subreddits = subreddits or SubredditBlocklists()
        self._domains = domains or DomainBlocklists()
        self.post_rule = PostRule(
            end=rule.end,
            keep_over_18=rule.keep_over_18,
            keep_self_posts=rule.keep_self_posts,
            blocked_subreddits=self._subreddits.entries,
            min_karma=None if rule.sum_karma else rule.min_karma,
            min_score_age=min_score_age,
        )

    @classmethod
    def of(cls, settings: LinkSettings) -> KarmaJudge:
        """Return the judge for these settings. Raises InputError if a blocklist cannot be read."""
        subreddits = SubredditBlocklists.read(settings.subreddit_blocklist)
        domains = DomainBlocklists.read(settings.domain_blocklist)
        return cls(settings.rule, subreddits, domains, settings.min_score_age)

    def about(self) -> dict[str, Any]:
        """Return the recipe's entry: the effective values of the rule, and its blocklists."""
        lists = {"subreddit_blocklists": self._subreddits.about(), "domain_blocklists": self._domains.about()}
        return dataclasses.asdict(self.rule) | lists

    def __call__(self, post: Submission) -> tuple[str, None] | tuple[None, str]:
        reason = self.judge_post(post)
        if reason is not None:
            return None, reason
        url = link_url(post.url or "")
        if url is None:
            return None, "not_http"
        reason = self._judge_url(url)
        return (url, None) if reason is None else (None, reason)

    def judge_post(self, post: Submission) -> str | None:
        """Return why the post does not count, whatever it links to, or None if it counts."""
        rule = self.post_rule
        if post.score is None:
            return "null_score"
        if post.url is None:
            return "null_url"
        if post.created is None:
            return "null_created"
        if rule.end is not None and post.created >= rule.end:
            return "too_late"
        if post.over_18 and not rule.keep_over_18:
            return "over_18"
        if post.is_self and not rule.keep_self_posts:
            return "self_post"
        if self._subreddits.lists and self._subreddits.blocks(post.subreddit):
            return "blocked_subreddit"
        if rule.min_karma is not None and post.score < rule.min_karma:
            return "too_little_karma"
        age = None if post.retrieved is None else post.retrieved - post.created
        is_too_fresh = rule.min_score_age is not None and age is not None and age < rule.min_score_age
        return "score_too_fresh" if is_too_fresh else None

    def _judge_url(self, url: str) -> str | None:
        if len(url) > MAX_URL_BYTES:
            return "url_too_long"
        domain = registrable_domain(url)
        if domain in REDDIT_DOMAINS and not self.rule.keep_links_back:
            return "links_back"
        if not self.rule.keep_wikipedia and is_wikipedia(url):
            return "wikipedia"
        if self._domains.lists and self._domains.blocks(host_of(url)):
            return "blocked_domain"
        if not self.rule.keep_media and is_media(url):
            return "media"
        return None


def link_url(raw: str) -> str | None:
    """Return the URL that identifies a link: canonical, without fragment and tracking parameters; None if not http(s).

    A fragment that begins with `!` is removed as well: it is never sent to a server, so `/#!a` and `/#!b` are one page.

    >>> link_url("HTTP://Example.com/a?id=7&utm_source=mail#top")
    'http://example.com/a?id=7'
    """
    url = canonical_url(raw)
    return None if url is None else without_tracking(url)


def is_media(url: str) -> bool:
    """Whether the path names an image, audio or video file, possibly with a size after its extension (`.jpg:large`).

    >>> is_media("https://example.com/a.JPG?size=2"), is_media("https://example.com/?file=a.jpg")
    (True, False)
    """
    return _MEDIA.search(path_of(url)) is not None


_MEDIA = re.compile(rf"\.(?:{IMAGES}|{AUDIO}|{VIDEO})(?::[a-z0-9]+)?$", re.IGNORECASE)
