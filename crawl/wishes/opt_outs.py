"""What robots.txt says against taking a page. Headers and meta tags, and the table of all opt-outs: `base/opt_outs.py`."""

from __future__ import annotations

from webtext.base.opt_outs import AI_TRAINING_TOKENS, PRODUCT_TOKEN
from webtext.crawl.wishes.robots import Robots


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
