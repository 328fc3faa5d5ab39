"""Many lines at once give the same votes, reasons and failures as line by line, for any lines."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import sift as sift_reference

from webtext.base.workers.attempt import Attempt
from webtext.crawl import _sift
from webtext.crawl.links.judging import Funnel, votes_in, votes_in_batches
from webtext.crawl.links.karma import KarmaJudge
from webtext.crawl.links.settings import LinkSettings, PostRule
from webtext.crawl.links.sources import lines as streams
from webtext.crawl.links.sources import reddit
from webtext.crawl.links.sources.lines import read_batches, read_lines
from webtext.crawl.links.sources.reddit import RedditDump
from webtext.crawl.links.sources.submission import SiftingSource
from webtext.crawl.links.spill import Vote

JUDGE = KarmaJudge.of(LinkSettings(min_score_age=60))
PLAIN = {"id": "88", "url": "http://a.com/", "score": 8, "created_utc": 1_400_000_000}
PLAIN |= {"is_self": False, "over_18": False}
NO_RULE = PostRule(
    end=None,
    keep_over_18=True,
    keep_self_posts=True,
    blocked_subreddits=frozenset(),
    min_karma=None,
    min_score_age=None,
)
RULES = [
    JUDGE.post_rule,
    KarmaJudge.of(LinkSettings()).post_rule,
    NO_RULE,
    PostRule(
        end=2**70,
        keep_over_18=True,
        keep_self_posts=False,
        blocked_subreddits=frozenset({"books", "a"}),
        min_karma=-(2**70),
        min_score_age=0,
    ),
]
Outcome = tuple[list[Vote], dict[str, Any], list[tuple[str, str, str]]]


def outcome(votes: list[Vote], funnel: Funnel) -> Outcome:
    """Return the votes sorted, since lines that are parsed one by one come later."""
    return sorted(votes, key=msgspec.json.encode), funnel.counts.to_json(), funnel.failures


def one_by_one(data: bytes) -> Outcome:
    funnel = Funnel("RS_x")
    return outcome(list(votes_in(read_lines(io.BytesIO(data)), RedditDump(), Attempt(), JUDGE, funnel)), funnel)


def at_once(data: bytes, chunk_bytes: int = 1 << 20) -> Outcome:
    funnel = Funnel("RS_x")
    chunks = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    return outcome(list(votes_in_batches(read_batches(chunks), RedditDump(), Attempt(), JUDGE, funnel)), funnel)


def line(**fields: object) -> bytes:
    return json.dumps(PLAIN | fields, separators=(",", ":")).encode()


def natively(rule: PostRule, lines: bytes, portable: bool = False) -> sift_reference.Sifted:
    return _sift.sift(reddit._native(rule), np.frombuffer(lines, np.uint8), portable)


SIFTS: list[Callable[[PostRule, bytes], sift_reference.Sifted]] = [
    sift_reference.sift,
    natively,
    lambda rule, lines: natively(rule, lines, portable=True),
]


def agreed(lines: bytes, rule: PostRule = JUDGE.post_rule) -> tuple[dict[str, int], list[Any], list[tuple[int, int]]]:
    """Return the common result of all sifts, with decoded posts."""
    answers = []
    for sift in SIFTS:
        dropped, posts, others = sift(rule, lines)
        answers.append((dropped, [json.loads(post) for post in posts.splitlines()], others))
    assert answers[0] == answers[1] == answers[2]
    return answers[0]


@pytest.mark.parametrize("sift", SIFTS, ids=["readable", "native", "portable"])
def test_plain_lines_that_drop_are_counted_and_posts_that_count_keep_our_fields(sift: Any) -> None:
    lines = [line(), line(score=2), line(score=None), line(url=None), line(is_self=True), line(id="90", title="x")]
    dropped, posts, others = sift(JUDGE.post_rule, b"\n".join([*lines, b"", b"{"]))
    assert dropped == {"too_little_karma": 1, "null_score": 1, "null_url": 1, "self_post": 1}
    assert [json.loads(post) for post in posts.splitlines()] == [PLAIN, PLAIN | {"id": "90"}]
    end = sum(map(len, lines)) + len(lines) + 1
    assert others == [(end, end + 1)]


def test_a_dump_is_a_source_that_sifts() -> None:
    assert isinstance(RedditDump(), SiftingSource)
    sifted = RedditDump().sift(memoryview(line(url="http://a.com/?x&amp;y", _meta={"retrieved_2nd_on": 7})), NO_RULE)
    assert [(post.url, post.retrieved) for post in sifted.posts] == [("http://a.com/?x&y", 7)]


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
        {"title": '"score":1,"is_self":true}\\n{'},
        {"title": "an emoji \U0001f600", "selftext": 'a\\/b\\"\n\\', "upvote_ratio": 0.97, "ups": -0.5},
        {"media": [[], {}, [{}], {"a": {"b": [1, None, "x"]}}]},
        {"s\\ubreddit": "an escaped backslash"},
    ],
    ids=",".join,
)
def test_the_rows_of_entire_months_are_plain(fields: dict[str, object]) -> None:
    for data in (
        line(**fields),
        json.dumps(PLAIN | fields).encode(),
        json.dumps(PLAIN | fields, ensure_ascii=False).encode(),
    ):
        assert agreed(data + b"\n" + line())[2] == []
        assert at_once(data) == one_by_one(data)


NOT_PLAIN = [
    line() + line(),  # two rows in one line
    line() + b" " + line(),
    line().replace(b",", b",\n", 1),  # one row in two lines
    line() + line() + b"\n" + line().replace(b",", b",\n", 1),  # both: as many rows as lines
    b'{"a":[{}\n{}]}',
    line() + b"\r",
    b"\t" + line(),
    b"\xef\xbb\xbf" + line(),
    line(created_utc=1_400_000_000.5),
    line(created_utc="2014-01-01"),
    line(created_utc="-"),
    line(created_utc="1400000000").replace(b'"1', b'"\\u0031'),
    line(score="8"),
    line(score=2**63),
    line(score=10**18),
    line(score=2.5),
    line(score=True),
    line(url=""),
    line(url=5),
    line(is_self=None),
    line(id=None, name="t3_88"),
    line(id=""),
    line(title="half an emoji").replace(b"half an", b"\\ud83d"),
    line(title="half an emoji").replace(b"half an", b"\\ude00"),
    line(title="half an emoji").replace(b"half an", b"\\ud83d\\u0041"),
    line(title="half an emoji").replace(b"half an", b"\\ud83d\\ud83d\\ude00"),
    line(retrieved_on="soon"),
    line(_meta=[]),
    line(_meta={"retrieved_2nd_on": []}),
    line(_meta={"retrieved_2nd_on": {"retrieved_2nd_on": 5}}),
    line(_meta={"retrieved_2nd_on": "5"}),
    line(_meta={"retrieved_2nd_on": 5}).replace(b"}", b',"retrieved_2nd_on":6}', 1),
    line(_meta={"retrieved_2nd_on": 5}).replace(b"retrieved_2", b"\\u0072etrieved_2"),
    line(domain=7),
    line(score=1).replace(b"}", b',"score":8}'),
    line(score=1).replace(b"}", b',"sc\\u006fre":8}'),
    *(
        line(x=0).replace(b'"x":0', b'"x":' + value)
        for value in (
            *b'1e5 01 - .5 1. 0x1 +1 NaN [1,] [,] {,} {1:2} nul nulll True [} {"a"} {"a":}'.split(),
            *(b"{'a':1}", b"[1 2]"),
        )
    ),
    *(
        line(x=0).replace(b'"x":0', b'"x":"' + value + b'"')
        for value in (b"\\x41", b"\\u00g0", b"\\u12", b"\\", b"\x00", b"\t")
    ),
    # Overlong, cut short, a surrogate, above U+10FFFF, a lone continuation byte.
    *(
        line(title="x").replace(b"x", bad)
        for bad in (b"\xc0\xaf", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80")
    ),
    line(x=0).replace(b"0}", b"[" * 100_000 + b"]" * 100_000 + b"}"),
    line(x=0).replace(b"0}", b"[" * 60 + b"]" * 60 + b"}"),
    line(x="x" * sift_reference.LONGEST_LINE),
    line() + b",",
    line() + b"}",
    line()[:-1],
    line()[:-2],
    b"{",
    b"}",
    b"[]",
    b'"',
    b"\\",
    b"   ",
    b"null",
]


@pytest.mark.parametrize("data", NOT_PLAIN, ids=lambda data: data[-24:].decode("latin-1"))
def test_lines_that_are_not_plain_are_parsed_one_by_one(data: bytes) -> None:
    for around in (data, line(id="1") + b"\n" + data + b"\n" + line(id="2", score=1)):
        assert agreed(around)[2] != []
        assert at_once(around) == one_by_one(around)


def test_the_deepest_and_the_longest_plain_line() -> None:
    deepest = line(x=0).replace(b"0}", b"[" * 59 + b"]" * 59 + b"}")
    longest = line(x="x" * (sift_reference.LONGEST_LINE - len(line(x=""))))
    assert agreed(deepest + b"\n" + longest)[2] == []
    assert at_once(deepest + b"\n" + longest) == one_by_one(deepest + b"\n" + longest)


@pytest.mark.parametrize("at", range(40, 150))
def test_escapes_and_strings_may_cross_the_blocks_of_64_bytes(at: int) -> None:
    for piece in (b'\\"', b"\\\\", b'\\\\\\"', b"\\ud83d\\ude00", b"\xf0\x9f\x98\x80", b'","b":"'):
        padding = b"x" * (at - 6)
        assert agreed(b'{"a":"' + padding + piece + b'",' + line()[1:])[2] == []


@pytest.mark.parametrize("name", ["Books", "bOOKS", "b\u00f6oks", "boo\u212as", "boo\\/ks", None, "bookshelf"])
def test_blocked_subreddits_are_recognized_in_any_case(name: str | None) -> None:
    data = json.dumps(PLAIN | {"subreddit": name}, ensure_ascii=False).encode()
    dropped, posts, others = agreed(data, RULES[3])
    if others:
        assert name is not None
        assert not name.isascii() or "\\" in name
    else:
        assert bool(dropped) == (name is not None and name.lower() == "books") == (not posts)


MEDIA = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["88", "", None, 8]),
        "name": st.sampled_from(["t3_88", None, 8]),
        "url": st.sampled_from(["http://a.com/x.png", "", None, 5, "/r/a/", "http://b.com/&amp;"]),
        "domain": st.sampled_from(["self.a", None, []]),
        "score": st.sampled_from([0, 3, -(2**70), 2**63, 2.5, "4", "x", None, True]),
        "created_utc": st.sampled_from([0, 2**62, 2**64, 1.5, "4", "-4", "x", None, "9" * 20]),
        "retrieved_on": st.sampled_from([0, 5, 2**64, "5", "x", None]),
        "retrieved_utc": st.sampled_from([5, "x", None]),
        "is_self": st.sampled_from([True, False, None, 0]),
        "over_18": st.sampled_from([True, False, None, 0]),
        "_meta": st.sampled_from([{}, None, [], {"retrieved_2nd_on": 7}, {"retrieved_2nd_on": "x"}]),
        "subreddit": st.sampled_from(["a", "A", "\u212a", None, 5]),
        "title": st.sampled_from(["}\n{", "\ud83d", '"score":1']) | st.text(max_size=8),
        "media": MEDIA,
    },
)
USUAL = st.fixed_dictionaries(
    {
        "title": st.text(max_size=8),
        "score": st.sampled_from([0, 5, -1, None]),
        "created_utc": st.sampled_from([0, 1_600_000_000, "4", None]),
        "is_self": st.booleans(),
        "media": MEDIA,
        "url": st.sampled_from(["http://a.com/&amp;", "/r/a/", None]),
    },
    optional={
        "_meta": st.just({"removal_type": "a", "retrieved_2nd_on": 1_400_000_050}),
        "over_18": st.sampled_from([True, False, None]),
        "retrieved_on": st.sampled_from([0, 1_400_000_070, None]),
        "subreddit": st.sampled_from(["a", "A", "b", None]),
    },
)


def rows(fields: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[bytes]:
    """Lines as Reddit and other tools write them."""
    return st.builds(
        lambda fields, ascii, blanks: json.dumps(
            PLAIN | fields, ensure_ascii=ascii, separators=(", ", ": ") if blanks else (",", ":")
        ).encode("utf-8", "surrogatepass"),
        fields,
        st.booleans(),
        st.booleans(),
    )


ROWS = rows(FIELDS) | rows(USUAL)
LINES = st.lists(ROWS | st.sampled_from([b"", b" ", b"{", b"}", line() + line(), line() + b"\r"]), max_size=6)
BITS = [bytes([byte]) for byte in b'"\\{}[],: u0dDeE1-.ntf/\n\x00\x1f\x7f\x80\xc3\xed\xa0\xf4'] + [
    b"",
    b"\\u",
    b'"score":',
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A row in which up to three bytes are replaced, inserted or deleted."""
    data = draw(rows(USUAL))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.sampled_from(BITS)) + data[at + draw(st.integers(0, 2)) :]
    return data


@given(LINES, st.integers(1, 400))
def test_many_lines_at_once_give_the_result_of_each_alone(lines: list[bytes], chunk_bytes: int) -> None:
    data = b"\n".join(lines)
    assert at_once(data, chunk_bytes) == at_once(data) == one_by_one(data)


@given(mutated())
def test_mutated_lines_give_the_result_of_each_alone(data: bytes) -> None:
    assert at_once(data) == one_by_one(data)


@given(st.lists(ROWS | mutated() | st.binary(max_size=60), max_size=4), st.sampled_from(RULES))
@example([b""], NO_RULE)
def test_all_sifts_agree(lines: list[bytes], rule: PostRule) -> None:
    data = b"\n".join(lines)
    if data:
        agreed(data, rule)


@pytest.mark.slow
@settings(max_examples=600)
@given(st.data())
def test_the_same_of_more_lines(data: st.DataObject) -> None:
    lines, mutant = data.draw(LINES), data.draw(mutated())
    for each in (b"\n".join(lines), mutant):
        assert at_once(each, data.draw(st.integers(1, 400))) == at_once(each) == one_by_one(each)
    more = data.draw(st.lists(ROWS | mutated() | st.binary(min_size=1, max_size=60), min_size=1, max_size=4))
    agreed(b"\n".join(more), data.draw(st.sampled_from(RULES)))


def test_batches_are_short_for_chunks_of_any_size() -> None:
    """A block of xz is one chunk of up to 64 MiB; the objects for that many lines would fill the memory."""
    data = b"{}\n" * 3_000_000 + b"{" + b"x" * (5 << 20) + b"}\n{}\n"
    batches = [(start, lines) for start, lines in read_batches([data]) if not isinstance(lines, streams.Unreadable)]
    assert b"".join(bytes(lines) + b"\n" for _, lines in batches) == data
    assert all(data[start : start + len(lines)] == lines for start, lines in batches)
    assert all(len(lines) <= 2 * streams.CHUNK_BYTES or b"\n" not in bytes(lines) for _, lines in batches)
