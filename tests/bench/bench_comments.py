"""Finding links in comments, compared with a json.loads loop with a URL pattern, on the same generated lines.

    python tests/bench/bench_comments.py

One comment in sixteen has two links, one in Markdown and one bare. The pattern gets some URLs wrong (brackets, full
stops, escapes), but costs as much as the usual loop. Figures are CPU time, the best of five rounds.
"""

from __future__ import annotations

import json
import random
import re

from arguments import parser
from resources import cpu_seconds_in_turn

from webtext.crawl.links.comments import RedditComments
from webtext.crawl.links.karma import Judge
from webtext.crawl.links.settings import LinkSettings

COMMENTS = 30_000
EACH_WITH_LINKS = 16
WORDS = "the of and to in is that for it was as with on by this from at are but not you have we all they"
URL = re.compile(r"https?://\S+")


def made_comment(number: int, chance: random.Random) -> bytes:
    """Return a line with the fields and the length of comments of December 2017."""
    body = " ".join(chance.choices(WORDS.split(), k=chance.randint(3, 60)))
    if number % EACH_WITH_LINKS == 0:
        body += (
            f" [source](https://site{number % 500}.example/{number}_(x)?a=1&amp;b=2), https://other.example/{number}."
        )
    row = {"author": f"p{number}", "body": body, "id": f"dq{number:x}", "score": number % 40, "subreddit": "books"}
    row |= {"created_utc": 1_512_086_400 + number, "retrieved_on": 1_514_209_012, "edited": False, "gilded": 0}
    row |= {"link_id": "t3_7gq7zv", "parent_id": "t1_dqks", "permalink": "/r/books/comments/7gq7zv/title/"}
    row |= {"author_flair_css_class": None, "author_flair_text": None, "stickied": False, "subreddit_type": "public"}
    return json.dumps(row, separators=(",", ":")).encode()


def main() -> None:
    parser(__doc__).parse_args()
    chance = random.Random(1)
    lines = [made_comment(number, chance) for number in range(COMMENTS)]
    megabytes = sum(map(len, lines)) / 1e6
    data = b"\n".join(lines)
    source = RedditComments()
    rule = Judge.of(LinkSettings()).post_rule
    assert len(source.sift(data, rule).posts) == 2 * -(-COMMENTS // EACH_WITH_LINKS)
    runs = {
        "links in comments": lambda: source.sift(data, rule),
        "json.loads and a pattern": lambda: [URL.findall(json.loads(line)["body"]) for line in lines],
    }
    best = cpu_seconds_in_turn(runs, 5, min)
    for name, seconds in best.items():
        print(f"{name}: {seconds / COMMENTS * 1e6:.1f} µs per comment, {megabytes / seconds:.0f} MB per CPU second")
    ours, loop = best.values()
    print(f"{ours / loop:.2f} times the loop")


if __name__ == "__main__":
    main()
