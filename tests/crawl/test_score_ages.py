"""Score ages: which months are fresh, the table beside each part, and the warning."""

from __future__ import annotations

import bisect
import contextlib
import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from dump_files import submission
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.parts.partset import PartSet
from webtext.crawl.links.score_ages import DAY, EDGES, ScoreAges, score_ages
from webtext.crawl.links.submission import Submission

NOVEMBER_2018 = 1_541_030_400


def post(created: int | None, retrieved: int | None) -> Submission:
    return submission(score=3, created=created, retrieved=retrieved)


def dump(path: Path, ages: list[int | None], created: int = NOVEMBER_2018) -> str:
    rows = [
        {"id": f"{created + i:x}", "url": f"http://a.com/{i}", "score": 5, "created_utc": created}
        | ({} if age is None else {"retrieved_on": created + age})
        for i, age in enumerate(ages)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("ages", "is_fresh"),
    [
        ([5], True),
        ([DAY - 1], True),
        ([DAY], False),
        ([5, 5, 400 * DAY], True),
        ([5, 400 * DAY], False),  # as many old as fresh
        ([-7, 0], True),  # clocks that disagree
        ([None, None, None], False),  # unknown
        ([None, None, 5], True),
    ],
)
def test_a_month_is_fresh_when_its_median_age_is_below_a_day(ages: list[int | None], is_fresh: bool) -> None:
    table = ScoreAges()
    table.add([post(NOVEMBER_2018, None if age is None else NOVEMBER_2018 + age) for age in ages])
    assert table.fresh_months() == (["2018-11"] if is_fresh else [])


def test_an_age_equal_to_an_edge_counts_above_it() -> None:
    table = ScoreAges()
    table.add([post(0, edge + off) for edge in EDGES for off in (-1, 0)])
    assert json.loads(table.to_bytes()) == {"edges": list(EDGES), "months": {"1970-01": [1, 2, 2, 2, 2, 2, 1]}}


def test_months_are_in_utc_and_tables_add_up() -> None:
    one, two = ScoreAges(), ScoreAges()
    one.add([post(NOVEMBER_2018 - 1, NOVEMBER_2018), post(NOVEMBER_2018, NOVEMBER_2018 + DAY)])
    two.add([post(NOVEMBER_2018, NOVEMBER_2018), post(NOVEMBER_2018, NOVEMBER_2018)])
    total = ScoreAges()
    total.merge(one.to_bytes())
    total.merge(two.to_bytes())
    assert total.fresh_months() == ["2018-10", "2018-11"]
    assert one.fresh_months() == ["2018-10"]


def test_times_outside_the_calendar_are_left_out() -> None:
    table = ScoreAges()
    table.add([post(created, created) for created in (-(2**62), 2**62)])
    assert json.loads(table.to_bytes())["months"] == {}


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**11), 10**12),
            st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 400 * DAY),
            st.booleans(),
        )
    )
)
def test_many_posts_at_once_are_counted_like_each_alone(times: list[tuple[int, int | None, bool]]) -> None:
    """Also if the difference of two times does not fit in 64 bits."""
    posts, months = [], {}
    for created, number, is_age in times:
        retrieved = number if number is None or not is_age else min(max(created + number, -(2**63)), 2**63 - 1)
        posts.append(post(created, retrieved))
        if retrieved is not None:
            with contextlib.suppress(ValueError, OverflowError):
                month = (date(1970, 1, 1) + timedelta(created // DAY)).isoformat()[:7]
                months.setdefault(month, [0] * (len(EDGES) + 1))[bisect.bisect_right(EDGES, retrieved - created)] += 1
    at_once, one_by_one = ScoreAges(), ScoreAges()
    at_once.add(posts)
    for each in posts:
        one_by_one.add([each])
        one_by_one.fresh_months()
    assert json.loads(at_once.to_bytes())["months"] == months
    assert one_by_one.to_bytes() == at_once.to_bytes()


def test_a_links_set_keeps_the_table_of_the_posts_that_count(collect: Any, tmp_path: Path) -> None:
    path = dump(tmp_path / "RS_x", [5, 5, 400 * DAY, None])
    links = collect(path, before=None, parts=3)
    assert score_ages(links).months == {"2018-11": [2, 0, 0, 0, 0, 0, 1]}
    assert all(part.attachments for part in links.parts)
    links.verify()


def test_after_a_later_reading_a_month_is_not_fresh(collect: Any, tmp_path: Path) -> None:
    first = dump(tmp_path / "RS_1", [5, 5])
    second = dump(tmp_path / "RS_2", [400 * DAY, 400 * DAY])
    links = collect(first, second, before=None)
    assert score_ages(links).months == {"2018-11": [0, 0, 0, 0, 0, 0, 2]}


def test_the_verb_lists_fresh_months_and_can_drop_their_posts(
    links_verb: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fresh = dump(tmp_path / "RS_2018-11", [5, 60, 400 * DAY])
    ripe = dump(tmp_path / "RS_2018-12", [30 * DAY], NOVEMBER_2018 + 40 * DAY)
    arguments = (fresh, ripe, "--before", "none", "--json")
    assert links_verb(*arguments) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["fresh_months"] == ["2018-11"]
    assert "warning: most scores of 2018-11 were read within a day" in said.err
    assert "--min-score-age 86400" in said.err
    assert links_verb(*arguments, "--min-score-age", "86400") == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["counts"]["dropped"] == {"score_too_fresh": 2}
    assert "warning" not in said.err
    assert PartSet.open(str(tmp_path / "links"), "links").recipe["settings"]["min_score_age"] == 86_400
