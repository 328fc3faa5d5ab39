"""Where a redirect may not lead: to what the links' own recipe leaves out, and to domains on the user's blocklists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webtext.base.urls import host_of, registrable_domain
from webtext.crawl.blocklists import DomainBlocklists
from webtext.crawl.links.karma import REDDIT_DOMAINS, is_wikipedia


class Exclusions:
    """Judges the targets of redirects by the settings in a links set's recipe; one that names no rule has `webtext`'s."""

    def __init__(self, link_settings: Mapping[str, Any], domains: DomainBlocklists | None = None) -> None:
        self._keeps_links_back = bool(link_settings.get("keep_links_back", False))
        self._keeps_wikipedia = bool(link_settings.get("keep_wikipedia", False))
        self._domains = domains or DomainBlocklists()

    def excludes(self, url: str) -> bool:
        """Whether the links would not hold this canonical URL because of its site.

        >>> rule = Exclusions({})
        >>> rule.excludes("https://de.m.wikipedia.org/wiki/A"), rule.excludes("https://example.org/wiki/A")
        (True, False)
        """
        if not self._keeps_links_back and registrable_domain(url) in REDDIT_DOMAINS:
            return True
        if not self._keeps_wikipedia and is_wikipedia(url):
            return True
        return self._domains.blocks(host_of(url))


def unnamed_lists(link_settings: Mapping[str, Any], domains: DomainBlocklists) -> list[str]:
    """Names of the blocklists that the links were held against and that are not given here."""
    given = {each.sha256 for each in domains.lists}
    known = link_settings.get("domain_blocklists") or []
    return [str(each.get("name")) for each in known if each.get("sha256") not in given]
