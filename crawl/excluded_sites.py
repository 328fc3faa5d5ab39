"""Sites that are neither collected nor reached by a redirect: Reddit, Wikipedia, and domains on users' blocklists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webtext.base.web.urls import host_of, path_of, registrable_domain
from webtext.crawl.blocklists import DomainBlocklists

REDDIT_DOMAINS = frozenset({"reddit.com", "redd.it", "redditmedia.com", "reddituploads.com", "redditstatic.com"})
WIKIPEDIA_DOMAINS = frozenset(
    # Wikipedia's own domains, then sites that show little but its articles. Wikia and Wiktionary are not mirrors.
    {"wikipedia.org", "wikipedia.com", "enwp.org"}
    | {"wikiwand.com", "wikivisually.com", "wikimili.com", "wiki2.org", "wikizero.com", "thefullwiki.org"}
)
WIKIMEDIA_DOMAIN = "wikimedia.org"
WIKIPEDIA_OVER_TLS = "secure.wikimedia.org"  # until 2011; its paths are /wikipedia/LANGUAGE/wiki/ARTICLE


class Exclusions:
    """Judges targets of redirects by the settings in a links set's recipe. Missing settings have webtext's defaults."""

    def __init__(self, link_settings: Mapping[str, Any], domains: DomainBlocklists | None = None) -> None:
        self._keeps_links_back = bool(link_settings.get("keep_links_back", False))
        self._keeps_wikipedia = bool(link_settings.get("keep_wikipedia", False))
        self._domains = domains or DomainBlocklists()

    def excludes(self, url: str) -> bool:
        """Whether the site of this canonical URL is excluded.

        >>> rule = Exclusions({})
        >>> rule.excludes("https://de.m.wikipedia.org/wiki/A"), rule.excludes("https://example.org/wiki/A")
        (True, False)
        """
        if not self._keeps_links_back and registrable_domain(url) in REDDIT_DOMAINS:
            return True
        if not self._keeps_wikipedia and is_wikipedia(url):
            return True
        return self._domains.blocks(host_of(url))


def is_wikipedia(url: str) -> bool:
    """Whether a canonical URL leads to Wikipedia in any language, to a mirror, or to its old HTTPS address.

    >>> is_wikipedia("https://de.m.wikipedia.org/wiki/A"), is_wikipedia("http://en.wiktionary.org/wiki/a")
    (True, False)
    """
    domain = registrable_domain(url)
    if domain == WIKIMEDIA_DOMAIN:
        return host_of(url) == WIKIPEDIA_OVER_TLS and path_of(url).startswith("/wikipedia/")
    return domain in WIKIPEDIA_DOMAINS


def unnamed_lists(link_settings: Mapping[str, Any], domains: DomainBlocklists) -> list[str]:
    """Return the names of the blocklists that were applied to the links but are not in `domains`."""
    given = {each.sha256 for each in domains.lists}
    known = link_settings.get("domain_blocklists") or []
    return [str(each.get("name")) for each in known if each.get("sha256") not in given]
