"""The documentation builds as a site without a broken link, has every command, and a browser needs nothing but the site."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import click
import pytest

from webtext.app.main import cli

REPOSITORY = Path(__file__).resolve().parents[2]
CHROMIUM = Path("/usr/bin/chromium")


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "-b", "html", ".", str(site)]
    return subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(REPOSITORY, folder)
    assert built.returncode == 0, built.stderr
    return folder


def verbs(command: click.Command, name: str) -> list[str]:
    if not isinstance(command, click.Group):
        return [name]
    context = click.Context(command)
    children = ((each, command.get_command(context, each)) for each in command.list_commands(context))
    return [verb for each, child in children if child is not None for verb in verbs(child, f"{name} {each}")]


def test_the_reference_has_every_verb_and_public_name(site: Path) -> None:
    commands = unescape(re.sub(r"<[^>]+>", "", (site / "docs/reference/commands.html").read_text()))
    assert [verb for verb in verbs(cli, "webtext") if verb not in commands] == []
    import webtext

    python = (site / "docs/reference/python.html").read_text()
    names = [name for name in webtext.__all__ if name != "__version__"]
    assert [name for name in names if not re.search(rf'id="webtext\.(\w+\.)*{name}"', python)] == []


def test_a_broken_link_or_anchor_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/conf.py").write_text((REPOSITORY / "docs/conf.py").read_text())
    good = "# A\n\n## Part\n\n[here](#part) [there](index.md#part)\n"
    for text, code in ((good, 0), (good + "[no](none.md)\n", 1), (good + "[no](index.md#none)\n", 1)):
        (tmp_path / "docs/index.md").write_text(text)
        assert build(tmp_path, tmp_path / "site").returncode == code, text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_asks_for_nothing_else_and_a_phone_shows_whole_pages(site: Path, scheme: str) -> None:
    if not CHROMIUM.exists():
        pytest.skip(f"needs chromium at '{CHROMIUM}'")
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        for name in ("index", "guide", "reference/commands", "reference/python", "measurements/clean"):
            page.goto((site / f"docs/{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        browser.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []
