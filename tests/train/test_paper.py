"""`train paper`: the paper's numbers agree with each other, and a page shows a model's own beside them."""

from __future__ import annotations

from statistics import fmean

import pytest

from webtext.train.evaluate.paper.published import (
    LARGEST,
    STATE_OF_THE_ART,
    TABLE_4,
    TABLE_5,
    TABLE_6,
    TITLES,
    published,
)
from webtext.train.evaluate.table3 import SIZES, TABLE_3


def test_the_papers_numbers_are_those_that_its_text_derives_from_them() -> None:
    """Sections 3.6 and 4: the mean of ROUGE, 6.4 points without the hint, overlaps of 5.9 % and 3.2 % on average."""
    for *scores, mean in TABLE_4.values():
        assert fmean(scores) == pytest.approx(mean, abs=0.0051)
    assert TABLE_4["TL;DR:"][3] - TABLE_4["no hint"][3] == pytest.approx(6.4, abs=0.05)
    own, webtext = zip(*TABLE_6.values(), strict=True)
    assert (round(100 * fmean(own), 1), round(100 * fmean(webtext), 1)) == (5.9, 3.2)
    ranks, probabilities, _ = zip(*TABLE_5, strict=True)
    assert ranks == tuple(range(1, 31))
    assert list(probabilities) == sorted(probabilities, reverse=True)


def test_rows_of_the_page_are_those_of_table_3() -> None:
    rows = {(row.task, row.measure): row.values for row in published() if row.place == "table 3"}
    for task, measures in TABLE_3.items():
        for measure, values in measures.items():
            row = rows[task, measure]
            assert [row[size] for size in SIZES] == list(values)
            assert row["state of the art"] == STATE_OF_THE_ART[task, measure]
    figure_2 = {row.task: list(row.values.values()) for row in published() if row.place == "figure 2"}
    assert figure_2 == {task: list(TABLE_3[task]["accuracy"]) for task in ("cbt-cn", "cbt-ne")}
    assert rows["lambada", "accuracy, no stop-word filter"] == {LARGEST: 0.5266}


def test_every_row_belongs_to_a_table_or_figure() -> None:
    assert {row.place for row in published()} <= TITLES.keys()
    assert len(TITLES) == 6 + 5
