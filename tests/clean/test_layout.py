"""The text or Markdown of kept blocks."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.clean.extract.blocks import Blocks, Container, TextBlock, read_blocks
from webtext.clean.extract.html import parse
from webtext.clean.extract.layout import MAX_CELL, MAX_COLUMNS, MAX_INDENT, MAX_QUOTES, layout

PAGE = """
<h1>Ships</h1><p>One<br>two</p>
<ul><li>outer<ul><li>inner</li></ul>more</li></ul>
<ol><li>first</li><li><p>second</p><pre>
if x:
    y()</pre></li></ol>
<table><tr><th>Name</th><th>Tons</th></tr><tr><td>Ann|a</td><td>12</td></tr></table>
<blockquote><p>Said<br>so</p></blockquote>
"""
TEXT = """Ships
One
two
- outer
- inner
more
- first
- second
if x:
    y()
Name | Tons
Ann|a | 12
Said
so"""
MARKDOWN = r"""# Ships

One
two

- outer

  - inner

  more

1. first

2. second

   ```
   if x:
       y()
   ```

| Name | Tons |
| --- | --- |
| Ann\|a | 12 |

> Said
> so"""


def blocks(body: str) -> Blocks:
    return read_blocks(parse(f"<html><body>{body}</body></html>"))


def text(body: str, *, markdown: bool = False) -> str:
    found = blocks(body)
    return layout(found, [True] * len(found.blocks), markdown=markdown)


def markdown(body: str) -> str:
    return text(body, markdown=True)


def test_a_page_as_text_and_as_markdown() -> None:
    assert text(PAGE) == TEXT
    assert markdown(PAGE) == MARKDOWN


def test_only_kept_blocks_are_written_and_the_order_stays() -> None:
    found = blocks("<p>one</p><p>two</p><p>three</p>")
    assert layout(found, [True, False, True]) == "one\nthree"
    assert layout(found, [False] * 3) == layout(found, [False] * 3, markdown=True) == ""
    with pytest.raises(ValueError):
        layout(found, [True])


def test_javadocs_cells_stay_apart() -> None:
    body = (
        "<table><caption><span>Constructors</span></caption><tr><th>Constructor</th><th>Description</th></tr>"
        "<tr><td><code><a href=x>Ship</a>(int tons)</code></td><td><div>Makes a ship.</div></td></tr></table>"
    )
    assert text(body) == "Constructors\nConstructor | Description\nShip(int tons) | Makes a ship."


def test_a_row_with_a_long_cell_is_layout_and_the_other_rows_are_not() -> None:
    long = "granite " * (MAX_CELL // 8 + 1)
    body = f"<table><tr><td>a</td><td>b</td></tr><tr><td>menu</td><td>{long}</td></tr><tr><td>c</td><td>d</td></tr></table>"
    assert text(body) == f"a | b\nmenu\n{long.strip()}\nc | d"
    assert markdown(body) == f"| a | b |\n| --- | --- |\n\nmenu\n\n{long.strip()}\n\n| c | d |\n| --- | --- |"


def test_a_cell_of_many_short_paragraphs_is_a_long_one() -> None:
    body = f"<table><tr><td>menu</td><td>{'<p>A short paragraph.</p>' * 20}</td></tr></table>"
    assert text(body).split("\n") == ["menu", *["A short paragraph."] * 20]


def test_a_row_with_code_is_layout_so_that_the_code_keeps_its_lines() -> None:
    assert text("<table><tr><td>1</td><td><pre>a\n  b</pre></td></tr></table>") == "1\na\n  b"


def test_a_table_in_pre_is_a_table() -> None:
    body = "<pre>Results\n<p><table><tr><td>1.</td><td>Ann\n  Lee</td></tr></table></p></pre>"
    assert text(body) == "Results\n1. | Ann Lee"
    assert markdown(body) == "```\nResults\n```\n\n| 1. | Ann Lee |\n| --- | --- |"


def test_a_cell_of_several_blocks_is_one_cell() -> None:
    assert text("<table><tr><td><p>a</p><p>b<br>c</p></td><td>d</td></tr></table>") == "a b c | d"


def test_empty_and_left_out_cells_keep_their_place_in_markdown() -> None:
    found = blocks("<table><tr><th></th><th>A</th><th>B</th></tr><tr><td>x</td><td>no</td><td>2</td></tr></table>")
    kept = [block.text != "no" for block in found.blocks]
    assert layout(found, kept, markdown=True) == "|  | A | B |\n| --- | --- | --- |\n| x |  | 2 |"
    assert layout(found, kept) == "A | B\nx | 2"


def test_the_header_is_as_wide_as_the_widest_row_because_readers_ignore_what_is_beyond_it() -> None:
    table = markdown("<table><tr><td>a</td></tr><tr><td>b</td><td>c</td></tr></table>")
    assert table == "| a |  |\n| --- | --- |\n| b | c |"


def test_a_table_in_a_table_is_written_for_itself() -> None:
    body = "<table><tr><td>out<table><caption>In</caption><tr><td>i</td><td>j</td></tr></table>side</td></tr></table>"
    assert text(body) == "out\nIn\ni | j\nside"
    assert markdown(body) == "| out |\n| --- |\n\nIn\n\n| i | j |\n| --- | --- |\n\n| side |\n| --- |"


def test_code_is_fenced_by_more_backticks_than_it_contains() -> None:
    assert markdown("<pre>a ```` b `</pre>") == "`````\na ```` b `\n`````"
    assert markdown("<pre>a</pre>") == "```\na\n```"


def test_below_an_item_lines_begin_where_its_text_begins() -> None:
    """CommonMark §5.2: three blanks below '1. ', two below '- '."""
    body = "<ol><li>a<br>b<ul><li>c<ol><li>d</li></ol></li></ul><p>e</p></li></ol>"
    assert markdown(body) == "1. a\n   b\n\n   - c\n\n     1. d\n\n   e"


def test_an_item_has_its_sign_once() -> None:
    assert text("<ul><li><p>a</p><p>b</p></li><li><b>c</b></li></ul>") == "- a\nb\n- c"
    assert markdown("<ul><li><h3>a</h3><p>b</p></li></ul>") == "- ### a\n\n  b"


def test_numbers_count_items_of_which_some_are_left_out() -> None:
    found = blocks("<ol><li>a</li><li>b</li><li>c</li></ol>")
    assert layout(found, [True, False, True], markdown=True) == "1. a\n\n3. c"


def test_numbers_are_those_that_a_list_and_its_items_state() -> None:
    """A number that Markdown has no item for, below 0 or of ten digits, counts as none."""
    for start, first, second in (("5", 5, 6), (" +0 ", 0, 1), ("-5", 1, 2), ("x", 1, 2), ("1234567890", 1, 2)):
        assert markdown(f"<ol start='{start}'><li>a<li>b</ol>") == f"{first}. a\n\n{second}. b"
    assert markdown("<ol start=5><li>a<li value=9>b<li>c</ol>") == "5. a\n\n9. b\n\n10. c"


def test_definitions_are_items_below_their_term() -> None:
    assert text("<dl><dt>Ship</dt><dd>It floats.</dd></dl>") == "Ship\n- It floats."


def test_quotes_may_be_nested() -> None:
    assert markdown("<blockquote>a<blockquote>b</blockquote></blockquote>") == "> a\n\n> > b"


def test_text_outside_any_container_is_written() -> None:
    assert layout(Blocks([TextBlock("a", -1, 0, 0, 0)], []), [True], markdown=True) == "a"


TAGS = "body div p ul ol li dl dd table tr td th pre blockquote h1 h4 caption"


@st.composite
def made(draw: st.DrawFn) -> Blocks:
    """Any containers and blocks, also such as no parser makes."""
    tags = draw(st.lists(st.sampled_from(TAGS.split()), min_size=1, max_size=25))
    containers = [Container(tag, "", draw(st.integers(-1, i - 1)), False, 0, 0) for i, tag in enumerate(tags)]
    words = st.sampled_from(["sea", "two words", "a\nb", "long " * 30, "    x", "``", "pi|pe", "word" * 60])
    at = st.integers(-1, len(tags) - 1)
    return Blocks([TextBlock(draw(words), draw(at), 0, 0, 0) for _ in range(draw(st.integers(0, 12)))], containers)


@given(made(), st.booleans())
def test_all_words_are_written_in_their_order_and_nothing_but_signs_is_added(found: Blocks, markdown: bool) -> None:
    text = layout(found, [True] * len(found.blocks), markdown=markdown)
    signs = re.compile(r"-|\||---|#+|>|\d+\.|`{3,}|\|(---\|)+")
    words = [word.replace("\\|", "|") for word in text.split() if not signs.fullmatch(word)]
    assert words == [word for block in found.blocks for word in block.text.split()]


def test_indents_quotes_and_empty_cells_are_bounded() -> None:
    """Else a page of many lines in deep elements, or of many tables in a wide row, would take quadratic time."""
    deep = markdown("<ul><li>" * 60 + "x")
    assert deep == " " * MAX_INDENT + "- x"
    assert markdown("<blockquote>" * 60 + "x") == "> " * MAX_QUOTES + "x"
    wide = markdown(f"<table><tr>{'<td></td>' * 1000}<td>x</td></tr></table>")
    assert wide.split("\n")[0].count("|") == MAX_COLUMNS + 2


@pytest.mark.slow
@pytest.mark.usefixtures("linear_time")
@pytest.mark.parametrize(
    "body",
    [
        f"<table><tr>{'<td>a</td>' * 20_000}</tr>{'<tr><td>b</td></tr>' * 20_000}</table>",
        f"<table><tr>{'<td></td>' * 20_000}<td>{'x<table><tr><td>a</table>' * 10_000}</table>",
        "<ul>" + "<li>an item</li>" * 20_000 + "</ul>",
        "<blockquote>" * 60 + "<ul><li>" * 60 + "<pre>" + "a\n" * 200_000,
        "<pre>" + "`a" * 1_000_000,
        "<p>" + "words and " * 300_000,
    ],
    ids=["wide and long table", "tables in a wide row", "items", "deep lines", "backticks", "one line"],
)
def test_the_time_is_linear_in_the_page(body: str) -> None:
    found = blocks(body)
    for markdown in (False, True):
        assert layout(found, [True] * len(found.blocks), markdown=markdown)
