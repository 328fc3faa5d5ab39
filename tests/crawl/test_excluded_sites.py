"""Sites that a redirect may not lead to, by the links' recipe and the user's lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from webtext.crawl.blocklists import DomainBlocklists, Exclusions, unnamed_lists


@pytest.mark.parametrize(
    ("url", "settings", "excluded"),
    [
        ("https://en.wikipedia.org/wiki/A", {}, True),
        ("https://en.wikipedia.org/wiki/A", {"keep_wikipedia": True}, False),
        ("https://en.wiktionary.org/wiki/a", {}, False),
        ("https://old.reddit.com/r/a", {}, True),
        ("https://redd.it/a", {}, True),
        ("https://redd.it/a", {"keep_links_back": True}, False),
        ("http://example.org/wikipedia.org", {}, False),
        ("http://127.0.0.1/", {}, False),
    ],
)
def test_sites_excluded_from_the_links_are_excluded(url: str, settings: dict[str, Any], excluded: bool) -> None:
    assert Exclusions(settings).excludes(url) is excluded


def test_blocked_domains_are_excluded_with_their_subdomains(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# name: sellers\nblocked.example\n")
    domains = DomainBlocklists.read([str(tmp_path / "list.txt")])
    rule = Exclusions({}, domains)
    assert rule.excludes("https://shop.blocked.example/a")
    assert not rule.excludes("https://notblocked.example/a")
    recipe = {"domain_blocklists": domains.about()}
    assert unnamed_lists(recipe, domains) == []
    assert unnamed_lists(recipe, DomainBlocklists()) == ["sellers"]
    assert unnamed_lists({}, DomainBlocklists()) == []
