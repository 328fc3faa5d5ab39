"""Rows of links: built by column they equal those built one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from webtext.base.parts.identifiers import link_id, split_of
from webtext.base.parts.schemas import LINK, POST
from webtext.crawl.links.merging import LinkColumns, merge_posts
from webtext.crawl.links.sources.submission import Submission
from webtext.crawl.links.spill import Vote

numbers = st.integers(-(2**63), 2**63 - 1)
posts = st.builds(
    Submission,
    source=st.sampled_from(["reddit", "list"]),
    post_id=st.text("ab", min_size=1, max_size=2),
    subreddit=st.none() | st.text(max_size=3),
    url=st.text(max_size=5),
    score=numbers | st.integers(-3, 9),
    created=numbers,
    retrieved=st.none() | numbers,
    is_self=st.booleans(),
    over_18=st.booleans(),
)


def row_of(url: str, posts: list[Submission], ratio: float) -> dict[str, Any]:
    """The row of a link from its posts, in the order of `merge_posts`; sums end at the limits of 64 bits."""
    scores = [post.score for post in posts if post.score is not None]
    karma = {"karma": max(scores), "karma_sum": max(-(2**63), min(sum(scores), 2**63 - 1))}
    made = {"url_raw": posts[0].url, "domain": url[11:-1], "first_created": posts[0].created}
    voted = [{field.name: asdict(post)[field.name] for field in POST} for post in posts]
    identified = {"link_id": link_id(url), "url": url, "split": split_of(link_id(url), ratio)}
    return identified | {"posts": voted} | karma | made


@settings(max_examples=50)
@given(links=st.lists(st.lists(posts, min_size=1, max_size=5), max_size=5), ratio=st.floats(0, 1))
def test_rows_built_by_column_equal_rows_built_one_by_one(links: list[list[Submission]], ratio: float) -> None:
    columns, rows = LinkColumns(ratio), []
    for number, voters in enumerate(links):
        url = f"http://www.site{number}.co.uk/"
        merged = merge_posts(voters)
        rows.append(row_of(url, merged, ratio))
        vote = Vote(url, f"site{number}.co.uk", voters[0])
        if len(voters) == 1:
            columns.add_of_one_post([link_id(url)], [vote])
        else:
            columns.add(link_id(url), vote, merged)
    table = columns.table()
    assert table.schema.equals(LINK, check_metadata=True)
    assert table.equals(pa.Table.from_pylist(rows, schema=LINK))
