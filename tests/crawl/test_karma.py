"""The karma rule: GPT-2's sentence first, then OpenAI's own domain list, then each reason and its edge cases."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dump_files import submission
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.config import recipe_settings, timestamp
from webtext.base.errors import ConfigError
from webtext.base.parts.identifiers import VALIDATION_RATIO
from webtext.crawl.blocklists import is_wikipedia
from webtext.crawl.links.karma import KarmaJudge, is_media, link_url
from webtext.crawl.links.settings import PROFILES, KarmaRule, LinkSettings

WEBTEXT = LinkSettings()
LAST_SECOND_OF_2017 = 1514764799
POST = submission(post_id="88", subreddit="books", url="http://example.com/page", score=3, created=LAST_SECOND_OF_2017)


OLD_WIKIPEDIA = ("https://secure.wikimedia.org/wikipedia/en/wiki/A", "http://wiki2.org/en/A", "http://enwp.org/A")


def verdict(settings: LinkSettings = WEBTEXT, **changes: object) -> str | None:
    return KarmaJudge.of(settings)(msgspec.structs.replace(POST, **changes))[1]


def test_an_outbound_link_with_three_karma_is_kept() -> None:
    """Radford et al. 2019, section 2.1: "outbound links from Reddit ... which received at least 3 karma"."""
    assert KarmaJudge.of(WEBTEXT)(POST) == ("http://example.com/page", None)
    assert verdict(score=2) == "too_little_karma"


SUFFIXES = ("com", "org", "net", "edu", "gov", "co.uk", "de", "gl", "co", "kr", "us", "tv", "io")
"""OpenAI's list has names without suffix: 'google', 'bbc', 'goo', 't', 'flic'. A name counts if it is kept with each of these."""


def share_kept(settings: LinkSettings, data: Path) -> tuple[float, list[str]]:
    """Return the share of the mass of OpenAI's list that a rule keeps, and the names it drops. One row has no name."""
    judge = KarmaJudge.of(settings)
    kept = total = 0
    lost = []
    for line in (data / "crawl/reddit/gpt2_webtext_top1000_domains.txt").read_text().splitlines():
        n, _, name = line.partition(" ")
        if not name:
            continue
        total += int(n)
        urls = [f"http://{host}{name}.{suffix}/page" for suffix in SUFFIXES for host in ("", "www.", "news.")]
        if all(judge(msgspec.structs.replace(POST, url=url))[1] is None for url in urls):
            kept += int(n)
        else:
            lost.append(name)
    assert total == 21_773_598
    return kept / total, lost


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_keeps_99_percent_of_openais_own_domains_by_mass(profile: str, shared_data: Path) -> None:
    ratio, lost = share_kept(LinkSettings(profile=profile), shared_data)
    assert ratio >= 0.99, lost
    assert lost == ["wikiwand"]


def test_a_blocklist_lowers_the_share_that_is_kept(shared_data: Path, tmp_path: Path) -> None:
    """Two domains that similar datasets block are 9 % of WebText's mass."""
    (tmp_path / "list").write_text("google.com\ngithub.com\n")
    ratio, lost = share_kept(LinkSettings(domain_blocklist=(str(tmp_path / "list"),)), shared_data)
    assert ratio == pytest.approx(0.909, abs=0.002)
    assert {"google", "github"} <= set(lost)


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
        ({"url": "http://example.com/" + "a" * 8174}, "url_too_long"),
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
            for url in ("https://www.wikiwand.com/en/A", "http://zh.wikipedia.org:80/wiki/甲", *OLD_WIKIPEDIA)
        ),
        *(({"url": url}, "media") for url in ("http://a.com/b.jpg", "http://a.com/b.GIFV?x", "http://a.com/b.mp3#t=3")),
        *(({"url": url}, "media") for url in ("http://a.com/b.webm", "http://pbs.twimg.com/media/x.jpg:large")),
    ],
    ids=lambda value: str(value),
)
def test_each_reason_is_returned(changes: dict[str, object], reason: str) -> None:
    assert verdict(**changes) == reason


@pytest.mark.parametrize(
    "url",
    [
        *("http://starwars.wikia.com/wiki/A", "http://en.wiktionary.org/wiki/a", "http://goo.gl/abc"),
        *("http://t.co/abc", "http://example.com/paper.pdf", "http://example.com/?image=a.jpg"),
        *("http://example.com/jpg", "http://a.com/x.jpg/", "http://redditgifts.com/", "http://notreddit.com/"),
        *("http://wikipedia.org.example.com/", "http://a.com/wikipedia.org"),
    ],
)
def test_urls_that_only_resemble_a_dropped_one_are_kept(url: str) -> None:
    assert verdict(url=url) is None


def test_the_first_reason_in_the_documented_order_counts() -> None:
    post = {"score": 1, "over_18": True, "is_self": True, "url": "http://en.wikipedia.org/a.jpg"}
    assert verdict(**post, created=LAST_SECOND_OF_2017 + 1) == "too_late"
    assert verdict(**post) == "over_18"
    assert verdict(**post | {"over_18": False}) == "self_post"
    assert verdict(**post | {"over_18": False, "is_self": False}) == "too_little_karma"
    assert verdict(**post | {"over_18": False, "is_self": False, "score": 3}) == "wikipedia"


@pytest.mark.parametrize(
    ("changed", "post"),
    [
        ({"min_karma": None}, {"score": -9}),
        ({"min_karma": -9}, {"score": -9}),
        ({"before": None}, {"created": 2**40}),
        ({"before": "2018-01-01T00:00:01Z"}, {"created": LAST_SECOND_OF_2017 + 1}),
        ({"keep_over_18": True}, {"over_18": True}),
        ({"keep_self_posts": True}, {"is_self": True}),
        ({"keep_links_back": True}, {"url": "https://www.reddit.com/r/books/"}),
        ({"keep_wikipedia": True}, {"url": "http://en.wikipedia.org/wiki/A"}),
        ({"keep_media": True}, {"url": "http://a.com/b.jpg"}),
    ],
    ids=lambda value: str(value),
)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_value_of_a_profile_can_be_set(profile: str, changed: dict[str, Any], post: dict[str, object]) -> None:
    assert verdict(WEBTEXT, **post) is not None
    assert verdict(LinkSettings(profile=profile, **changed), **post) is None


def test_every_value_of_the_rule_is_a_setting() -> None:
    """Each value of the rule has a setting of that name, whose default is the profile's."""
    assert {f.name for f in fields(KarmaRule)} == {f.name for f in fields(LinkSettings) if f.default == "profile"}


@pytest.mark.parametrize(
    ("post", "kept_by"),
    [
        ({}, {"webtext", "openwebtext", "openwebtext2"}),
        ({"created": LAST_SECOND_OF_2017 + 1}, {"openwebtext", "openwebtext2"}),
        ({"is_self": True}, {"openwebtext"}),
        ({"over_18": True}, {"openwebtext2"}),
        ({"score": 2}, {"openwebtext2"}),  # before the scores of all its posts are added up
        ({"url": "http://en.wikipedia.org/wiki/A"}, set()),
        ({"url": "http://a.com/b.jpg"}, set()),
        ({"url": "https://www.reddit.com/r/books/"}, set()),
    ],
    ids=lambda value: str(value if isinstance(value, dict) else sorted(value)),
)
def test_the_profiles_differ_as_documented(post: dict[str, object], kept_by: set[str]) -> None:
    assert {profile for profile in PROFILES if verdict(LinkSettings(profile=profile), **post) is None} == kept_by


def test_one_rule_has_one_recipe_however_it_was_chosen() -> None:
    same = LinkSettings(profile="openwebtext2", before="2018-01-01T00:00:00Z", sum_karma=False, keep_over_18=False)
    assert KarmaJudge.of(same).about() == KarmaJudge.of(WEBTEXT).about()
    assert recipe_settings(same) == recipe_settings(WEBTEXT)
    assert KarmaJudge.of(LinkSettings(min_karma=4)).about() != KarmaJudge.of(WEBTEXT).about()


def test_blocklists_are_part_of_the_rule(tmp_path: Path) -> None:
    (tmp_path / "subreddits").write_text("# name: mine\nr/Books\n")
    (tmp_path / "domains").write_text("example.com\n")
    settings = LinkSettings(
        subreddit_blocklist=(str(tmp_path / "subreddits"),), domain_blocklist=(str(tmp_path / "domains"),)
    )
    assert verdict(settings) == "blocked_subreddit"
    assert verdict(settings, subreddit="music") == "blocked_domain"
    assert verdict(settings, subreddit=None, url="http://www.example.com/b.jpg") == "blocked_domain"
    assert verdict(settings, subreddit="music", url="http://example.org/") is None
    about = KarmaJudge.of(settings).about()
    assert [each["name"] for each in about["subreddit_blocklists"] + about["domain_blocklists"]] == ["mine", "domains"]


def test_a_score_read_too_soon_does_not_count_and_one_read_at_an_unknown_time_does() -> None:
    day = LinkSettings(min_score_age=86_400)
    made = LAST_SECOND_OF_2017
    assert verdict(day, retrieved=made + 86_399) == "score_too_fresh"
    assert verdict(day, retrieved=made - 5) == "score_too_fresh"
    assert verdict(day, retrieved=made + 86_400) is None
    assert verdict(day, retrieved=None) is None
    assert verdict(WEBTEXT, retrieved=made) is None


def test_times_without_a_zone_are_utc() -> None:
    assert (
        timestamp("2018-01-01", "before")
        == timestamp("2018-01-01T00:00:00Z", "before")
        == timestamp("2018-01-01T01:00:00+01:00", "before")
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
        ({"parts": 1025}, "1 to 1,024"),
        ({"min_score_age": -1}, "min_score_age"),
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
    found, reason = KarmaJudge.of(WEBTEXT)(msgspec.structs.replace(POST, url=url, score=score))
    assert (found is None) != (reason is None)


def test_a_link_is_identified_by_its_url_without_tracking_and_fragment() -> None:
    assert link_url(" http://EXAMPLE.com:80/a?utm_source=x&b=%41#c ") == "http://example.com/a?b=%41"
    assert link_url("http://twitter.com/#!/somebody/status/1") == "http://twitter.com/"
    assert link_url("http://example.com/a?") == "http://example.com/a"
    assert link_url("mailto:a@example.com") is None


def test_only_the_old_gateway_of_wikimedia_is_wikipedia() -> None:
    assert is_wikipedia("https://secure.wikimedia.org/wikipedia/de/wiki/A")
    assert not is_wikipedia("https://secure.wikimedia.org/wiktionary/de/wiki/A")
    assert not is_wikipedia("https://commons.wikimedia.org/wikipedia/en/A")


def test_media_are_recognized_by_the_last_segment_of_the_path() -> None:
    assert is_media("http://a.com/x.y/b.png")
    assert not is_media("http://a.png/")
