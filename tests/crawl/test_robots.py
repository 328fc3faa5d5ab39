"""robots.txt and the other opt-outs: the RFC's examples, Google's verdicts on real files, odd files."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.web.opt_outs import OPT_OUTS, header_opt_outs, obeyed, robots_tag_rules
from webtext.crawl.opt_outs.check import robots_opt_outs
from webtext.crawl.opt_outs.robots import MAX_ROBOTS_BYTES, Robots
from webtext.crawl.visits.settings import FetchSettings

RFC_9309_EXAMPLE = b"""User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""


@pytest.mark.parametrize(
    ("token", "path", "allowed"),
    [
        ("webtext", "/a.gif", False),
        ("webtext", "/a.gif?x", True),
        ("webtext", "/example/page.html", False),
        ("webtext", "/publications/", True),
        ("foobot", "/example/page.html", True),
        ("FooBot", "/", False),
        ("foobot", "/example/allowed.gif", True),
        ("barbot", "/example/page.html", False),
        ("bazbot", "/example/page.html", False),
        ("bazbot", "/example/", True),
        ("quxbot", "/example/", True),
    ],
)
def test_the_simple_example_of_rfc_9309_section_5_1(token: str, path: str, allowed: bool) -> None:
    assert Robots(RFC_9309_EXAMPLE).allows(path, token) == allowed


def test_the_longest_match_of_rfc_9309_section_5_2() -> None:
    robots = Robots(b"User-Agent: foobot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n")
    assert not robots.allows("/example/page/disallowed.gif", "foobot")
    assert robots.allows("/example/page/", "foobot")


def test_a_crawl_delay_does_not_close_a_group() -> None:
    """Protego alone reads the second User-agent line as a new group, so that `a` could fetch everything."""
    robots = Robots(b"User-agent: a\nCrawl-delay: 10\nUser-agent: b\nDisallow: /x\n")
    assert not robots.allows("/x", "a")
    assert not robots.allows("/x", "b")
    assert (robots.group("a").crawl_delay, robots.group("b").crawl_delay) == (10.0, None)


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "soon", ""])
def test_an_invalid_crawl_delay_is_ignored(value: str) -> None:
    assert Robots(f"User-agent: *\nCrawl-delay: {value}\n".encode()).group("webtext").crawl_delay is None


def test_groups_of_one_token_are_merged_and_a_token_matches_whole() -> None:
    robots = Robots(
        b"User-agent: webtext\nDisallow: /a\n\nUser-agent: *\nDisallow: /\n\nUser-agent: WebText/2\nDisallow: /b\n"
    )
    assert [robots.allows(path, "webtext") for path in ("/a", "/b", "/c")] == [False, False, True]
    assert not robots.allows("/c", "webtexts")


def test_a_link_to_robots_txt_is_judged_like_any_page() -> None:
    robots = Robots(b"User-agent: *\nDisallow: /robots.txt\n")
    assert not robots.allows("/robots.txt", "webtext")
    assert robots.allows("/robots.htm", "webtext")


def test_verdicts_on_a_sample_of_real_files_equal_google_s(shared_data: Path) -> None:
    """About 100 of the 4,231 files, and all difficult ones. tests/bench/bench_robots.py checks all files."""
    verdicts: dict[str, list[tuple[str, str, bool]]] = {}
    with gzip.open(shared_data / "crawl/robots/google_verdicts.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            name, token, path, allowed = line.rstrip("\n").split("\t")
            verdicts.setdefault(name, []).append((token, path, allowed == "1"))
    hard = {"www.audible.com", "www.flhsmv.gov", "www.penfed.org", "bitbucket.org", "www.artofmanliness.com"}
    sample = set(sorted(verdicts)[::42]) | (hard & set(verdicts))
    wrong, n_verdicts = [], 0
    with tarfile.open(shared_data / "crawl/robots/protego_robots_corpus.tar.gz") as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            if name in sample:
                robots = Robots(archive.extractfile(member).read())  # type: ignore[union-attr]
                n_verdicts += len(verdicts[name])
                wrong += [(name, *v) for v in verdicts[name] if robots.allows(v[1], v[0]) != v[2]]
    assert wrong == []
    assert n_verdicts > 3000


@given(st.binary(max_size=300), st.sampled_from(["/", "/a?b=c", "/%C3%A9"]))
def test_any_bytes_are_parsed_without_an_error(content: bytes, path: str) -> None:
    Robots(b"User-agent: *\nDisallow: " + content).allows(path, "webtext")
    assert Robots(content.replace(b":", b"").replace(b" ", b"").replace(b"\t", b"")).allows(path, "webtext")


def test_only_the_first_500_kib_are_read() -> None:
    filler = b"# filler\n" * (MAX_ROBOTS_BYTES // 9)
    assert Robots(filler + b"# filler\nUser-agent: *\nDisallow: /\n").allows("/", "webtext")


# The other opt-outs ---------------------------------------------------------------------------------------------------


def test_each_opt_out_can_be_turned_off_by_its_setting() -> None:
    robots = Robots(
        b"User-agent: *\nContent-Signal: search=yes, ai-train=no\nDisallow: /mine\n\nUser-agent: GPTBot\nDisallow: /ai\n"
    )
    headers = {
        "obey_tdm_reservation": ("tdm-reservation", "1"),
        "obey_noai": ("x-robots-tag", "noimageai, noai"),
        "obey_noindex": ("x-robots-tag", "none"),
        "obey_content_signal": ("content-signal", "ai-train=no"),
    }
    paths = {"obey_robots": "/mine", "obey_ai_robots": "/ai", "obey_content_signal": "/other"}
    settings = dict.fromkeys((name for name, _ in OPT_OUTS.values()), False)
    off = FetchSettings(**settings)
    for reason, (name, _) in OPT_OUTS.items():
        on = FetchSettings(**settings | {name: True})
        if name in paths:
            opt_outs = robots_opt_outs(robots, paths[name])
            assert reason in opt_outs
            assert (obeyed(opt_outs, on), obeyed(opt_outs, off)) == (reason, None)
        if name in headers and not reason.endswith("_meta"):
            opt_outs = header_opt_outs([headers[name]])
            assert (opt_outs, obeyed(opt_outs, on), obeyed(opt_outs, off)) == ([reason], reason, None)


def test_a_site_that_says_nothing_about_training_is_not_opted_out() -> None:
    robots = Robots(b"User-agent: *\nDisallow: /x\n\nUser-agent: GPTBot\nAllow: /\n")
    assert robots_opt_outs(robots, "/page") == []
    headers = [
        ("x-robots-tag", "nofollow, max-snippet: 20"),
        ("tdm-reservation", "0"),
        ("content-signal", "ai-train=yes"),
    ]
    assert header_opt_outs(headers) == []


def test_rules_for_another_crawler_don_t_apply_to_us() -> None:
    assert robots_tag_rules("googlebot: noindex, webtext: noai, nofollow") == {"noai", "nofollow"}
    assert robots_tag_rules("unavailable_after: 25 Jun 2030 15:00:00 GMT, noindex") >= {"noindex"}
