"""Reddit's monthly comment dumps (`RC_*`): the links that readers see in each comment, with the comment's score.

WebText was made from submissions only, so comments are read only when they are named as input. Their rows changed over
the years like those of submissions (crawl/links/reddit_rows.py). While a score is hidden (`score_hidden`) the row
shows 1, which is not the score. A deleted or removed comment contains no link any more. Comments lack `over_18`, except
in exports of the API, so whether their submission is marked is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from webtext.crawl.links.markdown import links_in
from webtext.crawl.links.reddit_rows import NO_POST_ID, SITE, LineSource, Row, RowReader, unescaped, whole_number
from webtext.crawl.links.settings import PostRule
from webtext.crawl.links.submission import NO_LINK, Sifted, Submission
from webtext.crawl.streams.lines import Unreadable

SOURCE = "reddit-comment"
MAX_BODY_CHARACTERS = 1 << 16
"""Reddit allows 10,000 characters. Longer texts are not real comments, and take a second or more each to parse."""


class _Row(Row):
    kind = "t1_"
    body: str | None = None
    score_hidden: bool | None = None


_READER = RowReader(_Row)


class RedditComments(LineSource):
    """The link source for `RC_*` files: one vote per distinct URL in a comment, with the comment's id and score."""

    keeps_up = False

    def parse(self, record: bytes) -> Sequence[Submission] | Unreadable:
        """Return the votes of one comment.

        >>> line = b'{"id": "c1", "score": 5, "body": "[a](http://a.com/?x&amp;y) http://b.com/", "created_utc": 1400000000}'
        >>> [(post.post_id, post.url, post.score) for post in RedditComments().parse(line)]
        [('c1', 'http://a.com/?x&y', 5), ('c1', 'http://b.com/', 5)]
        """
        row = _READER.row(record)
        if isinstance(row, Unreadable):
            return row
        if not row.post_id:
            return NO_POST_ID
        body = unescaped(row.body or "")
        if len(body) > MAX_BODY_CHARACTERS:
            return Unreadable("body_too_long", f"{len(body):,} characters, more than {MAX_BODY_CHARACTERS:,}")
        try:
            score = None if row.score_hidden else whole_number(row.score, "score")
            created, retrieved = whole_number(row.created_utc, "created_utc"), row.retrieved()
        except msgspec.ValidationError as error:
            return Unreadable("wrong_type", str(error))
        return [
            Submission(
                source=SOURCE,
                post_id=row.post_id,
                subreddit=row.subreddit,
                url=url,
                score=score,
                created=created,
                retrieved=retrieved,
                is_self=False,
                over_18=bool(row.over_18),
            )
            for url in links_in(body, SITE)
        ]

    def sift(self, lines: bytes | memoryview, rule: PostRule) -> Sifted:
        """Return the votes of these lines, unjudged: nearly all the time goes into parsing them."""
        n_without = begin = 0
        posts: list[Submission] = []
        others = []
        for line in bytes(lines).split(b"\n"):
            end = begin + len(line)
            votes = self.parse(line)
            if isinstance(votes, Unreadable):
                others.append((begin, end))
            else:
                n_without += not votes
                posts += votes
            begin = end + 1
        return Sifted({NO_LINK: n_without} if n_without else {}, posts, others)
