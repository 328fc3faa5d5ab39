"""Any lines of a dump, judged by the C++ sift, with and without SIMD, and by its readable twin (tests/reference).

- All three drop the same lines for the same reasons and leave the same lines for another look.
- The posts that they find, and the votes and failures of a run, are those of parsing every line by itself.
"""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import numpy as np
from choices import Choices
from reference import sift as sift_reference

from webtext.base.workers.attempt import Attempt
from webtext.crawl import _sift
from webtext.crawl.blocklists import Blocklist, SubredditBlocklists
from webtext.crawl.links.judging import Funnel, votes_in, votes_in_batches
from webtext.crawl.links.karma import KarmaJudge
from webtext.crawl.links.settings import LinkSettings
from webtext.crawl.links.sources import reddit
from webtext.crawl.links.sources.lines import read_batches, read_lines
from webtext.crawl.links.sources.reddit import RedditDump

JUDGES = [
    KarmaJudge.of(LinkSettings(min_score_age=60)),
    KarmaJudge.of(LinkSettings(keep_over_18=True, keep_self_posts=True, min_karma=None, before=None)),
    KarmaJudge(LinkSettings().rule, SubredditBlocklists([Blocklist("made", None, "", frozenset({"books", "a"}))])),
]
DICTIONARY = [
    *(b'"%s":' % name.encode() for name in (*sift_reference.FIELDS, "retrieved_2nd_on", "title", "media")),
    *(b"null", b"true", b"false", b"{}", b"[]", b'""', b"-0", b"0.5", b"1e5", b"1400000000", b"999999999999999999"),
    *(b'\\"', b"\\\\", b"\\u0061", b"\\ud83d\\ude00", b"\\ud83d", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\xc0\xaf"),
    *(b'"},{"', b'","', b"}\n{", b'"subreddit":"BOOKS"', b"[" * 61, b"]" * 61, b"x" * 64, b"\r", b"\t", b"\x00"),
]


def check(data: bytes) -> None:
    choices = Choices(data)
    judge = JUDGES[choices.below(len(JUDGES))]
    chunk_bytes = 1 + choices.below(1 << 16)
    lines = choices.rest()
    if lines:
        readably = _decoded(sift_reference.sift(judge.post_rule, lines))
        rule, array = reddit._native(judge.post_rule), np.frombuffer(lines, np.uint8)
        assert _decoded(_sift.sift(rule, array)) == readably
        assert _decoded(_sift.sift(rule, array, portable=True)) == readably

    chunks = [lines[at : at + chunk_bytes] for at in range(0, len(lines), chunk_bytes)]
    at_once, one_by_one = Funnel("RS_x"), Funnel("RS_x")
    votes = votes_in_batches(read_batches(chunks), RedditDump(), Attempt(), judge, at_once)
    expected = votes_in(read_lines(io.BytesIO(lines)), RedditDump(), Attempt(), judge, one_by_one)
    assert sorted(votes, key=msgspec.json.encode) == sorted(expected, key=msgspec.json.encode)
    assert at_once.counts.to_json() == one_by_one.counts.to_json()
    assert at_once.failures == one_by_one.failures


def _decoded(sifted: sift_reference.Sifted) -> tuple[dict[str, int], list[Any], list[tuple[int, int]]]:
    dropped, posts, others = sifted
    return dropped, [json.loads(post) for post in posts.splitlines()], others
