"""The page that shows texts side by side: which pages, which words are marked, and how much of a text is shown."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))
from extraction_page import EXCERPT, chosen, excerpt, page_text, sides
from extraction_sets import Page


def page(name: str, kind: str = "forum", body: bytes = b"", text: str = "") -> Page:
    return Page("wcxb", name, "http://a.example/", kind, body, text)


def test_pages_are_those_in_the_middle_of_five_parts_by_score() -> None:
    """Fifteen forums, worst first: parts of three pages, whose second is shown. Three listings are all shown."""
    forums = [page(f"{i:02}") for i in range(15)]
    listings = [page(name, "listing") for name in "abc"]
    shown = [each.name for each, _ in chosen([*forums, *listings], np.array([*np.linspace(0, 1, 15), 0, 0, 0]))]
    assert shown == ["01", "04", "07", "10", "13", "a", "b", "c"]


def test_words_are_marked_as_superfluous_missing_or_in_neither() -> None:
    body = (
        b"<html><body><nav>Menu</nav><h1>Title</h1><p>First <b>post</b>.</p><div>Log in &amp; vote</div></body></html>"
    )
    shown = sides(page("a", body=body, text="Title\nFirst post."), "First post.\nLog in & vote")
    assert '"text"><small>Menu\n</small><ins>Title\n</ins>First post .\n<del>Log in &amp; vote</del></div>' in shown
    assert '"text">First post.\n<del>Log in &amp; vote</del></div>' in shown
    assert '"text"><ins>Title\n</ins>First post.</div>' in shown


def test_an_excerpt_has_the_longest_differences_and_is_bounded() -> None:
    tokens = [f"{i:05} " for i in range(10_000)]
    marks = ["del" if i in range(5000, 9000) or i % 100 == 50 else "" for i in range(10_000)]
    shown = excerpt(tokens, marks)
    assert "<del>05000 05001 " in shown
    assert "08999 </del>09000 " in shown
    assert len(shown) < 2 * EXCERPT


def test_a_text_without_differences_is_shown_from_its_beginning_to_its_end() -> None:
    assert excerpt(["a ", "b "], ["", ""]) == "a b "


def test_scripts_are_not_text() -> None:
    assert page_text(b"<html><body><script>1</script><p>one<style>2</style> <i>two</i></p></body></html>") == "one two"
