"""Reading harvested lines: recorded posts first, then any value that an API may put in a field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_reddit import post, recorded

from webtext.crawl.links.sources.lines import Unreadable
from webtext.crawl.links.sources.reddit import Harvested, removal_of
from webtext.crawl.links.sources.submission import DeletedPost

RECORDINGS = ["TestDomainListing.test_top", "TestFront.test_top", "TestReddit.test_info"]
RECORDINGS += [f"TestSubmission.test_{name}" for name in ("crosspost", "duplicates", "invalid_attribute")]


def line(data: Any) -> bytes:
    return json.dumps({"api": "reddit", "retrieved": 9, "data": data}, separators=(",", ":")).encode()


def posts_in(answer: Any) -> Iterator[dict[str, Any]]:
    """Yield all posts of an answer, at any depth."""
    if isinstance(answer, dict) and answer.get("kind") == "t3":
        yield answer["data"]
    children = answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ()
    for child in children:
        yield from posts_in(child)


OWN = [post(1), post(2, is_self=True), post(3, author="[deleted]"), post(4, removed_by_category="moderator")]


@pytest.mark.parametrize("name", ["own", *RECORDINGS])
def test_every_recorded_post_is_read(name: str, request: pytest.FixtureRequest) -> None:
    posts = OWN if name == "own" else list(posts_in(recorded(request.getfixturevalue("shared_data"), name)))
    assert posts
    for data in posts:
        votes = Harvested().parse(line(data))
        removal = removal_of(data["author"], data["selftext"], data.get("removed_by_category"))
        if removal is not None:
            assert votes == DeletedPost(removal)
            continue
        assert not isinstance(votes, (DeletedPost, Unreadable))
        (vote,) = votes
        found = (vote.post_id, vote.score, vote.url, vote.is_self)
        assert found == (data["id"], data["score"], data["url"], data["is_self"])
        assert (vote.created, vote.retrieved) == (int(data["created_utc"]), 9)


@pytest.mark.parametrize(
    ("author", "text", "category", "reason"),
    [
        ("a", "", None, None),
        (None, None, None, None),
        ("[deleted]", "", None, "deleted_by_user"),
        ("a", "[deleted]", None, "deleted_by_user"),
        ("a", "[removed]", None, "removed_by_moderator"),
        ("[deleted]", "[removed]", None, "removed_by_moderator"),
        ("[deleted]", "", "deleted", "deleted_by_user"),
        ("a", "", "author", "deleted_by_user"),
        ("a", "", "moderator", "removed_by_moderator"),
        ("[deleted]", "", "reddit", "removed_by_moderator"),
        ("a", "", "copyright_takedown", "removed_by_moderator"),
    ],
)
def test_who_removed_a_post(author: str | None, text: str | None, category: str | None, reason: str | None) -> None:
    assert removal_of(author, text, category) == reason


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"{}",
        b'{"api":"reddit"}',
        b'{"api":"myspace","retrieved":1,"data":{}}',
        b'{"api":"reddit","retrieved":-1,"data":{}}',
    ]
    + [
        b'{"api":"reddit","retrieved":1,"data":{"id":"a"',
        b'{"api":"reddit","retrieved":1,"data":' + b"[" * 99_999 + b"}",
    ],
)
def test_lines_that_are_not_from_a_harvest_are_counted(record: bytes) -> None:
    assert isinstance(Harvested().parse(record), Unreadable)


FIELDS = st.sampled_from([*post(1), "retrieved_on", "_meta"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(data=VALUES | st.dictionaries(FIELDS, VALUES, max_size=8).map(lambda changes: {**post(1), **changes}))
def test_any_value_of_a_field_gives_votes_or_a_reason(data: Any) -> None:
    votes = Harvested().parse(line(data))
    if isinstance(votes, (DeletedPost, Unreadable)):
        assert votes.reason
        return
    for vote in votes:
        assert vote.retrieved == 9
        assert vote.post_id
        assert all(number is None or -(2**63) <= number < 2**63 for number in (vote.score, vote.created))
