"""The numbers that describe a block: worked examples, and what holds for every page."""

from __future__ import annotations

import numpy as np
import pytest
import regex  # type: ignore[import-untyped]
from hypothesis import example, given
from hypothesis import strategies as st

from webtext.clean.extract.blocks import Blocks, Container, TextBlock, read_blocks
from webtext.clean.extract.characters import DIGIT, LINE, SPACE, UNSPACED, UPPER, Characters
from webtext.clean.extract.features import MAX_WORDS, PLAIN_WORDS, Array, PageFeatures, name_parts, words_of
from webtext.clean.extract.html import parse
from webtext.clean.text.unspaced import script_of

SENTENCE = "The harbour of the old town was built of granite, and people still walk there."


def page(body: str) -> PageFeatures:
    return PageFeatures(read_blocks(parse(f"<html><body>{body}</body></html>")))


def described(
    body: str,
    title: str = "",
    descriptions: tuple[str, ...] = (),
    names: dict[str, float] | None = None,
    **words: float,
) -> dict[str, Array]:
    return page(body).described(title, descriptions, names or {}, words)


def test_names_fall_into_their_parts() -> None:
    assert name_parts("postBody post-body js_x XMLHttp a") == ("body", "http", "post", "xml")
    assert name_parts("") == ()
    assert name_parts("x" * 30 + " ok abc") == ("abc",)


def test_the_first_words_of_a_text_are_looked_up_in_lower_case() -> None:
    assert words_of("Read MORE, please: Größe 12") == ["read", "more", "please", "größe", "12"]
    assert words_of("a " * 1000) == ["a"] * MAX_WORDS
    assert words_of("x" * 10_000_000) == ["x" * 20 * MAX_WORDS]


def test_a_block_s_text_is_described() -> None:
    """'See 10 <a>ships</a> now.' has 17 characters, 4 words, 5 characters in one link, 2 digits, and a stop at the end."""
    columns = described("<p>See 10 <a href=/>ships</a> now.</p><li><b>Menu:</b></li>")
    assert columns["n"].tolist() == np.log1p([17, 5]).tolist()
    assert columns["words"].tolist() == np.log1p([4, 1]).tolist()
    assert columns["linked"].tolist() == [5 / 17, 0]
    assert columns["links"].tolist() == np.log1p([1, 0]).tolist()
    assert columns["bold"].tolist() == [0, 1]
    assert columns["digits"].tolist() == [2 / 17, 0]
    assert columns["ends"].tolist() == [1, 0]
    assert columns["colon"].tolist() == [0, 1]
    assert columns["word_length"].tolist() == [17 / 4, 5]


def test_words_have_the_mean_the_lowest_and_the_highest_of_their_weights() -> None:
    columns = described("<h2>Related ships</h2><p>x</p>", related=-3.0, ships=1.0)
    assert [columns[f"word_{name}"].tolist() for name in ("mean", "min", "max")] == [[-1, 0], [-3, 0], [1, 0]]
    assert columns["heading_mean"].tolist() == [0, -1]
    assert columns["heading_distance"].tolist() == np.log1p([1, 1]).tolist()


def test_names_are_described_by_their_weights_from_the_container_up_to_the_page() -> None:
    body = "<div class=sidebar><div class=post-body><p>a</p></div></div><p class=post>b</p>"
    columns = described(body, names={"sidebar": -2.0, "post": 1.0, "body": 0.5})
    assert columns["name_own"].tolist() == [0, 1]
    assert columns["name_1"].tolist() == [1.5, 0]
    assert columns["name_2"].tolist() == [-2, 0]
    assert columns["name_min"].tolist() == [-2, 0]
    assert columns["name_max"].tolist() == [1.5, 1]
    assert columns["name_sum"].tolist() == pytest.approx([0.7 * (0.7 * -2 + 1.5), 1])
    assert (columns["name+1"].tolist(), columns["name-1"].tolist()) == ([1, 0], [0, 0])


def test_a_block_is_in_the_elements_around_it() -> None:
    columns = described("<nav><ul><li>menu</ul></nav><main><article aria-hidden=true><p>text</article></main>")
    inside = [{name for name in columns if name.startswith("in_") and columns[name][i] == 1} for i in (0, 1)]
    assert inside[0] >= {"in_nav", "in_ul", "in_li"}
    assert inside[1] >= {"in_main", "in_article", "in_hidden"}
    assert not inside[0] & {"in_main", "in_article", "in_hidden", "in_form"}
    assert columns["depth"].tolist() == [4, 4]


def test_the_part_of_the_page_with_most_of_its_plain_text_is_its_main_part() -> None:
    columns = described(f"<div><a href=/>{SENTENCE.upper()[1:]}</a></div><div><div><p>{SENTENCE}</div></div><p>short")
    assert columns["in_main_part"].argmax() == 1
    assert columns["position"].tolist() == sorted(columns["position"])
    assert columns["page_linked"][0] == pytest.approx((len(SENTENCE) - 1) / (2 * len(SENTENCE) + 4))


def test_the_distance_from_the_main_heading_has_a_sign() -> None:
    columns = described(
        "<p>a<h1>The title of a page</h1><p>b<p>The lead of it", "The title of a page", ("The lead of it",)
    )
    assert columns["is_title"].tolist() == [0, 1, 0, 0]
    assert columns["from_title"].tolist() == (np.sign([-1, 0, 1, 2]) * np.log1p([1, 0, 1, 2])).tolist()
    assert described("<p>a")["from_title"].tolist() == [0]


def test_a_block_that_the_page_states_as_its_description_is_marked() -> None:
    assert described(f"<p>{SENTENCE}<p>other", descriptions=(f" {SENTENCE} ",))["is_description"].tolist() == [1, 0]


def test_blocks_in_containers_of_equal_tags_and_names_are_repeats() -> None:
    columns = described("<ul><li class=c>a</li><li class=c>bcd</li></ul><p>x</p>")
    assert columns["repeats"].tolist() == np.log1p([2, 2, 1]).tolist()
    assert columns["repeats_n"].tolist() == np.log1p([2, 2, 1]).tolist()
    assert columns["repeats_share"].tolist() == [4 / 5, 4 / 5, 1 / 5]


def test_neighbours_outside_the_page_count_as_nothing() -> None:
    columns = described("<p>a<p>bb<p>ccc")
    assert columns["n+1"].tolist() == np.log1p([2, 3, 0]).tolist()
    assert columns["n-2"].tolist() == np.log1p([0, 0, 1]).tolist()


def test_the_second_stage_sees_the_estimates_around_a_block() -> None:
    """Words weigh 1 + 0.5 each block: the div's mean is (0.9 + 0.3) / 2."""
    columns = page("<div><p>a<p>b</div><p>c").judged(np.array([0.9, 0.3, 0.2]))
    assert columns["judged_own"].tolist() == [0.9, 0.3, 0.2]
    assert columns["judged_above1"].tolist() == pytest.approx([0.6, 0.6, 1.4 / 3])
    assert columns["judged_next+1"].tolist() == [0.3, 0.2, 0]
    assert columns["judged_highest"].tolist() == [0.9] * 3
    assert columns["judged_page"].tolist() == pytest.approx([1.4 / 3] * 3)
    assert columns["judged_after_last"].tolist() == np.log1p([0, 1, 2]).tolist()


@st.composite
def made(draw: st.DrawFn) -> Blocks:
    """Blocks and containers as `read_blocks` promises them."""
    texts = st.text("ab. \n1", min_size=1, max_size=30).filter(lambda text: text.strip())
    found = Blocks([], [])

    def fill(parent: int, depth: int) -> None:
        at = len(found.containers)
        tag, names = (
            draw(st.sampled_from(["div", "p", "h1", "li", "td", "pre", "x-y"])),
            draw(st.sampled_from(["", "a-b", "Post"])),
        )
        found.containers.append(Container(tag, names, parent, draw(st.booleans()), len(found.blocks)))
        for is_block in draw(st.lists(st.booleans(), max_size=3)):
            if is_block:
                text = draw(texts)
                found.blocks.append(TextBlock(text, at, draw(st.integers(0, 40)), draw(st.integers(0, 3)), 0))
            elif depth < 4:
                fill(at, depth + 1)
        found.containers[at].end = len(found.blocks)

    fill(-1, 0)
    found.blocks.append(TextBlock(draw(texts), -1, 0, 0, 0))
    return found


@given(made(), st.text("ab ", max_size=5), st.floats(0, 1))
def test_every_feature_is_a_finite_number_of_every_block_and_has_the_same_name_on_every_page(
    found: Blocks, title: str, probability: float
) -> None:
    of_page = PageFeatures(found)
    columns = of_page.described(title, (title,), {"post": 1.0, "a": -1.0}, {"ab": 2.0})
    columns |= of_page.judged(np.full(of_page.n_blocks, probability))
    assert list(columns) == NAMES
    for values in columns.values():
        assert values.shape == (len(found.blocks),)
        assert np.isfinite(values).all()


ONE = page("one")
NAMES = [*ONE.described("", (), {}, {}), *ONE.judged(np.zeros(1))]


def test_plain_text_is_long_and_not_linked() -> None:
    words = "word " * PLAIN_WORDS
    assert page(f"<p>{words}<p>{words[5:]}<p><a href=/>{words}x").is_plain.tolist() == [True, False, False]


@pytest.mark.usefixtures("linear_time")
@pytest.mark.parametrize(
    "body",
    [
        "".join(f"<p>{i}" for i in range(20_000)),
        "".join(f"<p class='{i} a{i}b'>x{i}" for i in range(20_000)),
        "<div>" * 230 + "".join(f"<p>{i}" for i in range(20_000)),
        "<p>" + "Words, and $1 " * 100_000,
        "<p>" + "." * 1_000_000 + "<p>" + "1,000" * 100_000 + "<p>" + "A" * 1_000_000,
        f"<p class='{'aB' * 500_000}'>text",
    ],
    ids=["blocks", "names", "deep", "one line", "one word", "one name"],
)
def test_the_time_is_linear_in_the_page(body: str) -> None:
    assert described(body, SENTENCE * 6, (SENTENCE * 6,) * 8, {"abc": 1.0})["n"].size


@given(texts=st.lists(st.text(min_size=1), min_size=1), first=st.integers(1, 4))
@example(texts=["A b C\n D", " e", "Ⅷ ǅ É 中", "x\tY"], first=2)
def test_characters_of_all_texts_are_counted_as_those_of_each(texts: list[str], first: int) -> None:
    characters = Characters(texts)
    assert characters.count(SPACE).tolist() == [text.count(" ") for text in texts]
    assert characters.count(DIGIT | LINE).tolist() == [sum(c in "0123456789\n" for c in text) for text in texts]
    assert characters.count(UPPER).tolist() == [len(regex.findall(r"\p{Lu}", text)) for text in texts]
    assert characters.count(UNSPACED).tolist() == [sum(script_of(c) is not None for c in text) for text in texts]
    begun = [[word[:1] for word in text.split(" ")[:first]] for text in texts]
    assert characters.capitals(first).tolist() == [sum(map(str.isupper, letters)) for letters in begun]
