"""Many lines at once: the same votes, reasons and failures as line by line, whatever the lines are."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webtext.base.journal import Journal
from webtext.crawl import streams
from webtext.crawl.dumps import RedditDump
from webtext.crawl.judging import Funnel, votes_in, votes_in_batches
from webtext.crawl.karma import Judge
from webtext.crawl.link_settings import LinkSettings
from webtext.crawl.spill import Vote
from webtext.crawl.streams import Share, batches_of, lines_of, read_batches, read_lines
from webtext.crawl.submission import SiftingSource

JUDGE = Judge.of(LinkSettings(min_score_age=60))
PLAIN = {
    "id": "88",
    "url": "http://a.com/",
    "score": 8,
    "created_utc": 1_400_000_000,
    "is_self": False,
    "over_18": False,
}
Outcome = tuple[list[Vote], dict[str, Any], list[tuple[str, str, str]]]


def one_by_one(data: bytes) -> Outcome:
    funnel = Funnel("RS_x")
    votes = list(votes_in(read_lines(io.BytesIO(data)), RedditDump(), Journal(), JUDGE, funnel))
    return votes, funnel.counts.to_json(), funnel.failures


def at_once(data: bytes, chunk_bytes: int = 1 << 20) -> Outcome:
    funnel = Funnel("RS_x")
    chunks = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    votes = list(votes_in_batches(read_batches(chunks), RedditDump(), Journal(), JUDGE, funnel))
    return votes, funnel.counts.to_json(), funnel.failures


def line(**fields: object) -> bytes:
    return json.dumps(PLAIN | fields, separators=(",", ":")).encode()


def sifted(*lines: bytes) -> Any:
    return RedditDump().sift(b"\n".join(lines), JUDGE.judge_post)


def test_plain_lines_are_judged_without_looking_at_each() -> None:
    assert isinstance(RedditDump(), SiftingSource)
    dropped, posts = sifted(
        line(), line(score=2), line(score=None), line(url=None), line(is_self=True, id="9"), line(id="90")
    )
    assert dropped == {"too_little_karma": 1, "null_score": 1, "null_url": 1, "self_post": 1}
    assert [post.post_id for post in posts] == ["88", "90"]


@pytest.mark.parametrize(
    "fields",
    [
        {"created_utc": "1400000000"},
        {"score": None},
        {"url": None, "domain": None},
        {"retrieved_on": 1_400_000_030},
        {"retrieved_on": 1_400_000_030, "_meta": {"retrieved_2nd_on": 1_400_130_000, "removal_type": "deleted"}},
        {"retrieved_utc": 1_400_000_090},
        {"author": "[deleted]", "crosspost_parent_list": [{"score": 0, "id": "77", "url": "http://b.com/"}]},
        {"title": '"score":1,"is_self":true}\n{'},
    ],
    ids=["string created", "null score", "null url", "too fresh", "_meta", "retrieved_utc", "crosspost", "a title"],
)
def test_what_whole_months_hold_is_plain(fields: dict[str, object]) -> None:
    assert sifted(line(**fields), line()) is not None
    assert at_once(line(**fields)) == one_by_one(line(**fields))


@pytest.mark.parametrize(
    "data",
    [
        line() + line(),  # two rows in one line
        line() + b" " + line(),
        line().replace(b",", b",\n", 1),  # one row in two lines
        line() + line() + b"\n" + line().replace(b",", b",\n", 1),  # both: as many rows as lines
        b'{"a":[{}\n{}]}',
        line() + b"\r",
        b" " + line(),
        line(created_utc=1_400_000_000.5),
        line(created_utc="2014-01-01"),
        line(score="8"),
        line(score=2**63),
        line(score=2.5),
        line(url=""),
        line(url=5),
        line(is_self=None),
        line(id=None, name="t3_88"),
        line(id=""),
        line(title="half an emoji").replace(b"half an", b"\\ud83d"),
        line(retrieved_on="soon"),
        line(_meta=[]),
        line(domain=7),
        b"{",
        b"}",
        b"[]",
        line(title="x").replace(b"x", b"\xff"),
    ],
)
def test_lines_that_are_not_plain_are_looked_at_one_by_one(data: bytes) -> None:
    for around in (data, line(id="1") + b"\n" + data + b"\n" + line(id="2", score=1)):
        assert at_once(around) == one_by_one(around)


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["88", "", None, 8]),
        "name": st.sampled_from(["t3_88", None, 8]),
        "url": st.sampled_from(["http://a.com/x.png", "", None, 5, "/r/a/", "http://b.com/&amp;"]),
        "domain": st.sampled_from(["self.a", None, []]),
        "score": st.sampled_from([0, 3, -(2**70), 2**63, 2.5, "4", "x", None, True]),
        "created_utc": st.sampled_from([0, 2**62, 2**64, 1.5, "4", "x", None, "9" * 20]),
        "retrieved_on": st.sampled_from([0, 5, 2**64, "5", "x", None]),
        "retrieved_utc": st.sampled_from([5, "x", None]),
        "is_self": st.sampled_from([True, False, None, 0]),
        "over_18": st.sampled_from([True, False, None, 0]),
        "_meta": st.sampled_from([{}, None, [], {"retrieved_2nd_on": 7}, {"retrieved_2nd_on": "x"}]),
        "subreddit": st.sampled_from(["a", None, 5]),
        "title": st.sampled_from(["}\n{", "\ud83d", '"score":1']),
    },
)
LINES = st.lists(
    FIELDS.map(lambda fields: line(**fields))
    | st.sampled_from([b"", b" ", b"{", b"}", line() + line(), line() + b"\r"]),
    max_size=6,
)


@given(LINES, st.integers(1, 400))
@settings(max_examples=400)
def test_many_lines_at_once_give_what_each_gives_alone(lines: list[bytes], chunk_bytes: int) -> None:
    data = b"\n".join(lines)
    assert at_once(data, chunk_bytes) == at_once(data) == one_by_one(data)


@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=30), st.integers(1, 4))
def test_shares_of_a_file_hold_each_line_once(lines: list[bytes], of: int) -> None:
    data = b"{" + b"\n".join(lines)
    whole = list(read_lines(io.BytesIO(data)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "STRETCH_BYTES", 16)
        shares = [
            [line for batch in batches_of(Share(index, of), read_batches([data])) for line in lines_of(batch)]
            for index in range(of)
        ]
        for index, share in enumerate(shares):
            assert all(position // 16 % of == index for position, _ in share)
    assert sorted((line for share in shares for line in share), key=lambda line: line[0]) == whole
