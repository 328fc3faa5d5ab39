"""Hacker News: stories by slices of time, items by number; then deleted, dead, missing and odd items."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dump_files import by_url
from local_apis import LocalApis

from webtext.base.errors import ConfigError, NetworkError
from webtext.crawl.apis.inputs import Items, Listing, Stories, parse_input

DAY = 86_400
START = 1_451_606_400  # 2016-01-01
BOUNDARY = 1_454_284_800  # 2016-02-01
JANUARY = "hackernews:2016-01-01..2016-02-01"


def story(number: int, created: int, **fields: Any) -> dict[str, Any]:
    return {
        "objectID": str(number),
        "url": f"https://site{number}.example.org/",
        "points": 10,
        "created_at_i": created,
        "_tags": ["story"],
        **fields,
    }


def test_a_month_of_stories_is_cut_until_each_slice_fits(collect: Any, apis: LocalApis) -> None:
    """2,500 stories in an hour do not fit in an answer of 1,000: slices are halved, and nothing is lost or repeated."""
    rush = [story(number, START + 5 * DAY + number) for number in range(2500)]
    quiet = [story(10_000 + day, START + day * DAY) for day in range(31)]
    beyond = [story(1, START - 1), story(2, BOUNDARY)]
    apis.stories = sorted([*rush, *quiet, *beyond], key=lambda each: -each["created_at_i"])
    links = collect(JANUARY, api=apis.settings())
    assert links.counts.kept == links.records == 2531
    assert links.counts.records_in == 2531
    assert len(apis.requests) < 60
    (vote,) = by_url(links)["https://site10003.example.org/"]["posts"]
    assert (vote["source"], vote["post_id"], vote["score"], vote["subreddit"]) == ("hackernews", "10003", 10, None)
    assert vote["created"] == START + 3 * DAY


def test_more_stories_in_a_second_than_fit_in_an_answer_are_an_error(collect: Any, apis: LocalApis) -> None:
    apis.stories = [story(number, START + 7) for number in range(1200)]
    with pytest.raises(NetworkError, match=f"only 1,000 stories of second {START + 7}, and has more"):
        collect("hackernews:2016-01-01..2016-01-02", api=apis.settings())


def test_points_are_judged_by_the_karma_rule(collect: Any, apis: LocalApis) -> None:
    apis.stories = [story(1, START, points=2), story(2, START, points=None), story(3, START, points=3)]
    counts = collect(JANUARY, api=apis.settings()).counts
    assert (counts.kept, counts.dropped) == (1, {"too_little_karma": 1, "null_score": 1})
    assert not any("points" in asked.query["numericFilters"] for asked in apis.requests)


def test_stories_without_a_url_or_with_one_of_hacker_news_are_self_posts(collect: Any, apis: LocalApis) -> None:
    urls = [None, "", "https://news.ycombinator.com/item?id=1", "https://news.ycombinator.community/"]
    apis.stories = [story(number, START, url=url) for number, url in enumerate(urls)]
    counts = collect(JANUARY, api=apis.settings()).counts
    assert (counts.kept, counts.dropped) == (1, {"self_post": 3})


@pytest.mark.parametrize("of", ["own", "documented"])
def test_items_of_each_type_give_their_one_link(
    collect: Any, apis: LocalApis, of: str, request: pytest.FixtureRequest
) -> None:
    """The first is a story with a URL; the others are a comment, a question, a job and a poll."""
    kinds = ("story", "comment", "story", "job", "poll", "pollopt")
    items = [{"id": i, "type": kind, "time": START + i, "score": i, "text": "a"} for i, kind in enumerate(kinds, 8)]
    items[0]["url"] = items[3]["url"] = "https://site8.example.org/"
    if of == "documented":
        files = sorted((request.getfixturevalue("shared_data") / "crawl" / "hn").glob("item_*.json"))
        items = [item for file in files if "type" in (item := json.loads(file.read_text()))]
    assert len(items) == 6
    apis.items = {1 + place: item for place, item in enumerate(items)} | {7: None}
    links = collect("hackernews:1..", api=apis.settings())
    assert [asked.path for asked in apis.requests][0] == "/v0/maxitem.json"
    assert sorted(apis.paths()[1:]) == [f"/v0/item/{number}.json" for number in range(1, 8)]
    (row,) = by_url(links).values()
    story = items[0]
    assert (row["url"], row["posts"][0]["post_id"]) == (story["url"], str(story["id"]))
    assert (row["karma"], row["first_created"]) == (story["score"], story["time"])
    assert links.counts.dropped == {"self_post": 1, "no_link": 5}
    assert links.counts.failed == {}


def test_deleted_dead_and_odd_items_are_counted(collect: Any, apis: LocalApis) -> None:
    item = {"id": 1, "type": "story", "score": 5, "time": START, "url": "https://example.org/", "by": "someone"}
    apis.items = dict(
        enumerate(
            [item | {"of_tomorrow": [{"deep": True}]}, {"id": 2, "deleted": True, "type": "story", "time": START}]
            + [item | {"dead": True}, item | {"id": "x"}, [1, 2], 7, "text", item | {"score": 10**30}],
            start=1,
        )
    )
    links = collect("hackernews:1..9", api=apis.settings())
    assert links.counts.kept == 1
    assert links.counts.dropped == {"deleted_by_user": 1, "removed_by_moderator": 1}
    assert links.counts.failed == {"wrong_type": 5}


def test_an_open_end_is_fixed_once(harvest: Any, apis: LocalApis) -> None:
    apis.items = dict.fromkeys(range(1, 101))
    apis.trouble = []

    def break_off() -> None:
        if "/v0/item/80.json" in apis.paths():
            apis.trouble.append((403, {}))

    apis.before_answer = break_off
    with pytest.raises(NetworkError, match="Hacker News refused item"):
        harvest("hackernews:1..")
    apis.before_answer = lambda: None
    apis.trouble.clear()
    apis.requests.clear()
    apis.items[101] = None
    harvest("hackernews:1..")
    assert sorted(apis.paths()) == sorted(f"/v0/item/{number}.json" for number in range(65, 101))


def test_nothing_is_sent_to_hacker_news_without_a_contact(collect: Any) -> None:
    with pytest.raises(ConfigError, match="no contact"):
        collect(JANUARY)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("reddit:r/books/top", Listing("r/books/top", None)),
        ("reddit:r/a_b+Cd/new/", Listing("r/a_b+Cd/new", None)),
        ("reddit:domain/example.org/controversial?t=all", Listing("domain/example.org/controversial", "all")),
        ("reddit:top?t=day", Listing("top", "day")),
        ("hackernews:2016-01-01T00:00:01Z..2016-01-02", Stories(START + 1, START + DAY)),
        ("hackernews:1..2", Items(1, 2)),
        ("hackernews:8863..", Items(8863, None)),
        ("RS_2016-01.zst", None),
        ("s3://bucket/reddit", None),
        ("reddit", None),
    ],
)
def test_an_input_may_name_an_api(text: str, meaning: object) -> None:
    assert parse_input(text) == meaning


@pytest.mark.parametrize(
    "text",
    ["reddit:", "reddit:r/books", "reddit:r/books/top?t=decade", "reddit:r/books/top?limit=5", "reddit:user/x/new"]
    + ["reddit:r/../api/v1/me", "reddit:r/a b/top", "hackernews:", "hackernews:2016-01-01", "hackernews:5..4"]
    + ["hackernews:0..4", "hackernews:2016-02-01..2016-01-01", "hackernews:2016-01-01..", "hackernews:a..b"]
    + ["hackernews:-1..2", "reddit:r/books/top?t=all&t=day"],
)
def test_unknown_requests_to_an_api_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_input(text)
