"""The karma rule: GPT-2's sentence first, OpenAI's own domain list as the judge, then each reason and its edge."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.errors import ConfigError
from webtext.base.schemas import VALIDATION_RATIO
from webtext.crawl.karma import LinkSettings, is_media, judge
from webtext.crawl.link_settings import timestamp
from webtext.crawl.submission import Submission

WEBTEXT = LinkSettings()
LAST_SECOND_OF_2017 = 1514764799
POST = Submission(
    source="reddit",
    post_id="88",
    subreddit="books",
    url="http://example.com/page",
    score=3,
    created=LAST_SECOND_OF_2017,
    retrieved=None,
    is_self=False,
    over_18=False,
)


def verdict(settings: LinkSettings = WEBTEXT, **changes: object) -> str | None:
    return judge(msgspec.structs.replace(POST, **changes), settings)[1]


def test_an_outbound_link_with_three_karma_is_kept() -> None:
    """Radford et al. 2019, section 2.1: "outbound links from Reddit ... which received at least 3 karma"."""
    assert judge(POST, WEBTEXT) == ("http://example.com/page", None)
    assert verdict(score=2) == "too_little_karma"


def test_the_profile_keeps_99_percent_of_openais_own_domains_by_mass(shared_data: Path) -> None:
    """The list holds names without suffix ('google', 'bbc'); a page of each stands for its mass. One row has no name."""
    kept = total = 0
    lost = []
    for line in (shared_data / "crawl/reddit/gpt2_webtext_top1000_domains.txt").read_text().splitlines():
        n, _, name = line.partition(" ")
        if not name:
            continue
        total += int(n)
        if verdict(url=f"http://www.{name}.com/page") is None:
            kept += int(n)
        else:
            lost.append(name)
    assert total == 21_773_598
    assert kept / total >= 0.99, lost
    assert lost == ["wikiwand"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"score": None}, "null_score"),
        ({"url": None}, "null_url"),
        ({"created": None}, "null_created"),
        ({"created": LAST_SECOND_OF_2017 + 1}, "too_late"),
        ({"over_18": True}, "over_18"),
        ({"is_self": True}, "self_post"),
        ({"score": -5}, "too_little_karma"),
        ({"url": "ftp://example.com/"}, "not_http"),
        ({"url": "http://"}, "not_http"),
        ({"url": "[deleted]"}, "not_http"),
        *(({"url": url}, "links_back") for url in ("https://www.reddit.com/r/books/", "http://redd.it/88")),
        *(
            ({"url": url}, "links_back")
            for url in ("https://v.redd.it/x", "https://i.redd.it/x.jpg", "https://np.reddit.com")
        ),
        *(
            ({"url": url}, "wikipedia")
            for url in ("http://en.wikipedia.org/wiki/A", "https://de.m.WIKIPEDIA.org./wiki/A")
        ),
        *(
            ({"url": url}, "wikipedia")
            for url in ("https://www.wikiwand.com/en/A", "http://zh.wikipedia.org:80/wiki/甲")
        ),
        *(({"url": url}, "media") for url in ("http://a.com/b.jpg", "http://a.com/b.GIFV?x", "http://a.com/b.mp3#t=3")),
        *(({"url": url}, "media") for url in ("http://a.com/b.webm", "http://pbs.twimg.com/media/x.jpg:large")),
    ],
    ids=lambda value: str(value),
)
def test_each_reason_is_told(changes: dict[str, object], reason: str) -> None:
    assert verdict(**changes) == reason


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://starwars.wikia.com/wiki/A",
            "http://en.wiktionary.org/wiki/a",
            "http://goo.gl/abc",
            "http://t.co/abc",
        ),
        *(
            "http://example.com/paper.pdf",
            "http://example.com/?image=a.jpg",
            "http://example.com/jpg",
            "http://a.com/x.jpg/",
        ),
        *(
            "http://redditgifts.com/",
            "http://notreddit.com/",
            "http://wikipedia.org.example.com/",
            "http://a.com/wikipedia.org",
        ),
    ],
)
def test_what_only_looks_like_a_reason_stays(url: str) -> None:
    assert verdict(url=url) is None


def test_the_first_reason_in_the_documented_order_counts() -> None:
    post = {"score": 1, "over_18": True, "is_self": True, "url": "http://en.wikipedia.org/a.jpg"}
    assert verdict(**post, created=LAST_SECOND_OF_2017 + 1) == "too_late"
    assert verdict(**post) == "over_18"
    assert verdict(**post | {"over_18": False}) == "self_post"
    assert verdict(**post | {"over_18": False, "is_self": False}) == "too_little_karma"
    assert verdict(**post | {"over_18": False, "is_self": False, "score": 3}) == "wikipedia"


def test_every_part_of_the_rule_can_be_set() -> None:
    assert verdict(LinkSettings(min_karma=4)) == "too_little_karma"
    assert verdict(LinkSettings(min_karma=None), score=-9) is None
    assert verdict(LinkSettings(before=None), created=2**40) is None
    assert verdict(LinkSettings(before="2017-12-31T23:59:59+00:00")) == "too_late"
    assert verdict(LinkSettings(keep_over_18=True), over_18=True) is None
    assert verdict(LinkSettings(keep_wikipedia=True), url="http://en.wikipedia.org/wiki/A") is None
    assert verdict(LinkSettings(keep_media=True), url="http://a.com/b.jpg") is None


def test_moments_without_a_zone_are_utc() -> None:
    assert (
        timestamp("2018-01-01")
        == timestamp("2018-01-01T00:00:00Z")
        == timestamp("2018-01-01T01:00:00+01:00")
        == 1514764800
    )


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"before": "end of 2017"}, "before"),
        ({"profile": "webtxt"}, "did you mean 'webtext'?"),
        ({"validation_ratio": 1.0}, "validation_ratio"),
        ({"validation_ratio": float("nan")}, "validation_ratio"),
        ({"parts": 0}, "parts"),
    ],
)
def test_a_wrong_setting_is_named(setting: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        LinkSettings(**setting)  # type: ignore[arg-type]
    assert named in str(error.value)


def test_the_default_share_is_webtexts() -> None:
    assert WEBTEXT.validation_ratio == VALIDATION_RATIO


@given(st.text(max_size=50), st.integers(-(2**63), 2**63 - 1))
def test_a_vote_has_either_a_url_or_a_reason(url: str, score: int) -> None:
    found, reason = judge(msgspec.structs.replace(POST, url=url, score=score), WEBTEXT)
    assert (found is None) != (reason is None)


def test_media_are_told_by_the_last_segment_of_the_path() -> None:
    assert is_media("http://a.com/x.y/b.png")
    assert not is_media("http://a.png/")
