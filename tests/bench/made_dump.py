"""A generated submission dump with rows as long, as varied and as redundant as Reddit's.

Shares and lengths are those of December 2017, according to its published schema (10.6 million posts: 44 % self posts, 9
% over 18, 14 % on Reddit's own media hosts, 40 % with a preview of six sizes, titles of 56 characters, self texts of
178). A third of the rows each have the 36 fields of 2011, the 61 of 2017 and the 154 of 2025. Scores follow a Pareto
distribution in which a third of the posts reach 3. Ids, hashes and addresses are random, and words are drawn from a
list of 4,000 by Zipf's law. `bench_links.py` prints the compression.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

SITES, BOARDS, PERSONS = 40_000, 20_000, 3_000_000
SELF, OVER_18, OWN_MEDIA, PREVIEW, ESCAPED = 0.44, 0.09, 0.14, 0.40, 0.10
FIRST_CREATED = 1_512_086_400
NULLS_OF_2011 = (  # noqa: SIM905
    "approved_by author_flair_css_class author_flair_text banned_by distinguished likes link_flair_css_class "
    "link_flair_text media num_reports secure_media"
).split()
FIELDS_OF_2017 = (  # noqa: SIM905
    "brand_safe can_gild contest_mode is_crosspostable is_reddit_media_domain is_video locked no_follow "
    "pinned send_replies spoiler"
).split()
FIELDS_OF_2025 = (  # noqa: SIM905
    "all_awardings allow_live_comments approved_at_utc approved_by author_flair_background_color "
    "author_flair_template_id author_flair_text_color author_flair_type author_fullname author_is_blocked "
    "author_patreon_flair author_premium awarders banned_at_utc banned_by can_mod_post category clicked "
    "content_categories created discussion_type downs gildings is_created_from_ads_ui is_meta "
    "is_original_content is_robot_indexable likes link_flair_background_color link_flair_template_id "
    "media_metadata media_only mod_note mod_reason_by mod_reason_title mod_reports num_reports pwls "
    "quarantine removal_reason removed_by removed_by_category report_reasons saved subreddit_name_prefixed "
    "subreddit_subscribers top_awarded_type total_awards_received treatment_tags ups upvote_ratio "
    "url_overridden_by_dest user_reports view_count visited wls"
).split() + [f"ad_field_{number}" for number in range(45)]
FILLS: tuple[object, ...] = (None, False, [], None, 0, None, "", False)


def made_posts(seed: int = 1) -> Iterator[bytes]:
    """Yield an endless sequence of lines, in the order of their ids; it depends only on the seed."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("aaabcdeeeefghiiklmnooprssttuvwy", k=chance.randint(2, 9))) for _ in range(4_000)]
    text = random.Random(seed + 1)
    weights = [1 / (rank + 1) for rank in range(len(words))]
    running = text.choices(words, weights, k=200_000)  # titles and self texts are cut from this
    number = 0
    while True:
        yield _line(number, chance, running)
        number += 1


def _line(number: int, chance: random.Random, running: list[str]) -> bytes:
    row = _oldest(number, chance, running)
    shape = number % 3
    if shape:
        row |= dict.fromkeys(FIELDS_OF_2017, False)
        row |= {"author_flair_richtext": [], "link_flair_richtext": [], "link_flair_type": "text", "num_crossposts": 0}
        row |= {"parent_whitelist_status": "all_ads", "retrieved_on": FIRST_CREATED + 3_000_000, "rte_mode": "markdown"}
        row |= {"subreddit_type": "public", "suggested_sort": None, "whitelist_status": "all_ads"}
        if not row["is_self"] and chance.random() < PREVIEW / (1 - SELF) * 3 / 2:
            row |= _preview(chance)
    if shape == 2:
        row |= {name: FILLS[i % len(FILLS)] for i, name in enumerate(FIELDS_OF_2025)}
        row["name"] = f"t3_{row['id']}"
        row["_meta"] = {"retrieved_2nd_on": FIRST_CREATED + 130_000}
    line = json.dumps(row, separators=(",", ":"), sort_keys=True)
    return line.replace("/", "\\/").encode() + b"\n"


def _oldest(number: int, chance: random.Random, running: list[str]) -> dict[str, object]:
    at = chance.randrange(len(running) - 40)
    title = " ".join(running[at : at + 10])
    board = f"board{int(chance.paretovariate(0.5)) % BOARDS}"
    post_id = f"{number + 460_000_000:x}"
    address = f"/r/{board}/comments/{post_id}/{title[:50].replace(' ', '_')}/"
    is_self = chance.random() < SELF
    if is_self:
        domain, url = f"self.{board}", "https://www.reddit.com" + address
    elif chance.random() < OWN_MEDIA / (1 - SELF):
        domain, url = "i.redd.it", f"https://i.redd.it/{chance.getrandbits(60):x}.jpg"
    else:
        domain = f"site{int(chance.paretovariate(0.6)) % SITES}.example"
        url = f"https://{domain}/{chance.getrandbits(32)}/{title[:40].replace(' ', '-')}"
        url += "?id=1&amp;page=2" if chance.random() < ESCAPED else ""
    row: dict[str, object] = dict.fromkeys(NULLS_OF_2011, None)
    row |= dict.fromkeys(("archived", "edited", "hidden", "hide_score", "quarantine", "saved", "stickied"), False)
    row |= {
        "author": f"person{chance.randrange(PERSONS)}",
        "created_utc": FIRST_CREATED + number // 4,
        "domain": domain,
    }
    row |= {"gilded": 0, "id": post_id, "is_self": is_self, "media_embed": {}, "secure_media_embed": {}}
    row |= {"num_comments": int(chance.paretovariate(0.7)) % 9_000, "over_18": chance.random() < OVER_18}
    row |= {"permalink": address, "score": int(chance.paretovariate(1.0)) % 100_000, "subreddit": board, "title": title}
    row |= {"selftext": " ".join(running[at : at + 38]) if is_self else "", "url": url}
    row |= {"subreddit_id": f"t5_{len(board)}{board[5:]}"}
    row |= {"thumbnail": "self" if is_self else f"https://b.thumbs.redditmedia.com/{chance.getrandbits(250):x}.jpg"}
    return row


def _preview(chance: random.Random) -> dict[str, object]:
    image = f"{chance.getrandbits(200):x}"

    def size(width: int) -> dict[str, object]:
        cut = f"fit=crop&amp;crop=faces%2Centropy&amp;arh=2&amp;w={width}&amp;" if width < 1600 else ""
        url = f"https://i.redditmedia.com/{image}.jpg?{cut}s={chance.getrandbits(128):032x}"
        return {"height": width * 9 // 16, "url": url, "width": width}

    sizes = [size(width) for width in (108, 216, 320, 640, 960, 1080)[: chance.randint(2, 6)]]
    images = [{"id": image, "resolutions": sizes, "source": size(1600), "variants": {}}]
    return {
        "post_hint": "link",
        "preview": {"enabled": False, "images": images},
        "thumbnail_height": 78,
        "thumbnail_width": 140,
    }
