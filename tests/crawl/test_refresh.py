"""Refreshing links: today's scores and removed posts; then resuming, other sources, rules and odd answers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))  # the local APIs
from local_apis import CLIENT_ID, SECRET, LocalApis, post, recorded  # noqa: E402

from webtext.base.console import Console  # noqa: E402
from webtext.base.errors import ConfigError, DryRun, InputError, NetworkError  # noqa: E402
from webtext.base.parts.identifiers import link_id  # noqa: E402
from webtext.base.parts.partset import PartSet  # noqa: E402
from webtext.base.run import Run  # noqa: E402
from webtext.base.storage import Folder  # noqa: E402
from webtext.base.workers.engine import LocalEngine  # noqa: E402
from webtext.crawl.apis.post_states import answers_of  # noqa: E402
from webtext.crawl.apis.refresh import Refreshed, refresh_links  # noqa: E402
from webtext.crawl.apis.settings import (
    ApiSettings,  # noqa: E402
    RefreshSettings,  # noqa: E402
)
from webtext.crawl.command import (
    collect,  # noqa: E402
    group,  # noqa: E402
)
from webtext.crawl.links.collect import collect_links  # noqa: E402
from webtext.crawl.links.settings import LinkSettings  # noqa: E402

RUN = Run.quiet()  # one for all: starting a worker takes longer than most of what it does here
DUMPED = 1_450_000_100
MakeLinks = Callable[..., str]


@pytest.fixture
def apis(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalApis]:
    monkeypatch.setenv("WEBTEXT_REDDIT_CLIENT_ID", CLIENT_ID)
    monkeypatch.setenv("WEBTEXT_REDDIT_CLIENT_SECRET", SECRET)
    local = LocalApis()
    yield local
    local.close()


@pytest.fixture
def collected(tmp_path: Path) -> MakeLinks:
    """A links set of these posts, as `crawl links` collects them from a dump."""

    def make(posts: list[dict[str, Any]], **settings: Any) -> str:
        lines = [json.dumps({**post, "retrieved_on": DUMPED}) for post in posts]
        (tmp_path / "RS_2015-12").write_text("\n".join(lines))
        out = str(tmp_path / "links")
        collect_links([str(tmp_path / "RS_2015-12")], out, LinkSettings(**settings), RUN)
        return out

    return make


def refreshed(links: str, apis: LocalApis, out: Path, **settings: Any) -> Refreshed:
    return refresh_links(links, str(out), RefreshSettings(**settings), apis.settings(), RUN)


def rows_of(records: PartSet) -> dict[str, dict[str, Any]]:
    return {row["url"]: row for part in records.parts for row in records.table(part).to_pylist()}


def url(number: int) -> str:
    return f"https://site{number}.example.org/"


def answer_for(apis: LocalApis, *posts: dict[str, Any]) -> None:
    apis.posts = {post["name"]: post for post in posts}


def test_each_post_is_kept_or_dropped_by_its_answer(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
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
    before, now = int(time.time()), rows_of(PartSet.open(links, "links"))
    result = refreshed(links, apis, tmp_path / "out")
    after = rows_of(result.links)
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
    lost = rows_of(result.removals)
    assert {place: [gone["reason"] for gone in row["posts"]] for place, row in lost.items()} == {
        url(4): ["deleted_by_user"], url(5): ["removed_by_moderator"], url(6): ["missing_from_answer"],
    }  # fmt: skip
    assert all(row["posts_left"] == 0 and row["link_id"] == link_id(place) for place, row in lost.items())


def test_a_link_is_kept_as_long_as_one_of_its_posts(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
    links = collected([post(1), post(2, url=url(1), score=90), post(3), post(4, url=url(3))])
    answer_for(apis, post(1, score=11), post(3, score=1))
    result = refreshed(links, apis, tmp_path / "out")
    (row,) = rows_of(result.links).values()
    assert (row["url"], row["karma"], [vote["post_id"] for vote in row["posts"]]) == (url(1), 11, ["p1"])
    lost = rows_of(result.removals)
    assert [(lost[place]["posts"][0]["post_id"], lost[place]["posts_left"]) for place in (url(1), url(3))] == [
        ("p2", 1),
        ("p4", 1),  # p3 is left, whatever its karma
    ]


def test_each_post_is_requested_once_in_hundreds(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
    posts = [post(number) for number in range(250)]
    links = collected(posts)
    answer_for(apis, *posts)
    first = refreshed(links, apis, tmp_path / "out")
    assert [len(asked.query["id"].split(",")) for asked in apis.requests] == [100, 100, 50]
    assert {asked.path for asked in apis.requests} == {"/api/info"}
    again = refreshed(links, apis, tmp_path / "out")
    assert len(apis.requests) == 3
    assert (again.links.hash, again.removals.hash) == (first.links.hash, first.removals.hash)
    refreshed(links, apis, tmp_path / "another")
    assert len(apis.requests) == 6


def test_a_comment_that_votes_for_two_links_is_requested_once(apis: LocalApis, tmp_path: Path) -> None:
    """Reddit may answer twice for a name that is in a request twice."""
    comment = {"id": "c1", "score": 5, "created_utc": 1_450_000_000, "subreddit": "books", "retrieved_on": DUMPED}
    (tmp_path / "RC_2015-12").write_text(json.dumps({**comment, "body": f"{url(1)} and {url(2)}"}))
    links = collect_links([str(tmp_path / "RC_2015-12")], str(tmp_path / "links"), LinkSettings(), RUN)
    assert links.records == 2
    apis.posts = {"t1_c1": {"name": "t1_c1", "score": 9, "author": "someone", "body": "text"}}
    result = refreshed(links.folder.url, apis, tmp_path / "out")
    assert [asked.query["id"] for asked in apis.requests] == ["t1_c1"]
    assert {row["karma"] for row in rows_of(result.links).values()} == {9}


def test_the_rule_comes_from_the_links_unless_a_threshold_is_set(
    apis: LocalApis, collected: MakeLinks, tmp_path: Path
) -> None:
    """Posts of a month that was dumped too soon are collected without a threshold, and judged by today's scores."""
    posts = [post(number, score=1) for number in range(4)]
    links = collected(posts, min_karma=None)
    answer_for(apis, *(post(number, score=number) for number in range(4)))
    assert refreshed(links, apis, tmp_path / "same").links.records == 4
    result = refreshed(links, apis, tmp_path / "out", min_karma=3)
    assert list(rows_of(result.links)) == [url(3)]
    assert result.links.recipe["settings"]["min_karma"] == 3
    again = refreshed(result.links.folder.url, apis, tmp_path / "again")
    assert again.links.counts.kept == 1


def test_scores_are_added_up_if_the_rule_does(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
    posts = [post(1, score=2), post(2, score=1, url=url(1)), post(3, score=3)]
    links = collected(posts, profile="openwebtext2")
    answer_for(apis, post(1, score=1), post(2, score=1, url=url(1)), post(3, score=4))
    result = refreshed(links, apis, tmp_path / "out")
    assert list(rows_of(result.links)) == [url(3)]
    assert result.links.counts.dropped == {"too_little_karma_sum": 2}


def test_posts_from_other_sources_do_not_change(apis: LocalApis, tmp_path: Path) -> None:
    apis.stories = [
        {"objectID": "1", "url": url(1), "points": 9, "created_at_i": 1_451_606_400},
        {"objectID": "2", "url": url(2), "points": 9, "created_at_i": 1_451_606_401},
    ]
    apis.listings["r/books/top"] = [post(2)]
    answer_for(apis, post(2, score=77))
    given = ["hackernews:2016-01-01..2016-01-02", "reddit:r/books/top"]
    links = collect(given, str(tmp_path / "links"), LinkSettings(), RUN, apis.settings())
    asked = len(apis.requests)
    result = refreshed(links.folder.url, apis, tmp_path / "out")
    assert [request.query["id"] for request in apis.requests[asked:]] == ["t3_p2"]
    after = rows_of(result.links)
    assert after[url(1)] == rows_of(links)[url(1)]
    assert {vote["source"]: vote["score"] for vote in after[url(2)]["posts"]} == {"hackernews": 9, "reddit": 77}


def test_links_without_posts_of_reddit_need_no_request(apis: LocalApis, tmp_path: Path) -> None:
    apis.stories = [{"objectID": "1", "url": url(1), "points": 9, "created_at_i": 1_451_606_400}]
    given = ["hackernews:2016-01-01..2016-01-02"]
    links = collect(given, str(tmp_path / "links"), LinkSettings(), RUN, apis.settings())
    result = refresh_links(links.folder.url, str(tmp_path / "out"), RefreshSettings(), ApiSettings(), RUN)
    assert rows_of(result.links) == rows_of(links)


def test_a_dry_run_prints_an_estimate_and_sends_nothing(
    apis: LocalApis, collected: MakeLinks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    links = collected([post(number) for number in range(1050)])
    settings = apis.settings(requests_per_minute=5.0)
    with LocalEngine(workers=1) as engine, pytest.raises(DryRun):
        refresh_links(links, str(tmp_path / "out"), RefreshSettings(), settings, Run(engine, Console("human"), True))
    assert "1,050 posts to request from Reddit: 11 requests, about 3 minutes at 5 per minute" in capsys.readouterr().err
    assert not apis.requests
    assert not (tmp_path / "out").exists()


def test_recorded_answers_of_reddit(apis: LocalApis, tmp_path: Path, shared_data: Path) -> None:
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
    collect_links([str(tmp_path / "RS_2016-11")], links, LinkSettings(), RUN)
    apis.posts = known
    result = refreshed(links, apis, tmp_path / "out", min_karma=None)
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
    scores = {vote["post_id"]: vote["score"] for row in rows_of(result.links).values() for vote in row["posts"]}
    standing = known.keys() - deleted - removed - adult
    assert scores == {name.removeprefix("t3_"): known[name]["score"] for name in standing}


def test_killed_on_the_way_it_resumes(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
    posts = [post(number) for number in range(900)]
    links = collected(posts)
    answer_for(apis, *posts)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "webtext.app.main", "crawl", "refresh", links, "--out", str(out)]
    command += apis.options(part_seconds=0.0)
    for until in (3, 6):
        apis.hold_after = until
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while process.poll() is None and len(apis.requests) < until:
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    apis.hold_after = None
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    assert len(apis.requests) <= 9 + 2
    undisturbed = refreshed(links, apis, tmp_path / "other")
    assert PartSet.open(str(out / "links"), "links").records == undisturbed.links.records == 900


def test_a_broken_answer_is_not_a_removal(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
    links = collected([post(1)])
    answer_for(apis, post(1))
    apis.posts["t3_p1"]["name"] = None
    with pytest.raises(NetworkError, match="without a name"):
        refreshed(links, apis, tmp_path / "out")


def test_odd_values_do_not_change_the_score(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
    links = collected([post(1), post(2), post(3)])
    answer_for(apis, post(1, score=None, author=7), post(2, score=10**30, over_18="no"), post(3, score=True))
    after = rows_of(refreshed(links, apis, tmp_path / "out").links)
    assert [(row["karma"], row["posts"][0]["retrieved"]) for row in after.values()] == [(10, DUMPED)] * 3


def test_answers_for_other_links_are_not_used(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
    answer_for(apis, post(1), post(2))
    refreshed(collected([post(1)]), apis, tmp_path / "out")
    links = collected([post(1), post(2)])
    PartSet._verified.clear()
    with pytest.raises(InputError, match="answers for links other than those"):
        refreshed(links, apis, tmp_path / "out")


def test_damaged_answers_are_named(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
    links = collected([post(1)])
    answer_for(apis, post(1))
    refreshed(links, apis, tmp_path / "out")
    (files,) = answers_of(PartSet.open(links, "links"), Folder(str(tmp_path / "out" / "answers")))
    (location,) = files.locations
    Path(location).write_bytes(Path(location).read_bytes()[:-9])
    with pytest.raises(Exception, match="damaged"):
        refreshed(links, apis, tmp_path / "out")


def test_a_set_without_a_rule_is_rejected(make_links: Callable[..., str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no karma rule"):
        refresh_links(make_links([url(1)]), str(tmp_path / "out"), RefreshSettings(), ApiSettings(), RUN)


def test_without_a_name_nothing_is_sent(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
    links = collected([post(1)])
    with pytest.raises(ConfigError, match="no name for Reddit's User-Agent"):
        refresh_links(links, str(tmp_path / "out"), RefreshSettings(), apis.settings(reddit_user=None), RUN)
    assert not apis.tokens


def test_the_verb_answers_with_the_funnel_as_json(apis: LocalApis, collected: MakeLinks, tmp_path: Path) -> None:
    links = collected([post(1), post(2)])
    answer_for(apis, post(1))
    arguments = ["refresh", links, "--out", str(tmp_path / "out"), "--json", *apis.options()]
    result = CliRunner().invoke(group, arguments, catch_exceptions=False)
    answer = json.loads(result.stdout)
    assert answer["counts"]["dropped"] == {"missing_from_answer": 1}
    assert (answer["counts"]["kept"], answer["links_that_lost_posts"]) == (1, 1)
