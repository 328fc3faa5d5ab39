"""Refreshing links: today's scores and removed posts; then resuming, other sources, rules and odd answers."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dump_files import by_url
from local_apis import LocalApis, post, recorded

from webtext.base.console import Console
from webtext.base.errors import ConfigError, DryRun, InputError, NetworkError
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.workers.engine import LocalEngine
from webtext.crawl.apis.post_states import answers_of
from webtext.crawl.apis.refresh import Refreshed, refresh_links
from webtext.crawl.apis.settings import ApiSettings, RefreshSettings
from webtext.crawl.command import group

DUMPED = 1_450_000_100


@pytest.fixture
def collected(collect: Any, tmp_path: Path) -> Callable[..., str]:
    """A links set of these posts, as `crawl links` collects them from a dump."""

    def make(posts: list[dict[str, Any]], **settings: Any) -> str:
        lines = [json.dumps({**post, "retrieved_on": DUMPED}) for post in posts]
        (tmp_path / "RS_2015-12").write_text("\n".join(lines))
        out = str(tmp_path / "links")
        collect(tmp_path / "RS_2015-12", out=out, **settings)
        return out

    return make


@pytest.fixture
def refreshed(apis: LocalApis, run: Run, tmp_path: Path) -> Callable[..., Refreshed]:
    """Refresh a links set into a folder of `tmp_path`."""

    def refresh(links: str, out: str = "out", api: ApiSettings | None = None, **settings: Any) -> Refreshed:
        return refresh_links(links, str(tmp_path / out), RefreshSettings(**settings), api or apis.settings(), run)

    return refresh


def url(number: int) -> str:
    return f"https://site{number}.example.org/"


def answer_for(apis: LocalApis, *posts: dict[str, Any]) -> None:
    apis.posts = {post["name"]: post for post in posts}


def test_each_post_is_kept_or_dropped_by_its_answer(refreshed: Any, apis: LocalApis, collected: Any) -> None:
    """One rose, one fell below 3, one was marked over 18, three are gone in different ways, and one is unchanged."""
    links = collected([post(number) for number in range(1, 8)])
    answer_for(
        apis,
        post(1, score=500),
        post(2, score=2),
        post(3, over_18=True),
        post(4, author="[deleted]"),
        post(5, removed_by_category="moderator"),
        post(7),
    )
    before, now = int(time.time()), by_url(PartSet.open(links, "links"))
    result = refreshed(links)
    after = by_url(result.links)
    assert sorted(after) == [url(1), url(7)]
    assert after[url(1)]["karma"] == after[url(1)]["karma_sum"] == 500
    (vote,) = after[url(1)]["posts"]
    assert before <= vote["retrieved"] <= time.time()
    assert {**vote, "score": 10, "retrieved": DUMPED} == now[url(1)]["posts"][0]
    unchanged = ("link_id", "url", "url_raw", "domain", "first_created", "split")
    assert {name: after[url(7)][name] for name in unchanged} == {name: now[url(7)][name] for name in unchanged}
    counts = result.links.counts
    assert (counts.records_in, counts.kept) == (7, 2)
    assert counts.dropped == {
        "too_little_karma": 1, "over_18": 1, "deleted_by_user": 1, "removed_by_moderator": 1, "missing_from_answer": 1,
    }  # fmt: skip
    lost = by_url(result.removals)
    assert {place: [gone["reason"] for gone in row["posts"]] for place, row in lost.items()} == {
        url(4): ["deleted_by_user"], url(5): ["removed_by_moderator"], url(6): ["missing_from_answer"],
    }  # fmt: skip
    assert all(row["posts_left"] == 0 and row["link_id"] == link_id(place) for place, row in lost.items())


def test_a_link_is_kept_as_long_as_one_of_its_posts(refreshed: Any, apis: LocalApis, collected: Any) -> None:
    links = collected([post(1), post(2, url=url(1), score=90), post(3), post(4, url=url(3))])
    answer_for(apis, post(1, score=11), post(3, score=1))
    result = refreshed(links)
    (row,) = by_url(result.links).values()
    assert (row["url"], row["karma"], [vote["post_id"] for vote in row["posts"]]) == (url(1), 11, ["p1"])
    lost = by_url(result.removals)
    assert [(lost[place]["posts"][0]["post_id"], lost[place]["posts_left"]) for place in (url(1), url(3))] == [
        ("p2", 1),
        ("p4", 1),  # p3 is left, whatever its karma
    ]


def test_each_post_is_requested_once_in_hundreds(refreshed: Any, apis: LocalApis, collected: Any) -> None:
    posts = [post(number) for number in range(250)]
    links = collected(posts)
    answer_for(apis, *posts)
    first = refreshed(links)
    assert [len(asked.query["id"].split(",")) for asked in apis.requests] == [100, 100, 50]
    assert {asked.path for asked in apis.requests} == {"/api/info"}
    again = refreshed(links)
    assert len(apis.requests) == 3
    assert (again.links.hash, again.removals.hash) == (first.links.hash, first.removals.hash)
    refreshed(links, "another")
    assert len(apis.requests) == 6


def test_a_comment_that_votes_for_two_links_is_requested_once(
    refreshed: Any, collect: Any, apis: LocalApis, tmp_path: Path
) -> None:
    """Reddit may answer twice for a name that is in a request twice."""
    comment = {"id": "c1", "score": 5, "created_utc": 1_450_000_000, "subreddit": "books", "retrieved_on": DUMPED}
    (tmp_path / "RC_2015-12").write_text(json.dumps({**comment, "body": f"{url(1)} and {url(2)}"}))
    links = collect(tmp_path / "RC_2015-12")
    assert links.records == 2
    apis.posts = {"t1_c1": {"name": "t1_c1", "score": 9, "author": "someone", "body": "text"}}
    result = refreshed(links.folder.url)
    assert [asked.query["id"] for asked in apis.requests] == ["t1_c1"]
    assert {row["karma"] for row in by_url(result.links).values()} == {9}


def test_the_rule_comes_from_the_links_unless_a_threshold_is_set(
    refreshed: Any, apis: LocalApis, collected: Any
) -> None:
    """Posts of a month that was dumped too soon are collected without a threshold, and judged by today's scores."""
    posts = [post(number, score=1) for number in range(4)]
    links = collected(posts, min_karma=None)
    answer_for(apis, *(post(number, score=number) for number in range(4)))
    assert refreshed(links, "same").links.records == 4
    result = refreshed(links, min_karma=3)
    assert list(by_url(result.links)) == [url(3)]
    assert result.links.recipe["settings"]["min_karma"] == 3
    again = refreshed(result.links.folder.url, "again")
    assert again.links.counts.kept == 1


def test_scores_are_added_up_if_the_rule_does(refreshed: Any, apis: LocalApis, collected: Any) -> None:
    posts = [post(1, score=2), post(2, score=1, url=url(1)), post(3, score=3)]
    links = collected(posts, profile="openwebtext2")
    answer_for(apis, post(1, score=1), post(2, score=1, url=url(1)), post(3, score=4))
    result = refreshed(links)
    assert list(by_url(result.links)) == [url(3)]
    assert result.links.counts.dropped == {"too_little_karma_sum": 2}


def test_posts_from_other_sources_do_not_change(refreshed: Any, collect: Any, apis: LocalApis) -> None:
    apis.stories = [
        {"objectID": "1", "url": url(1), "points": 9, "created_at_i": 1_451_606_400},
        {"objectID": "2", "url": url(2), "points": 9, "created_at_i": 1_451_606_401},
    ]
    apis.listings["r/books/top"] = [post(2)]
    answer_for(apis, post(2, score=77))
    given = ["hackernews:2016-01-01..2016-01-02", "reddit:r/books/top"]
    links = collect(*given, api=apis.settings())
    asked = len(apis.requests)
    result = refreshed(links.folder.url)
    assert [request.query["id"] for request in apis.requests[asked:]] == ["t3_p2"]
    after = by_url(result.links)
    assert after[url(1)] == by_url(links)[url(1)]
    assert {vote["source"]: vote["score"] for vote in after[url(2)]["posts"]} == {"hackernews": 9, "reddit": 77}


def test_links_without_posts_of_reddit_need_no_request(refreshed: Any, collect: Any, apis: LocalApis) -> None:
    apis.stories = [{"objectID": "1", "url": url(1), "points": 9, "created_at_i": 1_451_606_400}]
    given = ["hackernews:2016-01-01..2016-01-02"]
    links = collect(*given, api=apis.settings())
    result = refreshed(links.folder.url, api=ApiSettings())
    assert by_url(result.links) == by_url(links)


def test_a_dry_run_prints_an_estimate_and_sends_nothing(
    apis: LocalApis, collected: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    links = collected([post(number) for number in range(1050)])
    settings = apis.settings(requests_per_minute=5.0)
    with LocalEngine(workers=1) as engine, pytest.raises(DryRun):
        refresh_links(links, str(tmp_path / "out"), RefreshSettings(), settings, Run(engine, Console("human"), True))
    assert "1,050 posts to request from Reddit: 11 requests, about 3 minutes at 5 per minute" in capsys.readouterr().err
    assert not apis.requests
    assert not (tmp_path / "out").exists()


def test_recorded_answers_of_reddit(
    refreshed: Any, collect: Any, apis: LocalApis, tmp_path: Path, shared_data: Path
) -> None:
    """Real answers of 2016 about 100 posts: 3 are missing; deleted and removed ones have lost author or text."""
    things = [thing for answer in recorded(shared_data, "TestReddit.test_info") for thing in answer["data"]["children"]]
    known = {thing["data"]["name"]: thing["data"] for thing in things if thing["kind"] == "t3"}
    assert len(known) == 97
    names = [f"t3_5dec{number:02d}" for number in range(100)]
    posts = [
        post(i, id=name.removeprefix("t3_"), name=name, url=url(i), score=50, subreddit="x")
        for i, name in enumerate(names)
    ]
    (tmp_path / "RS_2016-11").write_text("\n".join(map(json.dumps, posts)))
    links = str(tmp_path / "links")
    collect(tmp_path / "RS_2016-11", out=links)
    apis.posts = known
    result = refreshed(links, min_karma=None)
    deleted = {name for name, data in known.items() if data["author"] == "[deleted]"}
    removed = {name for name, data in known.items() if data["selftext"] == "[removed]"}
    adult = {name for name, data in known.items() if data["over_18"]} - deleted - removed
    assert deleted
    assert removed
    assert not deleted & removed
    dropped = result.links.counts.dropped
    assert dropped["missing_from_answer"] == 3
    assert (dropped["deleted_by_user"], dropped["removed_by_moderator"]) == (len(deleted), len(removed))
    assert dropped.get("over_18", 0) == len(adult)
    scores = {vote["post_id"]: vote["score"] for row in by_url(result.links).values() for vote in row["posts"]}
    standing = known.keys() - deleted - removed - adult
    assert scores == {name.removeprefix("t3_"): known[name]["score"] for name in standing}


@pytest.mark.slow
def test_killed_on_the_way_it_resumes(refreshed: Any, apis: LocalApis, collected: Any, tmp_path: Path) -> None:
    posts = [post(number) for number in range(900)]
    links = collected(posts)
    answer_for(apis, *posts)
    out = tmp_path / "out"
    for until in (3, 6):
        process = apis.start("refresh", links, "--out", str(out), part_seconds=0.0)
        apis.wait_for_requests(until, process)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    apis.hold_after = None
    assert apis.start("refresh", links, "--out", str(out), part_seconds=0.0).wait(300) == 0
    assert len(apis.requests) <= 9 + 2
    undisturbed = refreshed(links, "other")
    assert PartSet.open(str(out / "links"), "links").records == undisturbed.links.records == 900


def test_a_broken_answer_is_not_a_removal(refreshed: Any, apis: LocalApis, collected: Any) -> None:
    links = collected([post(1)])
    answer_for(apis, post(1))
    apis.posts["t3_p1"]["name"] = None
    with pytest.raises(NetworkError, match="without a name"):
        refreshed(links)


def test_odd_values_do_not_change_the_score(refreshed: Any, apis: LocalApis, collected: Any) -> None:
    links = collected([post(1), post(2), post(3)])
    answer_for(apis, post(1, score=None, author=7), post(2, score=10**30, over_18="no"), post(3, score=True))
    after = by_url(refreshed(links).links)
    assert [(row["karma"], row["posts"][0]["retrieved"]) for row in after.values()] == [(10, DUMPED)] * 3


def test_answers_for_other_links_are_not_used(refreshed: Any, apis: LocalApis, collected: Any) -> None:
    answer_for(apis, post(1), post(2))
    refreshed(collected([post(1)]))
    links = collected([post(1), post(2)])
    PartSet._verified.clear()
    with pytest.raises(InputError, match="answers for links other than those"):
        refreshed(links)


def test_damaged_answers_are_named(refreshed: Any, apis: LocalApis, collected: Any, tmp_path: Path) -> None:
    links = collected([post(1)])
    answer_for(apis, post(1))
    refreshed(links)
    (files,) = answers_of(PartSet.open(links, "links"), Folder(str(tmp_path / "out" / "answers")))
    (location,) = files.locations
    Path(location).write_bytes(Path(location).read_bytes()[:-9])
    with pytest.raises(Exception, match="damaged"):
        refreshed(links)


def test_a_set_without_a_rule_is_rejected(refreshed: Any, make_links: Callable[..., str]) -> None:
    with pytest.raises(InputError, match="has no karma rule"):
        refreshed(make_links([url(1)]), api=ApiSettings())


def test_without_a_name_nothing_is_sent(refreshed: Any, apis: LocalApis, collected: Any) -> None:
    links = collected([post(1)])
    with pytest.raises(ConfigError, match="no name for Reddit's User-Agent"):
        refreshed(links, api=apis.settings(reddit_user=None))
    assert not apis.tokens


@pytest.mark.usefixtures("verbs_take_this_run")
def test_the_verb_answers_with_the_funnel_as_json(apis: LocalApis, collected: Any, tmp_path: Path) -> None:
    links = collected([post(1), post(2)])
    answer_for(apis, post(1))
    arguments = ["refresh", links, "--out", str(tmp_path / "out"), "--json", *apis.options()]
    result = CliRunner().invoke(group, arguments, catch_exceptions=False)
    answer = json.loads(result.stdout)
    assert answer["counts"]["dropped"] == {"missing_from_answer": 1}
    assert (answer["counts"]["kept"], answer["links_that_lost_posts"]) == (1, 1)
