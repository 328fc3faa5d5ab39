"""A page in a browser."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")


@contextlib.contextmanager
def shown(page: Path) -> Iterator[Any]:
    """The page in Chromium, as a playwright page: it fits a phone and fetches nothing. The test skips without Chromium."""
    if not CHROMIUM.exists():
        pytest.skip(f"needs chromium at '{CHROMIUM}'")
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        found = browser.new_page(viewport={"width": 1000, "height": 800})
        found.on("request", lambda request: asked.append(request.url))
        found.goto(page.as_uri())
        yield found
        found.set_viewport_size({"width": 380, "height": 800})
        assert found.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        browser.close()
    assert asked == [page.as_uri()]
