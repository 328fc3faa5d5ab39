"""Untrusted text made safe to show."""

from __future__ import annotations

import re

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)  # C0, C1, directions


def visible(text: str) -> str:
    """Escape the control characters of untrusted text, with which it could command a terminal or hide other text."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)
