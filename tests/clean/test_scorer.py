"""The scorer: trees by bit masks, the choice of blocks, and the model that comes with the package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.clean.extract import scorer as module
from webtext.clean.extract.blocks import Blocks, read_blocks
from webtext.clean.extract.features import PageFeatures
from webtext.clean.extract.html import parse
from webtext.clean.extract.kinds import KINDS
from webtext.clean.extract.scorer import MAX_LEAVES, Trees, cuts, matrix, read_scorer, scorer, sizes_of, whole_tables

SENTENCE = "The harbour of the old town was built of granite, and people still walk there in the evening."


def kept(probability: np.ndarray, n_words: np.ndarray, least: float = 0.0) -> np.ndarray:
    return np.asarray(probability >= cuts(probability, n_words, least))


def blocks(body: str) -> Blocks:
    return read_blocks(parse(f"<html><body>{body}</body></html>"))


def trees(*given_trees: tuple[list[tuple[int, float, int]], list[float]]) -> Trees:
    """Trees of splits (feature, threshold, leaves that remain on the right) and values of leaves."""
    none = (0, 0.0, 0xFFFF)
    splits = [[*splits, *[none] * (MAX_LEAVES - 1 - len(splits))] for splits, _ in given_trees]
    values = [[*values, *[0.0] * (MAX_LEAVES - len(values))] for _, values in given_trees]
    feature, threshold, remaining = ([[each[k] for each in tree] for tree in splits] for k in range(3))
    return Trees(
        np.array(feature), np.array(threshold, np.float32), np.array(remaining, np.uint16), np.array(values, np.float32)
    )


def logit(probability: np.ndarray) -> list[float]:
    return np.log(probability / (1 - probability)).tolist()


def test_a_tree_of_two_splits_finds_these_leaves() -> None:
    """x0 <= 1: leaf 0, else x1 <= 5: leaf 1, else leaf 2. Right of the first split remain all leaves but 0, of the second
    all but 1."""
    tree = trees(([(0, 1.0, 0xFFFE), (1, 5.0, 0xFFFD)], [-1.0, 2.0, 3.0]))
    rows = np.array([[1, 9], [1.5, 5], [1.5, 5.5]], np.float32)
    assert logit(tree.probabilities(rows)) == pytest.approx([-1, 2, 3])


def test_trees_add_up() -> None:
    both = trees(([], [0.5]), ([(0, 0.0, 0xFFFE)], [1.0, 2.0]))
    assert logit(both.probabilities(np.array([[0], [1]], np.float32))) == pytest.approx([1.5, 2.5])


@dataclass
class Node:
    """A tree to walk down: a leaf's value, or a split."""

    value: float
    split: tuple[int, float, Node, Node] | None = None

    def walk(self, row: np.ndarray) -> float:
        if self.split is None:
            return self.value
        feature, threshold, left, right = self.split
        return (right if row[feature] > threshold else left).walk(row)

    def masks(self, splits: list[tuple[int, float, int]], values: list[float]) -> None:
        if self.split is None:
            values.append(self.value)
            return
        feature, threshold, left, right = self.split
        first = len(values)
        left.masks(splits, values)
        splits.append((feature, threshold, 0xFFFF & ~sum(1 << leaf for leaf in range(first, len(values)))))
        right.masks(splits, values)


NUMBERS = st.integers(-4, 4).map(float)
NODES = st.recursive(
    st.builds(Node, NUMBERS),
    lambda below: st.builds(lambda *split: Node(0.0, split), st.integers(0, 2), NUMBERS, below, below),
    max_leaves=MAX_LEAVES,
)


@given(st.lists(NODES, min_size=1, max_size=4), st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8))
def test_bit_masks_find_the_leaves_that_a_walk_down_the_trees_finds(
    nodes: list[Node], rows: list[tuple[float, float, float]]
) -> None:
    given_trees = []
    for node in nodes:
        given_trees.append(([], []))  # type: ignore[var-annotated]
        node.masks(*given_trees[-1])
    features = np.array(rows, np.float32)
    expected = [sum(node.walk(row) for node in nodes) for row in features]
    assert logit(trees(*given_trees).probabilities(features)) == pytest.approx(expected, abs=1e-6)


def test_the_result_does_not_depend_on_how_many_blocks_are_scored_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.random.default_rng(0).random((50, 2), np.float32)
    tree = trees(([(0, 0.5, 0xFFFE), (1, 0.5, 0xFFFD)], [-1.0, 2.0, 3.0]))
    whole = tree.probabilities(features).tolist()
    monkeypatch.setattr(module, "CHUNK", 7)
    assert tree.probabilities(features).tolist() == whole


def expected_f1(probability: np.ndarray, n_words: np.ndarray, chosen: np.ndarray) -> float:
    """2 · expected words that are right / (words taken + expected words of the text)."""
    right = (probability * n_words)[chosen].sum()
    return float(2 * right / (n_words[chosen].sum() + (probability * n_words).sum()))


PROBABILITIES = st.lists(st.tuples(st.floats(0.001, 1), st.integers(1, 300)), min_size=1, max_size=12)


@given(PROBABILITIES)
def test_what_is_kept_has_the_highest_expected_f1_of_all_choices(given_blocks: list[tuple[float, int]]) -> None:
    """The best choice is a prefix of the blocks by falling probability (Lipton et al. 2014), so all prefixes suffice."""
    probability, n_words = (np.array(column, float) for column in zip(*given_blocks, strict=True))
    order = np.argsort(-probability)
    prefixes = [order[: i + 1] for i in range(len(order))]
    best = max(expected_f1(probability, n_words, prefix) for prefix in prefixes)
    assert expected_f1(probability, n_words, kept(probability, n_words)) == pytest.approx(best)


@given(PROBABILITIES, st.floats(0, 1))
def test_the_least_probability_only_takes_away_blocks_below_it_and_never_all(
    given_blocks: list[tuple[float, int]], least: float
) -> None:
    probability, n_words = (np.array(column, float) for column in zip(*given_blocks, strict=True))
    without, chosen = kept(probability, n_words), kept(probability, n_words, least)
    expected = without & (probability >= least)
    assert chosen.tolist() == (expected if expected.any() else without).tolist()


def test_a_sure_page_keeps_what_is_more_likely_than_not_and_an_unsure_one_keeps_less_likely_blocks() -> None:
    """F1 of the sure page reaches 2 · 100 / (100 + 130) = .87, of the unsure one 2 · 75 / (200 + 95) = .51; half is the bound."""
    words = np.array([100.0, 100.0, 100.0])
    assert kept(np.array([1.0, 0.3, 0.0]), words).tolist() == [True, False, False]
    assert kept(np.array([0.4, 0.35, 0.2]), words).tolist() == [True, True, False]


MODEL = files("webtext.clean.extract").joinpath("model.json")


def test_the_model_of_the_package_is_small_and_has_numbers_only() -> None:
    text = MODEL.read_text("utf-8")
    assert len(text.encode()) <= 230_000
    model = json.loads(text)
    learned_from = model.pop("learned from")
    assert len(learned_from["sha256"]) == 64
    assert min(learned_from["cross-validated F1"].values()) > 0.8
    assert set(model) == {"names", "words", "facts", "sizes", "features", "stages"}
    for weights in (model["names"], model["words"]):
        assert all(isinstance(weight, float) for weight in weights.values())
    assert {len(weights) for weights in model["facts"].values()} == {len(KINDS)}


def test_the_model_of_the_package_fits_the_features() -> None:
    """Else it is to be made again: python tests/learn/extractor.py."""
    model, page = scorer(), PageFeatures(blocks("one"))
    columns = model.columns(page, "", (), set())
    second = columns | page.judged(np.zeros(1))
    assert json.loads(MODEL.read_text("utf-8"))["features"] == list(second)
    assert model.sizes.shape == (len(sizes_of(columns)) + 1, len(KINDS))
    for stage, given_columns in zip(model.stages, (columns, second), strict=True):
        assert stage.feature.max() < matrix(given_columns).shape[1]


def test_every_tree_of_the_model_sends_every_block_to_one_of_its_leaves() -> None:
    """A split removes a run of leaves, never the last one."""
    for stage in scorer().stages:
        shape = len(stage.value), MAX_LEAVES - 1
        assert stage.feature.shape == stage.threshold.shape == stage.remaining.shape == shape
        assert (stage.remaining >> np.uint16(MAX_LEAVES - 1)).all()
        removed = 0xFFFF & ~stage.remaining.astype(int)
        lowest = removed & -removed
        assert (((removed + lowest) & removed) == 0).all()


ARTICLE = [f"{SENTENCE} It was the {name} of them." for name in ("first", "second", "third", "fourth", "fifth")]


def test_paragraphs_of_an_article_are_kept_and_the_menu_is_not() -> None:
    menu = "".join(f"<li><a href='/{i}'>Topic number {i}</a></li>" for i in range(20))
    body = f"<nav><ul>{menu}</ul></nav><article><h1>A harbour</h1>{''.join(f'<p>{each}</p>' for each in ARTICLE)}</article>"
    found = blocks(body)
    judged = scorer().judge(found, "A harbour", (), {"og article"})
    texts = {block.text for block, is_kept in zip(found.blocks, judged.kept, strict=True) if is_kept}
    assert judged.kind == "article"
    assert texts >= set(ARTICLE)
    assert not any("Topic" in text for text in texts)
    assert judged.probability.shape == judged.kept.shape == (len(found.blocks),)


@given(
    st.lists(st.sampled_from(["<p>a", "<li>b", f"<p>{SENTENCE}", "<td>c", "<pre>d</pre>"]), min_size=1),
    st.sampled_from(KINDS),
)
def test_the_most_probable_block_of_a_page_is_kept_whatever_its_kind(parts: list[str], kind: str) -> None:
    found = blocks("".join(parts))
    facts = {fact for fact, weights in scorer().facts.items() if np.argmax(weights) == KINDS.index(kind)}
    judged = scorer().judge(found, "", (), facts)
    assert np.isfinite(judged.probability).all()
    assert judged.kept[judged.probability.argmax()]


def test_a_model_with_a_stage_too_few_is_refused() -> None:
    model = json.loads(MODEL.read_text("utf-8"))
    with pytest.raises(ValueError):
        read_scorer(json.dumps(model | {"stages": model["stages"][:1]}))


@pytest.mark.slow
@pytest.mark.usefixtures("linear_time")
def test_the_time_is_linear_in_the_page() -> None:
    found = blocks("".join(f"<p>{i}" for i in range(120_000)))
    assert len(scorer().judge(found, "", (), set()).kept) == 120_000


def test_a_table_is_kept_or_left_out_whole_and_a_layout_table_is_not() -> None:
    """The mean over the words of the first table is (.9 + .1 * 3) / 4; the second has a long cell."""
    rows = "<table><tr><td>one</td><td>two three four</td></tr></table>"
    found = blocks(f"{rows}<p>text</p><table><tr><td>a</td><td>{'long ' * 60}</td></tr></table>")
    given = np.array([0.9, 0.1, 0.5, 0.2, 0.8])
    judged = whole_tables(found, given, np.array([1.0, 3, 1, 1, 60]))
    assert judged.tolist() == pytest.approx([0.3, 0.3, 0.5, 0.2, 0.8])
