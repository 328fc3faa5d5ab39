"""Opt-outs in robots.txt. `base/web/opt_outs.py` has the table of all opt-outs and reads headers and meta tags."""

from __future__ import annotations

from webtext.base.web.opt_outs import AI_TRAINING_TOKENS, PRODUCT_TOKEN
from webtext.crawl.opt_outs.robots import Robots


def robots_opt_outs(robots: Robots, path: str) -> list[str]:
    """Return the opt-outs of robots.txt for `path` (with query), in the table's order, whether obeyed or not."""
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
