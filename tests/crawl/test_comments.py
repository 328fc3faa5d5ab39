"""Reddit's comments: one vote per URL that readers see, with the comment's score."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dump_files import submission
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.crawl.links import comments
from webtext.crawl.links.comments import RedditComments
from webtext.crawl.links.karma import Judge
from webtext.crawl.links.settings import LinkSettings
from webtext.crawl.links.submission import Sifted, Submission
from webtext.crawl.streams.lines import Unreadable

ROW = {"id": "dkabc", "body": "http://a.com/", "score": 8, "created_utc": 1500000000, "subreddit": "books"}


def votes(**fields: object) -> list[Submission]:
    result = RedditComments().parse(json.dumps(ROW | fields).encode())
    assert not isinstance(result, Unreadable), result
    return list(result)


def failure(line: bytes) -> str:
    result = RedditComments().parse(line)
    assert isinstance(result, Unreadable), result
    return result.reason


def test_a_comment_votes_once_for_each_url_with_its_id_and_score() -> None:
    body = "[a](http://a.com/x_(y)) http://b.com/, again http://b.com/"
    assert votes(body=body, retrieved_on=1500000100) == [
        submission(
            source="reddit-comment",
            post_id="dkabc",
            subreddit="books",
            url=url,
            score=8,
            created=1500000000,
            retrieved=1500000100,
        )
        for url in ("http://a.com/x_(y)", "http://b.com/")
    ]


@pytest.mark.parametrize("body", ["[deleted]", "[removed]", "", None, "no link", "&gt; quoted", "`http://a.com`"])
def test_a_comment_without_links_gives_no_vote(body: str | None) -> None:
    assert votes(body=body) == []


def test_bodies_are_unescaped_exactly_once() -> None:
    assert [post.url for post in votes(body="&lt;http://a.com/?x=1&amp;y=2&gt; http://b.com/?x&amp;amp;y")] == [
        "http://a.com/?x=1&y=2",
        "http://b.com/?x&amp;y",
    ]
    assert [post.url for post in votes(body="&gt; http://quoted.com/\n\n&amp;gt; text")] == ["http://quoted.com/"]


def test_a_hidden_score_is_null() -> None:
    assert [post.score for post in votes(score=1, score_hidden=True)] == [None]
    assert [post.score for post in votes(score=1, score_hidden=False)] == [1]
    assert [post.score for post in votes(score=None)] == [None]


def test_old_rows_are_read_like_those_of_submissions() -> None:
    (post,) = votes(created_utc="1388534400", score=5.0, id=None, name="t1_c1", retrieved_utc="6")
    assert (post.created, post.score, post.post_id, post.retrieved) == (1388534400, 5, "c1", 6)
    (post,) = votes(over_18=True, _meta={"retrieved_2nd_on": 7}, retrieved_on=6)
    assert (post.over_18, post.retrieved) == (True, 7)


def test_relative_links_are_reddits_own() -> None:
    assert [post.url for post in votes(body="[wiki](/r/books/wiki) [s](#s 'spoiler') /r/books")] == [
        "https://www.reddit.com/r/books/wiki",
        "https://www.reddit.com/#s",
    ]


def test_a_lone_surrogate_in_a_body_does_not_lose_the_comment() -> None:
    (post,) = RedditComments().parse(b'{"id": "1", "body": "\\ud83d http://a.com/x"}')  # type: ignore[misc]
    assert post.url == "http://a.com/x"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json", "invalid_json"),
        (b"[1]", "wrong_type"),
        (b'{"body": "http://a.com"}', "no_post_id"),
        (b'{"id": "1", "body": 5}', "wrong_type"),
        (b'{"id": "1", "body": "http://a.com", "score": "many"}', "wrong_type"),
        (b'{"id": "1", "body": "' + b"x" * (comments.MAX_BODY_CHARACTERS + 1) + b'"}', "body_too_long"),
    ],
    ids=lambda value: value[:20].decode() if isinstance(value, bytes) else value,
)
def test_a_bad_line_is_a_counted_reason(line: bytes, reason: str) -> None:
    assert failure(line) == reason


def test_many_lines_are_read_at_once_and_bad_ones_are_left() -> None:
    lines = [
        json.dumps(ROW | {"id": f"c{i}", "body": body}).encode() for i, body in enumerate(("text", "http://a.com", ""))
    ]
    source, rule = RedditComments(), Judge.of(LinkSettings()).post_rule
    (post,) = source.parse(lines[1])  # type: ignore[misc]
    assert source.sift(b"\n".join(lines), rule) == Sifted({"no_link": 2}, [post], [])
    assert source.sift(lines[1], rule) == Sifted({}, [post], [])
    for bad in (b"", b"  ", b"{"):
        end = len(lines[1]) + 1 + len(bad)
        assert source.sift(lines[1] + b"\n" + bad, rule) == Sifted({}, [post], [(len(lines[1]) + 1, end)])


VALUES = {"string": "12", "int": 12, "float": 12.5, "bool": True, "null": None, "object": {}, "array": []}


@pytest.mark.parametrize("of", ["own", "2017-12"])
def test_every_type_in_a_schema_is_read(of: str, request: pytest.FixtureRequest) -> None:
    schema: dict[str, Any] = {name: [{"type": "string"}] for name in ("id", "body", "subreddit")}
    schema |= dict.fromkeys(("score", "created_utc", "retrieved_on"), [{"type": t} for t in ("int", "string", "null")])
    schema["edited"] = schema["of_tomorrow"] = [{"type": each} for each in VALUES]
    if of != "own":
        path = request.getfixturevalue("shared_data") / f"crawl/reddit/arctic_schema_RC_{of}.json"
        schema = json.loads(path.read_text())[0]["schema"]
    usual = {name: VALUES[types[0]["type"]] for name, types in schema.items()} | {"body": "http://a.com/"}
    assert {"id", "body", "score", "created_utc", "retrieved_on", "subreddit"} <= set(schema)
    for name, types in schema.items():
        for type_ in types if name != "body" else ():
            (post,) = RedditComments().parse(json.dumps(usual | {name: VALUES[type_["type"]]}).encode())  # type: ignore[misc]
            assert post.url == "http://a.com/", (name, type_["type"])


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: json.dumps(ROW | {"body": text}).encode()))
@settings(max_examples=200, deadline=None)
def test_no_bytes_crash_the_parser(line: bytes) -> None:
    assert isinstance(RedditComments().parse(line), list | Unreadable)
