"""Harvests: an API is asked once, politely, and its answers become files; then trouble, kills, hostile answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import resource
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from dump_files import by_url
from local_reddit import CLIENT_ID, SECRET, LocalReddit, post, recorded

from webtext.base.console import Console
from webtext.base.errors import ConfigError, DryRun, NetworkError
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.crawl.fetch.client.addresses import AddressRule, AllowedAddress
from webtext.crawl.links.reddit_api import client as api
from webtext.crawl.links.reddit_api import listing as reddit_api
from webtext.crawl.links.reddit_api.client import Api, RateLimit
from webtext.crawl.links.reddit_api.harvest import Listing, harvest_inputs
from webtext.crawl.links.settings import ApiSettings

LISTING = "reddit:r/books/top?t=year"


def lines(locations: list[str]) -> list[dict[str, Any]]:
    texts = [zstandard.ZstdDecompressor().decompress(Path(each).read_bytes()) for each in locations]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def test_a_listing_becomes_links_page_by_page(collect: Any, reddit: LocalReddit, tmp_path: Path) -> None:
    """250 posts are three pages of at most 100; each continues after the last post of the previous one."""
    reddit.listings["r/books/top"] = [post(number) for number in range(250)]
    started = int(time.time())
    out = str(tmp_path / "build" / "links")
    links = collect(LISTING, out=out, api=reddit.settings())
    assert reddit.paths() == ["/r/books/top"] * 3
    assert [asked.query.get("after") for asked in reddit.requests] == [None, "t3_p99", "t3_p199"]
    assert all(asked.query | {"after": ""} == {"limit": "100", "t": "year", "raw_json": "1", "after": ""}
               for asked in reddit.requests)  # fmt: skip
    assert links.counts.kept == links.records == 250
    (voted,) = by_url(links)["https://site7.example.org/"]["posts"]
    assert started <= voted.pop("retrieved") <= time.time()
    assert voted == {"source": "reddit", "post_id": "p7", "subreddit": "books", "score": 10, "created": 1_450_000_007}


def test_answers_are_read_from_files_and_not_requested_again(collect: Any, reddit: LocalReddit) -> None:
    reddit.listings["r/books/top"] = [post(number) for number in range(150)]
    first = collect(LISTING, api=reddit.settings())
    n_asked = len(reddit.requests)
    reddit.listings.clear()
    again = collect(LISTING, out="other")
    assert len(reddit.requests) == n_asked
    assert [part.record_digest for part in again.parts] == [part.record_digest for part in first.parts]


def test_every_request_has_the_user_agent_and_the_token(harvest: Any, reddit: LocalReddit) -> None:
    reddit.listings["r/books/top"] = [post(1)]
    harvest(LISTING, reddit_user="u/example_name")
    (asked,) = reddit.requests
    platform, app, rest = asked.headers["User-Agent"].split(":")
    assert (platform, app) == ("linux", "webtext")
    assert rest.endswith(" (by /u/example_name)")
    assert asked.headers["Authorization"] == "bearer token-0"
    assert "Cookie" not in asked.headers


@pytest.mark.parametrize(
    ("changes", "variables", "said"),
    [
        ({"reddit_user": None}, {}, "no name for Reddit's User-Agent"),
        ({}, {"WEBTEXT_REDDIT_CLIENT_SECRET": ""}, "no credentials for Reddit's API"),
        ({"reddit_credentials": "missing.toml"}, {}, "cannot be read"),
    ],
)
def test_nothing_is_sent_to_reddit_without_name_and_credentials(
    harvest: Any, changes: dict[str, Any], variables: dict[str, str], said: str, reddit: LocalReddit, monkeypatch: Any
) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Exception, match=said):
        harvest(LISTING, **changes)
    assert not reddit.requests
    assert not reddit.tokens


def test_credentials_may_be_in_a_file_and_appear_nowhere(
    collect: Any, reddit: LocalReddit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEBTEXT_REDDIT_CLIENT_ID")
    file = tmp_path / "reddit.toml"
    file.write_text(f'client_id = "{CLIENT_ID}"\nclient_secret = "{SECRET}"\n')
    reddit.listings["r/books/top"] = [post(1)]
    settings = reddit.settings(reddit_credentials=str(file))
    collect(LISTING, out=tmp_path / "build" / "links", api=settings)
    files = [path for path in (tmp_path / "build").rglob("*") if path.is_file()]
    plain = [
        zstandard.ZstdDecompressor().decompress(p.read_bytes()) if p.suffix == ".zst" else p.read_bytes() for p in files
    ]
    assert not [text for text in plain if SECRET.encode() in text or b"token-0" in text]


def test_wrong_credentials_are_reported_without_showing_them(harvest: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("WEBTEXT_REDDIT_CLIENT_SECRET", "wrong-secret")
    with pytest.raises(ConfigError, match="Reddit issued no token: status 401") as error:
        harvest(LISTING)
    assert "wrong-secret" not in str(error.value)


def test_a_revoked_token_is_renewed(harvest: Any, reddit: LocalReddit) -> None:
    reddit.listings["r/books/top"] = [post(number) for number in range(150)]

    def take_back() -> None:
        if len(reddit.requests) == 2:
            reddit.tokens.append("another")

    reddit.before_answer = take_back
    found = harvest(LISTING)
    assert [asked.headers["Authorization"] for asked in reddit.requests] == ["bearer token-0"] * 2 + ["bearer token-2"]
    assert len(lines(found)) == 150


def test_a_token_is_renewed_in_time(harvest: Any, reddit: LocalReddit, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is valid for an hour; here half an hour passes with every answer."""
    reddit.listings["r/books/top"] = [post(number) for number in range(350)]
    monkeypatch.setattr(reddit_api, "time", SimpleNamespace(monotonic=lambda: 1800.0 * len(reddit.requests)))
    harvest(LISTING)
    used = [asked.headers["Authorization"] for asked in reddit.requests]
    assert used == ["bearer token-0"] * 2 + ["bearer token-1"] * 2


def test_a_post_of_a_dump_and_of_the_api_is_one_with_the_later_score(
    collect: Any, reddit: LocalReddit, tmp_path: Path
) -> None:
    dump = tmp_path / "RS_2015-12"
    dump.write_text(json.dumps({**post(1), "retrieved_on": 1_450_000_100}))
    reddit.listings["r/books/top"] = [post(1, score=500)]
    links = collect(dump, LISTING, api=reddit.settings())
    (row,) = by_url(links).values()
    assert (row["karma"], len(row["posts"]), links.counts.dropped) == (500, 1, {"duplicate_post": 1})


def test_it_waits_as_long_as_the_answers_ask(harvest: Any, reddit: LocalReddit) -> None:
    """429 with a Retry-After, 503 without, then an answer that leaves 0 requests for the next second."""
    reddit.listings["r/books/top"] = [post(number) for number in range(150)]
    reddit.trouble = [(429, {"Retry-After": "1"}), (503, {})]
    reddit.headers = {"X-Ratelimit-Used": "600", "X-Ratelimit-Remaining": "0.0", "X-Ratelimit-Reset": "1"}
    times: list[float] = []
    reddit.before_answer = lambda: times.append(time.monotonic())
    found = harvest(LISTING)
    assert len(lines(found)) == 150
    waits = [later - sooner for sooner, later in zip(times, times[1:], strict=False)]
    assert len(waits) == 3
    assert waits[0] >= 0.99
    assert waits[1] >= 0.5
    assert waits[2] >= 0.99


def test_a_rate_limit_of_hours_ends_the_run_and_keeps_the_answers(harvest: Any, reddit: LocalReddit) -> None:
    reddit.listings["r/books/top"] = [post(number) for number in range(150)]
    reddit.headers = {"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "7200"}
    with pytest.raises(NetworkError, match="asks for a pause of 7,(200|1..) s"):
        harvest(LISTING)
    assert len(reddit.requests) == 1
    reddit.headers = {}
    assert len(lines(harvest(LISTING))) == 150
    assert [asked.query.get("after") for asked in reddit.requests] == [None, "t3_p99"]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ([(503, {})] * 2, "no usable answer from '127.0.0.1': status 503"),
        ([(429, {"Retry-After": "7200"})], "retry after 7,200 s"),
        ([(403, {})], "status 403\nit is private"),
        ([(404, {})], "status 404\nthere is no such"),
        ([(302, {"Location": "http://127.0.0.1:1/steal"})], "status 302\nthere is no such"),
    ],
)
def test_a_request_that_reddit_refuses_ends_the_run_and_keeps_the_answers(
    harvest: Any, trouble: list[tuple[int, dict[str, str]]], said: str, reddit: LocalReddit, monkeypatch: Any
) -> None:
    monkeypatch.setattr(api, "MAX_TRIES", 2)
    reddit.listings["r/books/top"] = [post(number) for number in range(150)]
    reddit.before_answer = lambda: reddit.trouble.extend(trouble if len(reddit.requests) == 2 else [])
    with pytest.raises(NetworkError, match=said):
        harvest(LISTING)
    reddit.before_answer = lambda: None
    reddit.requests.clear()
    found = harvest(LISTING)
    assert [asked.query.get("after") for asked in reddit.requests] == ["t3_p99"]
    assert len(lines(found)) == 150


def test_nothing_is_sent_to_an_address_that_is_not_public(harvest: Any, reddit: LocalReddit, monkeypatch: Any) -> None:
    monkeypatch.setattr(reddit_api, "ADDRESSES", AddressRule())
    with pytest.raises(NetworkError, match="no connection to '127.0.0.1': address_not_public"):
        harvest(LISTING)
    assert not reddit.tokens


def test_urls_are_not_unescaped_a_second_time(collect: Any, reddit: LocalReddit) -> None:
    """With raw_json=1 Reddit escapes nothing: `&amp;` in a URL is the URL's own."""
    reddit.listings["r/books/top"] = [post(1, url="https://example.org/?a=1&amp;b=2&lt;")]
    links = collect(LISTING, api=reddit.settings())
    ((_, row),) = by_url(links).items()
    assert row["url_raw"] == "https://example.org/?a=1&amp;b=2&lt;"


def test_each_post_that_does_not_vote_is_counted(collect: Any, reddit: LocalReddit) -> None:
    reddit.listings["r/books/top"] = [
        post(1, title="half an emoji \ud83d"),
        post(2, author="[deleted]"),
        post(3, removed_by_category="moderator"),
        post(4, removed_by_category="deleted"),
        post(5, selftext="[removed]"),
        post(6, score=None),
        post(7, score=2),
        post(8, is_self=True),
        post(9, url="/r/books/comments/p9/"),
        post(10, score={"n": 3}),
    ]
    links = collect(LISTING, api=reddit.settings())
    counts = links.counts
    assert counts.kept == 1
    assert counts.dropped == {
        "deleted_by_user": 2, "removed_by_moderator": 2, "null_score": 1, "too_little_karma": 1, "self_post": 1,
        "links_back": 1,
    }  # fmt: skip
    assert counts.failed == {"wrong_type": 1}


def test_a_recorded_listing_gives_its_posts(collect: Any, reddit: LocalReddit, shared_data: Path) -> None:
    """The top posts of youtube.com as Reddit listed them in 2016: 100 per page; the recording has one page."""
    (answer,) = recorded(shared_data, "TestDomainListing.test_top")
    posts = [thing["data"] for thing in answer["data"]["children"]]
    reddit.listings["domain/youtube.com/top"] = posts
    links = collect("reddit:domain/youtube.com/top?t=all", min_karma=3, api=reddit.settings())
    assert links.counts.records_in == len(posts) == 100
    kept = [each for each in posts if not each["over_18"] and each["author"] != "[deleted]"]
    assert links.counts.kept == len(kept)
    voted = [vote for row in by_url(links).values() for vote in row["posts"]]
    assert sorted((v["post_id"], v["score"]) for v in voted) == sorted((p["id"], p["score"]) for p in kept)


def test_a_circular_listing_ends(harvest: Any, reddit: LocalReddit) -> None:
    """120 posts over and over, in pages of 100: they end at p100, p80, ... p20, p120, and at p100 again."""
    reddit.listings["r/books/top"] = [post(1 + number % 120) for number in range(360)]
    found = harvest(LISTING)
    assert len(reddit.requests) == 7
    assert found[-1].endswith("00000.end.harvest.jsonl.zst")


@pytest.mark.slow
def test_killed_at_any_moment_it_repeats_no_request_whose_answer_is_stored(reddit: LocalReddit, tmp_path: Path) -> None:
    """Every page is a file here, so a kill loses at most the page that was being requested."""
    reddit.listings["r/books/top"] = [post(number) for number in range(1000)]
    out = tmp_path / "links"
    generator = random.Random(7)
    for _ in range(4):
        process = reddit.start(LISTING, "--out", str(out), part_seconds=0.0)
        reddit.wait_for_requests(len(reddit.requests) + generator.randint(1, 2), process)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        reddit.hold_after = None
    assert reddit.start(LISTING, "--out", str(out), part_seconds=0.0).wait(300) == 0
    assert len(reddit.requests) <= 10 + 4
    (folder,) = (tmp_path / "harvest").iterdir()
    records = lines([str(path) for path in sorted(folder.glob("*.zst"))])
    assert [record["data"]["id"] for record in records] == [f"p{number}" for number in range(1000)]
    assert PartSet.open(str(out), "links").records == 1000


def test_ctrl_c_keeps_every_answer(harvest: Any, reddit: LocalReddit, tmp_path: Path) -> None:
    reddit.listings["r/books/top"] = [post(number) for number in range(1000)]
    process = reddit.start(LISTING, "--out", str(tmp_path / "links"))
    reddit.wait_for_requests(4, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    reddit.hold_after = None
    interrupted = len(reddit.requests)
    found = harvest(LISTING)
    assert len(found) == 2
    assert len(lines(found)) == 1000
    assert interrupted >= 4
    assert len(reddit.requests) <= 10 + 1


@pytest.mark.parametrize(
    ("out", "place"), [("{}/a", "{}/"), ("memory://x/a/b", "memory://x/a/"), ("memory://x", "memory://x/")]
)
def test_a_dry_run_prints_the_requests_and_sends_nothing(
    out: str, place: str, run: Run, reddit: LocalReddit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DryRun):
        harvest_inputs(
            [LISTING], out.format(tmp_path), reddit.settings(), replace(run, console=Console(), dry_run=True)
        )
    said = f"{LISTING}: to be harvested into '{place.format(tmp_path)}harvest/reddit-r-books-top-t-year-"
    assert said in capsys.readouterr().err
    assert not reddit.tokens
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("remaining", "reset"),
    [("nan", "3000"), ("-1", "3000"), ("0", "inf"), ("0", "x"), ("", "3000"), ("0", "-3000"), ("1e999", "1e999")],
)
def test_invalid_rate_limit_headers_are_ignored(remaining: str, reset: str) -> None:
    """Obeying them would mean to wait for most of an hour."""

    async def turn() -> None:
        pace = RateLimit(60_000.0)
        pace.obey({"X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": reset})
        async with asyncio.timeout(600):
            await pace.turn()

    asyncio.run(turn())


def answer(*headers: str, body: bytes = b"{}", status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


BOMB = gzip.compress(b" " * (64 << 20))
HOSTILE = {
    "a bomb": answer("Content-Encoding: gzip", body=BOMB),
    "too many bytes": answer(body=b" " * (9 << 20)),
    "a promise of too many bytes": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    "deep JSON": answer(body=b"[" * 200_000 + b"]" * 200_000),
    "a long number": answer(body=b"1" * 100_000),
    "no JSON": answer(body=b"<html>"),
    "NaN": answer(body=b"NaN"),
    "no UTF-8": answer(body=b'"\xff"'),
    "an unknown coding": answer("Content-Encoding: none-such", body=b"\x00{}"),
    "too few bytes": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
    "no HTTP": b"SSH-2.0-server\r\n\r\n",
    "a long header": answer("X: " + "x" * 10_000),
}


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request have one attempt, of a second."""
    monkeypatch.setattr(api, "MAX_TRIES", 1)
    monkeypatch.setattr(api, "ANSWER_SECONDS", 1.0)


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_answer_is_an_error(case: str, web: Any, one_second: None) -> None:
    url = web.plant("/", HOSTILE[case])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(NetworkError, match="no usable answer from '127.0.0.1': "):
        asyncio.run(ask_once(url))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
    assert len(web.requests) == 1


def test_an_endless_answer_ends(web: Any, one_second: None) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    url = web.plant("/", drip)
    with pytest.raises(NetworkError, match="timed_out"):
        asyncio.run(ask_once(url))


async def ask_once(url: str) -> object:
    rule = AddressRule((AllowedAddress.parse("127.0.0.1"),))
    async with Api("test", rule, 60_000.0) as opened:
        return await opened.get(url, {}, {})


@pytest.mark.parametrize(
    ("name", "value"), [("reddit_user", "two words"), ("reddit_user", "a\nb"), ("requests_per_minute", 0.0)]
)
def test_invalid_settings_are_rejected(name: str, value: Any) -> None:
    with pytest.raises(ConfigError):
        ApiSettings(**{name: value})


@pytest.mark.parametrize(
    ("text", "listing"),
    [
        ("reddit:r/books/top?t=year", Listing("r/books/top", "year")),
        ("reddit:r/books+programming/new", Listing("r/books+programming/new", None)),
        ("reddit:/r/books/hot/", Listing("r/books/hot", None)),
        ("reddit:domain/example.org/new", Listing("domain/example.org/new", None)),
        ("reddit:top?t=all", Listing("top", "all")),
    ],
)
def test_an_input_may_name_a_listing(text: str, listing: Listing) -> None:
    assert Listing.parse(text) == listing


@pytest.mark.parametrize(
    "text",
    ["reddit:", "reddit:r/books", "reddit:r/books/top?t=decade", "reddit:r/books/top?limit=5", "reddit:user/x/new"]
    + ["reddit:r/../api/v1/me", "reddit:r/a b/top", "reddit:r/books/top?t=all&t=day"],
)
def test_an_input_that_is_not_a_listing_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a (listing|period)"):
        Listing.parse(text)
