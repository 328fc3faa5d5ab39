"""Blocks of a page: what text they have, in which containers, and what is left out."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.clean.extract.blocks import MIN_REPEAT, Blocks, TextBlock, read_blocks
from webtext.clean.extract.html import parse

SENTENCE = "The harbour of the old town was built of granite, and people still walk there."
assert len(SENTENCE.replace(" ", "")) >= MIN_REPEAT


def blocks(body: str) -> Blocks:
    return read_blocks(parse(f"<html><head><title>A title</title></head><body>{body}</body></html>"))


def texts(body: str) -> list[str]:
    return [block.text for block in blocks(body).blocks]


def test_a_small_page_has_these_blocks_and_containers() -> None:
    """Lines of the first block: 'Hi <a>old' (6 letters of it in the link), then 'town</a> <b>wide</b>'."""
    found = blocks(
        "<div class='post main' id=x role=main><p>Hi <a href=/>old<br>town</a>\n <b>wide</b></p></div><p aria-hidden=true>Bye"
    )
    assert [(c.tag, c.names, c.parent, c.hidden, c.first, c.end) for c in found.containers] == [
        ("body", "", -1, False, 0, 2),
        ("div", "post main x main", 0, False, 0, 1),
        ("p", "", 1, False, 0, 1),
        ("p", "", 0, True, 1, 2),
    ]
    assert found.blocks == [TextBlock("Hi old\ntown wide", 2, 7, 1, 4), TextBlock("Bye", 3, 0, 0, 0)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("before<p>in</p>after", ["before", "in", "after"]),
        ("<p>one<br><br/> two <br></p>", ["one\ntwo"]),
        ("<p>  a \n\t b&nbsp;&#160; c  ", ["a b c"]),
        ("<p>un<wbr>broken <span>wo</span>rd", ["unbroken word"]),
        ("<p><span>super</span><wbr><span>cali</span>", ["supercali"]),
        ("<p>by <meta itemprop='x' content='y'>Ann <link itemprop='z' href='/'>Lee", ["by Ann Lee"]),
        ("<a href=/x><div>a card</div></a>", ["a card"]),
        ("<p>x <math alttext='a^2'><mi>a</mi></math> y <math><mi>b</mi></math>", ["x a^2 y b"]),
        ("<p> </p><div></div><p>\n<br>\n</p>", []),
    ],
)
def test_block_elements_divide_text_and_inline_elements_do_not(body: str, expected: list[str]) -> None:
    assert texts(body) == expected


@pytest.mark.parametrize("sign", ["¶", "#", "§", " \u200b ", "\uf0c1"])
def test_a_link_of_a_single_sign_to_a_place_in_the_page_vanishes(sign: str) -> None:
    assert texts(f"<h2>Usage<a class=headerlink href='#usage'>{sign}</a></h2>") == ["Usage"]


@pytest.mark.parametrize(
    "link", ["<a href='#a'>A</a>", "<a href='#a'>##</a>", "<a href='/a'>¶</a>", "<a>¶</a>", "<a href='#a'>3</a>"]
)
def test_other_links_stay(link: str) -> None:
    assert texts(f"<p>See {link}, please") == [f"See {link.split('>')[1].split('<')[0]}, please"]


def test_text_after_a_sign_that_vanished_stays() -> None:
    assert texts("<p>one <a href='#x'>¶</a> two") == ["one two"]


def test_cells_and_buttons_that_are_laid_out_by_style_get_a_blank_between_them() -> None:
    """As Javadoc has them. An element with text of its own is a sentence, in which nothing may be inserted."""
    javadoc = "<div><span>Constructor Summary</span><span>Constructors</span><a href=x>Constructor</a></div>"
    assert texts(javadoc) == ["Constructor Summary Constructors Constructor"]
    assert texts("<p>H<sub>2</sub><b>O</b> is <i>w</i><b>et</b>") == ["H2O is wet"]


@pytest.mark.parametrize("tag", ["code", "kbd", "samp", "pre"])
def test_the_parts_of_code_stay_joined(tag: str) -> None:
    assert texts(f"<div><{tag}><span>f</span><span>(</span><span>x</span><span>)</span></{tag}></div>") == ["f(x)"]


def test_code_keeps_its_lines_and_its_indentation() -> None:
    code = "  def f():\n\n\t    return <b>1</b>\n"
    assert texts(f"<p>Code:</p><pre>\n{code}</pre>") == ["Code:", "  def f():\n\n\t    return 1"]
    assert texts("<pre>a<br>  b</pre>") == ["a\n  b"]


SKIPPED = ("audio", "canvas", "iframe", "map", "object", "script", "style", "svg", "template", "textarea", "video")


@pytest.mark.parametrize("tag", SKIPPED)
def test_what_browsers_do_not_show_as_text_is_skipped_but_not_what_follows(tag: str) -> None:
    assert texts(f"<p>one <{tag}>no text</{tag}> two</p><p>three") == ["one two", "three"]


def test_the_options_of_a_form_are_skipped() -> None:
    assert texts("<p>Choose <select><option>no<option>text</select> one") == ["Choose one"]


def test_noscript_is_dropped_where_the_page_has_its_text_elsewhere() -> None:
    found = blocks(f"<p>{SENTENCE}</p><noscript><p>Enable the script.</p></noscript><p>More.</p>")
    assert [block.text for block in found.blocks] == [SENTENCE, "More."]
    assert [(c.tag, c.first, c.end) for c in found.containers] == [
        ("body", 0, 2),
        ("p", 0, 1),
        ("noscript", 1, 1),
        ("p", 1, 1),
        ("p", 1, 2),
    ]


def test_noscript_is_kept_where_it_has_most_of_the_text_as_in_discourse() -> None:
    body = f"<div>Loading</div><noscript><div><p>{SENTENCE}</p><div><p>Second post.</p></div></div></noscript>"
    assert texts(body) == ["Loading", SENTENCE, "Second post."]


def test_the_second_of_equal_long_blocks_is_left_out_and_short_ones_are_not() -> None:
    """Case and blanks don't count."""
    short, long = "x" * (MIN_REPEAT - 1), "x " * MIN_REPEAT
    found = blocks(
        f"<p>{short}</p><p>{short}</p><div><p>{long}</p></div><div><div><p>{long.upper()}\n</p></div></div><p>end</p>"
    )
    assert [block.text for block in found.blocks] == [short, short, long.strip(), "end"]
    assert [(c.first, c.end) for c in found.containers] == [
        (0, 4),
        (0, 1),
        (1, 2),
        (2, 3),
        (2, 3),
        (3, 3),
        (3, 3),
        (3, 3),
        (3, 4),
    ]


@pytest.mark.parametrize(
    ("attribute", "hidden"),
    [
        ("hidden", True),
        ("aria-hidden=true", True),
        ("aria-hidden=false", False),
        ("style='color: red; display : none'", True),
        ("style='display: block'", False),
    ],
)
def test_what_an_attribute_hides_is_left_out_unless_it_is_a_tenth_of_the_page(attribute: str, hidden: bool) -> None:
    """What is hidden from screen readers only is read; its container says so."""
    assert texts(f"<p {attribute}>text</p>") == ["text"]
    assert texts(f"<p {attribute}>text</p><p>More than that.</p>") == ["text", "More than that."]
    found = blocks(f"<p {attribute}>text</p><p>{SENTENCE}</p>")
    is_read = not hidden or attribute.startswith("aria")
    assert [block.text for block in found.blocks] == ["text", SENTENCE][not is_read :]
    assert found.containers[1].hidden == hidden
    assert texts(f"<p>one <span {attribute}>two </span>three</p>") == ["one two three" if is_read else "one three"]


LONG = " ".join(f"Sentence {n} of the article says this and that." for n in range(30))


@pytest.mark.parametrize(
    ("body", "n"),
    [
        (f"<p>{SENTENCE}</p><p>verse</p><p>{SENTENCE}</p>", 2),  # a refrain
        (f"<table><tr><td>{SENTENCE}</td></tr><tr><td>{SENTENCE}</td></tr></table>", 2),
        (f"<div><pre>{SENTENCE}</pre></div><div><pre>{SENTENCE}</pre></div>", 2),
        (f"<div><p>{SENTENCE}</p></div><blockquote><p>{SENTENCE}</p></blockquote>", 1),  # a quoted post
    ],
)
def test_a_repeat_is_left_out_but_not_beside_its_first_copy_nor_in_cells_and_code(body: str, n: int) -> None:
    assert texts(body).count(SENTENCE) == n


def test_a_copy_of_the_text_in_one_block_is_left_out() -> None:
    parts = "".join(f"<p>{LONG[i : i + 300]}</p>" for i in range(0, len(LONG), 300))
    assert len(texts(f"<div class=machine>{LONG}</div>{parts}")) == len(texts(parts))
    assert texts(f"<div>{LONG}</div><p>{SENTENCE}</p>") == [LONG, SENTENCE]


def test_copies_are_looked_for_in_little_memory() -> None:
    """Tuples of five characters took 600 bytes for each letter of a script without blanks, 2 GB for a page of 10 MB."""
    half = "".join(chr(0x4E00 + i * 7919 % 20_011) for i in range(20_000))
    tree = parse(f"<html><body><p>{half}</p><p>{half[::-1]}</p>")
    tracemalloc.start()
    assert len(read_blocks(tree).blocks) == 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400 * 2 * len(half)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<p><span>extra</span><span>ordinary</span></p>", "extraordinary"),
        ("<p><b>Word</b><i>Press</i></p>", "WordPress"),
        ("<p><span>中文</span><span>网页</span></p>", "中文网页"),
        ("<p><a href=/>one</a><a href=/>two</a></p>", "one two"),
        ("<p>E <span class=katex><math><mi>m</mi><annotation encoding='application/x-tex'>m^2</annotation></math>"
         "<span class=katex-html aria-hidden=true>m2</span></span></p>", "E m^2"),
        ("<p>E <span class=MathJax_Preview>m2</span><script type='math/tex'>m^2</script></p>", "E m^2"),
        ("<p>E <span style='display:none'><math alttext='m^2'></math></span></p>", "E m^2"),
        ("<x-y><template shadowrootmode=open><p>text</p></template></x-y>", "text"),
        ("<p>text</p><noscript>&lt;img width=1&gt;</noscript>", "text"),
        ("<p><ruby>漢<rt>kan</rt></ruby><ruby>字<rp>(</rp><rt>ji</rt><rp>)</rp></ruby>です</p>", "漢字です"),
        ("<p><ruby><rb>漢字</rb><rp>(</rp><rt>kanji</rt><rp>)</rp></ruby>です</p>", "漢字です"),
        ("<p>In <st1:City><st1:place>Bath</st1:place></st1:City> it <noindex>rained</noindex>.<o:p></o:p>", "In Bath it rained."),
        ("<p><a-note>This</a-note> costs <price>4</price> or <picture><source><img></picture> 5", "This costs 4 or 5"),
        ("<p>E <mjx-container><mjx-math aria-hidden=true><mjx-c>m</mjx-c></mjx-math><mjx-assistive-mml><math><mi>m</mi>"
         "</math></mjx-assistive-mml></mjx-container> is", "E m is"),
        ("<p>10<sup>-6</sup> in 1999<sup><a href='#2'>2</a></sup> by x<sup>2</sup> on the 3<sup>rd</sup> at 9<sup>00</sup>0",
         "10⁻⁶ in 1999² by x2 on the 3rd at 9⁰⁰0"),
        ("<xmp>a\n  b</xmp>", "a\n  b"),
        ("<pre><ol><li><div>if x:</div></li><li><div>    y</div></li><li> </li><li>z</li></ol></pre>", "if x:\n    y\n \nz"),
        ("<ul><li>\u200b<li>\ufeff \xad<li>an item</ul><h2>&#8203;</h2><p>&zwj;</p>", "an item"),
    ],
)  # fmt: skip
def test_words_and_formulas_are_as_a_reader_sees_them(body: str, expected: str) -> None:
    assert texts(body) == [expected]


def test_unknown_elements_without_text_beside_them_are_containers() -> None:
    assert texts("<x-app><x-card>one</x-card> <x-card><p>two</p>three</x-card></x-app>") == ["one", "two", "three"]


def test_a_heading_that_links_to_itself_counts_as_unlinked() -> None:
    assert [
        block.n_linked for block in blocks("<h2><a href='#s'>Plans</a></h2><h2><a href=/>Plans</a></h2>").blocks
    ] == [0, 5]


WORDS = st.sampled_from(["a", "sea", "two words", " ", "  left", "right\n", "É!", "x" * 40, SENTENCE, ""])
SHOWN_TAGS = "div p li ul td pre h2 b span code noscript x-y center"
SHOWN = [*SHOWN_TAGS.split(), "a href=/", "a href='#x'"]
OTHERS = "br img table math button option form"
TAGS = [*SHOWN, *SKIPPED, *OTHERS.split(), "p aria-hidden=true", "body class=x"]
PAGES = st.recursive(
    WORDS,
    lambda inside: st.tuples(st.sampled_from(TAGS), st.lists(inside, max_size=4), WORDS).map(
        lambda drawn: f"<{drawn[0]}>{''.join(drawn[1])}</{drawn[0].split(' ')[0]}>{drawn[2]}"
    ),
    max_leaves=20,
)


def shown_words(element: object) -> list[str]:
    """The slow twin: each text node by itself, outside what is skipped."""
    if element.tag in (*SKIPPED, "head", "select"):  # type: ignore[attr-defined]
        return []
    found = (element.text or "").split()  # type: ignore[attr-defined]
    for child in element:  # type: ignore[attr-defined]
        found += shown_words(child) + (child.tail or "").split()
    return found


@given(PAGES)
def test_every_letter_of_the_body_is_in_a_block_unless_it_is_skipped_or_a_repeat(body: str) -> None:
    tree = parse(f"<html><body><p>first</p>{body.replace('noscript', 'div')}</body></html>")
    blocks = read_blocks(tree).blocks
    of_page, of_blocks = "".join(shown_words(tree)), "".join("".join(block.text.split()) for block in blocks)
    assert set(of_page) == set(of_blocks)
    assert not Counter(of_blocks) - Counter(of_page)
    if SENTENCE not in body and "x" * 40 not in body:  # nothing is long enough to be a repeat
        assert of_page == of_blocks


@given(PAGES | st.text("<>/abdivprenoscriptcodetable =\"'&;!-\x00\n¶", max_size=300))
def test_blocks_and_containers_are_in_order_whatever_the_page(body: str) -> None:
    """Blocks have text, are in their containers, and containers in their parents."""
    tree = parse(f"<html>{body}")
    if tree is None:
        return
    found = read_blocks(tree)
    for i, block in enumerate(found.blocks):
        assert block.text.strip("\n") == block.text
        assert block.text.strip()
        above = block.container
        while above >= 0:
            assert found.containers[above].first <= i < found.containers[above].end
            above = found.containers[above].parent
    for i, container in enumerate(found.containers):
        assert -1 <= container.parent < i
        assert container.first <= container.end
        if container.parent >= 0:
            parent = found.containers[container.parent]
            assert parent.first <= container.first
            assert container.end <= parent.end


@pytest.mark.usefixtures("linear_time")
@pytest.mark.parametrize(
    ("body", "n"),
    [
        ("<p>" + "<span>a</span>" * 60_000, 1),
        ("<p>" + "<a href='#x'>¶</a>" * 60_000 + "end", 1),
        ("<p>" + "a<br>" * 60_000, 1),
        ("<p>" + f"<b>{'word ' * 20}</b><i></i>" * 30_000, 1),
        ("<a href=/>" * 60_000 + "end", 1),
        ("<b><i>" * 120 + "<p>a" * 30_000, 30_000),
        ("<ul>" + "<li>an item</li>" * 40_000 + "</ul>", 40_000),
        ("<noscript>a</noscript>" * 20_000, 20_000),
        ("<p>" + "words and " * 300_000, 1),
        (f"<p class='{'name ' * 500_000}'>text", 1),
    ],
    ids=["spans", "signs", "lines", "formatting", "links", "deep", "items", "noscript", "one line", "names"],
)
def test_the_time_is_linear_in_the_page(body: str, n: int) -> None:
    assert len(blocks(body).blocks) == n
