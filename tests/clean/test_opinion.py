"""The second opinion: when trafilatura is asked, what its text changes, and what a page can do to it."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from webtext.clean.extract import html as html_module
from webtext.clean.extract import opinion
from webtext.clean.extract.blocks import Blocks, TextBlock
from webtext.clean.extract.body import Body, ExtractSettings, extract_body
from webtext.clean.extract.features import PageFeatures
from webtext.clean.extract.opinion import ASKED_FROM, MAX_CHARACTERS, MAX_ELEMENTS, WEIGHT, shares
from webtext.clean.extract.pages import extract_recipe
from webtext.clean.extract.scorer import ScoredPage
from webtext.clean.reasons import Refused

FUSED, BLOCKS, LIBRARY = (ExtractSettings(extractor=name) for name in ("fused", "blocks", "trafilatura"))
FIRST = "The harbour of the old town was built of granite long ago."
SECOND = "Rain is expected in the north, and the ferries will be late."
PAGE = f"<html><title>A title</title><body><p>{FIRST}</p><p>{SECOND}</p></body></html>".encode()


def block(text: str) -> TextBlock:
    return TextBlock(text, -1, 0, 0, 0)


def judge_by(monkeypatch: pytest.MonkeyPatch, *probabilities: float) -> None:
    """Let the scorer give the page's blocks these probabilities."""

    def judge(found: Blocks, *_: Any) -> ScoredPage:
        return ScoredPage(PageFeatures(found), np.array(probabilities), {"article": 0.0, "forum": 1.0})

    monkeypatch.setattr(html_module, "scorer", lambda: SimpleNamespace(judge=judge))


def answer(monkeypatch: pytest.MonkeyPatch, text: str | None) -> list[None]:
    """Let trafilatura answer with a text, or fail; return a list with an element for each time that it was asked."""
    asked = []

    def by_trafilatura(tree: Any) -> str:
        asked.append(None)
        if text is None:
            raise RecursionError
        return text

    monkeypatch.setattr(opinion, "by_trafilatura", by_trafilatura)
    return asked


def extracted(settings: ExtractSettings, page: bytes = PAGE) -> Body:
    found = extract_body(page, "text/html", settings)
    assert isinstance(found, Body)
    return found


def test_a_block_is_in_a_text_by_its_runs_of_three_words_and_a_short_one_by_its_line() -> None:
    given = [block("One two three four."), block("Menu"), block("two"), block("*"), block("five six seven")]
    assert shares(given, "ONE, two three\n- menu\n").tolist() == [0.5, 1.0, 0.0, 0.5, 0.0]


def test_the_opinion_decides_between_blocks_that_are_as_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    judge_by(monkeypatch, 0.35, 0.4)
    asked = answer(monkeypatch, FIRST)
    assert extracted(BLOCKS).text == f"{FIRST}\n{SECOND}"
    assert not asked
    fused = extracted(FUSED)
    assert fused.text == FIRST
    assert fused.agreement == 2 * 10 / (
        22 + 10
    )  # of 22 runs of three words 10 are in the other text, which has no more


def test_a_page_of_which_the_scorer_is_sure_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    judge_by(monkeypatch, 0.97, 0.02)
    asked = answer(monkeypatch, SECOND)
    assert extracted(FUSED) == extracted(BLOCKS)
    assert not asked
    assert extracted(FUSED).agreement is None


@pytest.mark.parametrize(("article", "is_asked"), [(0.0, False), (1.0, True)])
def test_an_article_is_asked_about_sooner_than_another_page(article: float, is_asked: bool) -> None:
    """Of 110 words 10 are undecided, 94.5 are to be expected in the text."""
    found = Blocks([block("word " * 99 + "word"), block("other " * 9 + "other")], [])
    judged = ScoredPage(PageFeatures(found), np.array([0.9, 0.45]), {"article": article, "forum": 1 - article})
    assert judged.undecided(WEIGHT) == pytest.approx((0.5 + article) * 10 / 94.5)
    assert (judged.undecided(WEIGHT) >= ASKED_FROM) is is_asked


def test_a_page_on_which_trafilatura_fails_is_judged_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    judge_by(monkeypatch, 0.35, 0.4)
    asked = answer(monkeypatch, None)
    assert extracted(FUSED) == extracted(BLOCKS)
    assert len(asked) == 1


@pytest.mark.parametrize("place", ["opinion.by_trafilatura", "metadata.find_date"])
def test_a_lack_of_memory_never_decides_what_a_document_contains(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_by(monkeypatch, 0.35, 0.4)
    monkeypatch.setattr(f"webtext.clean.extract.{place}", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        extracted(FUSED)


@pytest.mark.parametrize(
    "inside", ["<p>a line</p>" * (MAX_ELEMENTS + 1), "<p>" + "words and " * (MAX_CHARACTERS // 10 + 1)]
)
def test_a_page_too_large_for_trafilatura_fails_if_it_is_the_extractor_and_else_has_its_blocks(inside: str) -> None:
    page = f"<html><body>{inside}</body></html>".encode()
    refused = extract_body(page, "text/html", LIBRARY)
    assert isinstance(refused, Refused)
    assert refused.reason == "too_large_for_trafilatura"
    assert extracted(FUSED, page) == extracted(BLOCKS, page)


@pytest.mark.parametrize("name", ["fused", "trafilatura"])
def test_another_trafilatura_makes_the_documents_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ExtractSettings(extractor=name)
    before, of_blocks = extract_recipe(settings), extract_recipe(BLOCKS)
    assert "trafilatura" in before.versions
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda of: "99" if of == "trafilatura" else version(of))
    assert extract_recipe(settings).hash != before.hash
    assert extract_recipe(BLOCKS).hash == of_blocks.hash
