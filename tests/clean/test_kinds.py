"""The kind of a page: the facts that its markup states, and their weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.clean.extract.html import parse
from webtext.clean.extract.kinds import KINDS, kind_probabilities, page_facts

NO_SIZES = np.zeros((1, len(KINDS)))


def facts(head: str, body: str = "<p>text", html: str = "") -> set[str]:
    source = f"<html {html}><head>{head}</head><body {body.partition('|')[0] if '|' in body else ''}>{body.partition('|')[2]}"
    return page_facts(parse(source), source)


def test_a_forum_states_these_facts() -> None:
    head = """<meta property="og:type" content="Website"><meta name="generator" content="Discourse 3.2 - version">
        <link rel=canonical href="https://forum.example/t/oldShips/12">
        <script type="application/ld+json">{"@type" : "DiscussionForumPosting"}</script>"""
    body = 'class="topic-page" id=desk|<div itemscope itemtype="http://schema.org/Comment">A post</div>'
    assert facts(head, body, "class=dark-js") == {
        *("type DiscussionForumPosting", "meta og:type", "og website", "meta generator", "generator discourse"),
        *("generator version", "path old", "path ships", "depth 2", "item Comment", "html dark", "body topic"),
        *("body page", "body desk"),
    }


def test_a_page_that_states_nothing_has_no_facts() -> None:
    assert facts("") == set()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/", {"depth 0"}),
        ("https://a.example/blog/2020/the-ships/", {"depth 2", "path blog", "path the", "path ships"}),
        ("https://[broken/blog", set()),
        ("", {"depth 0"}),
    ],
)
def test_the_canonical_url_gives_the_words_and_the_depth_of_its_path(url: str, expected: set[str]) -> None:
    assert facts(f"<link rel=canonical href='{url}'>") == expected


def test_the_most_probable_kind_has_the_weights_of_the_page_s_facts_on_its_side() -> None:
    """exp(2) / (exp(2) + 6) = 0.552."""
    weights = {"og forum": [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]}
    probability = kind_probabilities({"og forum", "of no weight"}, np.zeros(0), weights, NO_SIZES)
    assert probability.tolist() == pytest.approx([0.0747, 0.5519, *[0.0747] * 5], abs=1e-4)
    assert kind_probabilities(set(), np.zeros(0), weights, NO_SIZES).tolist() == pytest.approx([1 / 7] * 7)


def test_sizes_count_with_their_weights_and_the_last_row_is_added_to_all() -> None:
    of_sizes = np.zeros((3, len(KINDS)))
    of_sizes[0, 0], of_sizes[2, 1] = 1.0, 2.5
    assert np.argmax(kind_probabilities(set(), np.array([2.0, 9.0]), {}, of_sizes)) == 1
    assert np.argmax(kind_probabilities(set(), np.array([3.0, 9.0]), {}, of_sizes)) == 0


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.floats(-300, 300), min_size=7, max_size=7)),
    st.sets(st.sampled_from("abcdefg")),
)
def test_probabilities_sum_to_one_however_large_the_weights_are(
    weights: dict[str, list[float]], given_facts: set[str]
) -> None:
    probability = kind_probabilities(given_facts, np.zeros(0), weights, NO_SIZES)
    assert probability.min() >= 0
    assert probability.sum() == pytest.approx(1)


@given(st.text("<>/metalinkhtmlbodypropertycontentitemtype =\"'&;!-@:#[]é\x00", max_size=300))
def test_no_page_makes_the_search_for_facts_raise(page: str) -> None:
    source = f"<html><meta {page}><body {page}><link rel=canonical href='//[{page}'><p {page}>{page}"
    assert all(isinstance(fact, str) for fact in page_facts(parse(source), source))


@pytest.mark.usefixtures("linear_time")
@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("".join(f'<meta property="m{i}" content=x>' for i in range(30_000)), "|"),
        ("", "|" + "".join(f"<p itemtype=/t{i}>" for i in range(30_000))),
        ('<script>"@type"' + " " * 5_000_000 + '"@type"' * 100_000 + "</script>", "|"),
        ("".join(f'"@type": "T{"x" * (i % 30)}{i}"' for i in range(30_000)), "|"),
        (f"<link rel=canonical href='/{'path/' * 1_000_000}'>", f"class='{'Name ' * 1_000_000}'|"),
    ],
    ids=["metas", "items", "blanks", "types", "long names"],
)
def test_facts_are_few_and_short_whatever_the_page(head: str, body: str) -> None:
    found = facts(head, body)
    assert len(found) <= 1200
    assert max(map(len, found), default=0) < 60
