"""Links in Reddit's Markdown: everything that readers see as a link, and nothing else."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.crawl.links.markdown import links_in

SITE = "https://site.example"


def links(text: str) -> list[str]:
    return links_in(text, SITE)


def test_every_way_to_write_a_link_in_one_comment() -> None:
    text = (
        'See [a paper](http://a.com/paper "Title (1)"), [b][2], [c], <http://d.com/x>, http://e.com/y. www.f.com/z!\n\n'
        "    http://code.com\n\n"
        "and `http://code.com`, [2] and /r/books.\n\n"
        "[2]: http://b.com/ 'Title'\n[c]: <http://c.com/>\n[unused]: http://unused.com/\n"
    )
    assert links(text) == [
        *("http://a.com/paper", "http://b.com/", "http://c.com/", "http://d.com/x"),
        *("http://e.com/y", "http://www.f.com/z"),
    ]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("[film](http://en.wikipedia.org/wiki/Link_(film))", "http://en.wikipedia.org/wiki/Link_(film)"),
        (r"[film](http://en.wikipedia.org/wiki/Link_\(film\))", "http://en.wikipedia.org/wiki/Link_(film)"),
        (r"[film](http://en.wikipedia.org/wiki/Link_(film\))", "http://en.wikipedia.org/wiki/Link_(film)"),
        ("http://en.wikipedia.org/wiki/Link_(film)", "http://en.wikipedia.org/wiki/Link_(film)"),
        ("(see http://en.wikipedia.org/wiki/Link_(film).)", "http://en.wikipedia.org/wiki/Link_(film)"),
        ("[(a)](http://a.com/((x)y))", "http://a.com/((x)y)"),
        ("[a](<http://a.com/x y> 'title')", "http://a.com/x y"),
    ],
)
def test_parentheses_in_urls_are_kept(text: str, url: str) -> None:
    assert links(text) == [url]


@pytest.mark.parametrize(
    "around",
    [
        "{}.",
        "{}!?",
        "({})",
        "see {}, and",
        "'{}'",
        '"{}"',
        "**{}**",
        "*{}*",
        "_{}_",
        "~~{}~~",
        "[{}]",
        "{}:",
        "<b>{}</b>",
    ],
)
def test_a_bare_url_ends_before_the_punctuation_of_its_sentence(around: str) -> None:
    assert links(around.format("http://a.com/x_y?q=1&r=2")) == ["http://a.com/x_y?q=1&r=2"]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://a.com/x_(y))", "http://a.com/x_(y)"),
        ("http://a.com/?a[]=1&b[2]=3]", "http://a.com/?a[]=1&b[2]=3"),
        ("http://a.com/?x&gt;", "http://a.com/?x"),
        ("http://a.com/x;", "http://a.com/x"),
        ("HTTPS://A.com/x", "HTTPS://A.com/x"),
        ("http://a.com/*b*c_d_e`f`", "http://a.com/*b*c_d_e`f`"),
        (r"http://a.com/snake\_case\_\(x\)", "http://a.com/snake_case_(x)"),
        ("http://user:pw@a.com/", "http://user:pw@a.com/"),
        ("http://münchen.example/straße", "http://münchen.example/straße"),
        ("^(http://a.com/x)", "http://a.com/x"),
        ("> http://quoted.com", "http://quoted.com"),
        (">!http://hidden.com/x!<", "http://hidden.com/x"),
        ("a|b\n-|-\nhttp://a.com/x|text", "http://a.com/x"),
    ],
)
def test_bare_urls(text: str, url: str) -> None:
    assert links(text) == [url]


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost/x",
        "xhttp://a.com",
        "awww.a.com",
        r"http\://a.com",
        "http://",
        "`http://a.com`",
        "``a ` http://a.com``",
        "```\nhttp://a.com\n```",
        "text\n\n    http://a.com",
        "[a][b] and [c]",
        "[a]()",
        "/r/books and /u/somebody",
        "",
    ],
)
def test_text_that_is_not_a_link(text: str) -> None:
    assert links(text) == []


def test_a_bare_url_after_an_escaped_bracket_is_a_link() -> None:
    assert links(r"\[a\](http://a.com/x)") == ["http://a.com/x"]


def test_a_url_in_a_links_text_is_not_a_second_link() -> None:
    assert links("[http://shown.com/?a[]=1](http://meant.com/)") == ["http://meant.com/"]


def test_an_image_is_a_link() -> None:
    assert links('![picture](http://a.com/p.png "title")') == ["http://a.com/p.png"]


def test_html_is_text() -> None:
    assert links('<a href="http://a.com/">http://b.com/</a>') == ["http://a.com/", "http://b.com/"]


def test_each_url_counts_once_in_order() -> None:
    assert links("http://b.com [x](http://a.com) http://b.com") == ["http://b.com", "http://a.com"]


@pytest.mark.parametrize(
    ("destination", "url"),
    [
        ("/r/books/wiki", f"{SITE}/r/books/wiki"),
        ("#spoiler", f"{SITE}/#spoiler"),
        ("books", f"{SITE}/books"),
        ("//a.com/x", "https://a.com/x"),
        ("www.a.com/x", "http://www.a.com/x"),
        ("mailto:a@b.com", "mailto:a@b.com"),
        ("javascript:alert(1)", "javascript:alert(1)"),
    ],
)
def test_targets_without_scheme_and_host_are_pages_of_the_site(destination: str, url: str) -> None:
    assert links(f"[x]({destination})") == [url]


HOSTILE = {
    "brackets": "[",
    "links": "[a](",
    "images": "![",
    "URLs without a blank": "http://a.b",
    "URLs": "www.a.b ",
    "parentheses": "http://a.b/" + ")" * 500 + " ",
    "entities": "&a;" * 300 + " http://a.b/&a;",
    "dots": "http://" + "a." * 200,
    "autolinks": "<http://a",
    "ticks": "`` ` ",
    "emphasis": "*a _b ",
    "quotes": "> ",
    "lists": "- ",
    "tables": "|a",
    "references": "[a]: b\n",
}


def steps(text: str) -> int:
    """Return the number of Python lines that are executed."""
    n_lines = 0

    def count(_: FrameType, event: str, __: object) -> Any:
        nonlocal n_lines
        n_lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        links(text)
    finally:
        sys.settrace(before)
    return n_lines


@pytest.mark.parametrize("name", HOSTILE)
def test_work_is_linear_in_the_length(name: str) -> None:
    """For eight times the text, linear work takes eight times the steps, quadratic work 64 times."""

    def text(n_characters: int) -> str:
        return (HOSTILE[name] * n_characters)[:n_characters] + "\n\nhttp://a.b"

    assert steps(text(2_000)) < 12 * steps(text(250))


def test_10_000_nested_brackets_do_not_hide_a_link_after_them() -> None:
    assert links("[" * 10_000 + " http://a.com/x " + "]" * 10_000 + "\n\nhttp://b.com")[-1] == "http://b.com"


@given(st.text(alphabet="ah/:.w[]()<>`*_\\!&;#|~ \n>-", max_size=60).map(lambda text: f"http://a.b/ {text} www.a.b"))
@settings(max_examples=300, deadline=None)
def test_no_text_crashes_the_parser(text: str) -> None:
    assert all(isinstance(link, str) and link for link in links(text))
