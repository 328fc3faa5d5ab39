"""robots.txt and the other opt-outs: the RFC's examples, Google's verdicts on real files, odd files."""

from __future__ import annotations

import gzip
import importlib
import tarfile
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.web.opt_outs import (
    AI_TRAINING_CRAWLERS,
    KNOWN_TOKENS,
    OPT_OUTS,
    header_opt_outs,
    meta_opt_outs,
    obeyed,
    robots_tag_rules,
)
from webtext.crawl.fetch.robots import cache
from webtext.crawl.fetch.robots.check import robots_opt_outs
from webtext.crawl.fetch.robots.robots_txt import MAX_ROBOTS_BYTES, Robots
from webtext.crawl.fetch.settings import FetchSettings

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


@pytest.mark.parametrize("control", [b"\x0b", b"\x0c", b"\x1c", b"\x1d", b"\x1e"])
def test_a_control_character_does_not_end_a_line(control: bytes) -> None:
    """Protego split lines at these: what followed could begin another group."""
    robots = Robots(b"User-agent: *\nDisallow: /a" + control + b"User-agent: x\nDisallow: /private\n")
    assert (robots.allows("/private", "webtext"), robots.allows("/a", "webtext")) == (False, True)


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
    """About 100 of the 4,231 files, and all difficult ones."""
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


def test_only_the_complete_lines_of_the_first_500_kib_are_read() -> None:
    filler = b"# filler\n" * (MAX_ROBOTS_BYTES // 9)
    assert Robots(filler + b"# filler\nUser-agent: *\nDisallow: /\n").allows("/", "webtext")
    rules = b"User-agent: *\nDisallow: /\nAllow: /"
    assert not Robots(rules.rjust(MAX_ROBOTS_BYTES, b"\n") + b"mine\n").allows("/", "webtext")


def test_thousands_of_other_crawlers_take_no_memory_and_their_rules_are_not_ours() -> None:
    """Rules were copied for each crawler: 2,000 x 2,000 took 287 MB."""
    agents = b"".join(b"User-agent: bot-%s\n" % word(i) for i in range(2000))
    rules = b"".join(b"Disallow: /%d\n" % i for i in range(2000))
    content = b"User-agent: GPTBot\n" + agents + b"User-agent: ClaudeBot\n" + rules
    tracemalloc.start()
    robots = Robots(content + b"User-agent: other\nDisallow: /mine\n", KNOWN_TOKENS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5e6
    assert [robots.allows(*to) for to in (("/7", "webtext"), ("/mine", "webtext"), ("/7", "claudebot"))] == [1, 1, 0]


def word(number: int) -> bytes:
    return bytes(ord("a") + int(digit) for digit in str(number))


def test_rules_in_memory_are_bounded_however_many_sites_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """24,000 rules take 5 MB, and a domain has as many hosts as its name server likes."""
    monkeypatch.setattr(cache, "RULES_KEPT", 100)
    kept = cache.KeptFiles[Robots | str]()
    for site in (0, 1, 2, 3, 4, 4):
        kept.keep(site, Robots(b"User-agent: *\n" + b"Disallow: /x\n" * 40))
    kept.keep(5, "http_503")
    assert [site for site in range(6) if kept.get(site)] == [3, 4, 5]


def test_crawlers_with_the_same_rules_share_a_group_and_its_matcher() -> None:
    lines = "".join(f"User-agent: {token}\n" for token in sorted(KNOWN_TOKENS))
    robots = Robots(f"{lines}Disallow: /*a*b\n\nUser-agent: CCBot\nDisallow: /c\n".encode())
    own, others = robots.group("webtext"), robots.own_groups(AI_TRAINING_CRAWLERS)
    assert (len(others), own in others) == (2, True)
    assert [robots.allows("/c", token) for token in ("ccbot", "gptbot")] == [False, True]


@pytest.mark.parametrize(("n_rules", "is_large"), [(10, False), (24_000, True)])
def test_a_large_robots_txt_is_judged_beside_the_event_loop(
    n_rules: int, is_large: bool, crawl: Any, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the event loop, every verdict of 24,000 rules would stop all other visits."""
    threads = []
    for module, name in (("check", "robots_opt_outs"), ("cache", "_read")):
        function = vars(importlib.import_module(f"webtext.crawl.fetch.robots.{module}"))[name]

        def noting(*given: Any, function: Callable[..., Any] = function) -> Any:
            threads.append(threading.current_thread() is threading.main_thread())
            return function(*given)

        monkeypatch.setattr(f"webtext.crawl.fetch.robots.{module}.{name}", noting)
    rules = "".join(f"Disallow: /*a*{i}*c\n" for i in range(n_rules))
    web.page("/robots.txt", f"User-agent: *\n{rules}", "Content-Type: text/plain")
    rows = crawl([web.page("/page"), web.page("/a7c")])
    assert [rows[web.url(path)]["reason"] for path in ("/page", "/a7c")] == [None, "robots_disallowed"]
    assert set(threads) == {not is_large}


# The other opt-outs ---------------------------------------------------------------------------------------------------


STATED: dict[str, Callable[[], list[str]]] = {
    "robots_disallowed": lambda: robots_opt_outs(Robots(b"User-agent: *\nDisallow: /mine\n"), "/mine"),
    "robots_disallowed_ai_training": lambda: robots_opt_outs(Robots(b"User-agent: GPTBot\nDisallow: /ai\n"), "/ai"),
    "content_signal_no_training": lambda: header_opt_outs([("content-signal", "ai-train=no")]),
    "content_usage_no_training": lambda: header_opt_outs([("content-usage", "train-ai=n")]),
    "tdm_reserved": lambda: header_opt_outs([("tdm-reservation", "1")]),
    "noai_header": lambda: header_opt_outs([("x-robots-tag", "noai")]),
    "noai_meta": lambda: meta_opt_outs(b"<meta name=robots content=noai>"),
    "noimageai_header": lambda: header_opt_outs([("x-robots-tag", "noimageai")]),
    "noimageai_meta": lambda: meta_opt_outs(b"<meta name=robots content=noimageai>"),
    "noindex_header": lambda: header_opt_outs([("x-robots-tag", "none")]),
    "noindex_meta": lambda: meta_opt_outs(b"<meta name=robots content=noindex>"),
}


@pytest.mark.parametrize("reason", OPT_OUTS)
def test_each_opt_out_can_be_turned_off_by_its_setting(reason: str) -> None:
    off = FetchSettings(**dict.fromkeys((each.setting for each in OPT_OUTS.values()), False))
    on = replace(off, **{OPT_OUTS[reason].setting: True})
    opt_outs = STATED[reason]()
    assert (opt_outs, obeyed(opt_outs, on), obeyed(opt_outs, off)) == ([reason], reason, None)


AIPREF_EXAMPLE = b"""User-Agent: *
Allow: /
Disallow: /never/
Content-Usage: train-ai=n
Content-Usage: /ai-ok/ train-ai=y

User-Agent: ExampleBot
Allow: /
Content-Usage: train-ai=y
"""


def test_the_example_of_draft_ietf_aipref_attach_section_3_4() -> None:
    robots = Robots(AIPREF_EXAMPLE)
    assert robots_opt_outs(robots, "/test") == ["content_usage_no_training"]
    assert robots_opt_outs(robots, "/ai-ok/test") == []
    assert robots_opt_outs(robots, "/never/test")[0] == "robots_disallowed"
    assert not robots.group("ExampleBot").forbids_training("/test")


@pytest.mark.parametrize(
    ("lines", "path", "reasons"),
    [
        ("Content-Usage: train-ai=n\nContent-Usage: train-ai=y", "/", ["content_usage_no_training"]),
        ("Content-Usage: / train-ai=y\nContent-Usage: /\ttrain-ai=n", "/a", ["content_usage_no_training"]),
        ("Content-Usage: /a/ train-ai=n", "/a/b", ["content_usage_no_training"]),
        ("Content-Usage: /a/ train-ai=n", "/b", []),
        ("Content-Usage: /*.html train-ai=n", "/b/c.html?d", ["content_usage_no_training"]),
        ("Content-Usage: search=n", "/", []),
        ("Content-Usage: /a", "/a", []),
        ("Content-Signal: ai-train=no\nContent-Signal: ai-train=yes", "/", ["content_signal_no_training"]),
        ("Content-Signal: ai-train=yes\nContent-Signal: search=no", "/", []),
    ],
)
def test_usage_rules_of_a_group(lines: str, path: str, reasons: list[str]) -> None:
    """The longest path counts, and of rules for one path the strictest."""
    assert robots_opt_outs(Robots(f"User-agent: *\n{lines}\n".encode()), path) == reasons


def test_the_strictest_of_our_group_all_training_crawlers_and_the_lines_before_any_group_counts() -> None:
    ours = "User-agent: webtext\nAllow: /\nContent-Signal: ai-train=yes\nContent-Usage: train-ai=y\n"
    assert robots_opt_outs(Robots(ours.encode()), "/") == []
    for forbids, reason in (
        ("Content-Signal: ai-train=no\n", "content_signal_no_training"),
        ("Content-Usage: train-ai=n\n", "content_usage_no_training"),
    ):
        assert robots_opt_outs(Robots(f"{forbids}\n{ours}".encode()), "/") == [reason]
        assert robots_opt_outs(Robots(f"{ours}\nUser-agent: GPTBot\n{forbids}".encode()), "/") == [reason]
        assert robots_opt_outs(Robots(f"{ours}\nUser-agent: Googlebot\n{forbids}".encode()), "/") == []


@pytest.mark.parametrize("token", sorted(AI_TRAINING_CRAWLERS))
def test_every_training_crawler_is_known_by_its_name_also_with_digits_and_a_version(token: str) -> None:
    content = f"User-agent: {token.title()}/1.0 (+https://a.example)\nDisallow: /x\n".encode()
    robots = Robots(content, KNOWN_TOKENS)
    assert robots_opt_outs(robots, "/x") == ["robots_disallowed_ai_training"]


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_a_robots_txt_in_another_encoding_is_read(codec: str) -> None:
    robots = Robots("User-agent: *\nDisallow: /caf\u00e9\n".encode(codec))
    assert not robots.allows("/caf%C3%A9", "webtext")
    assert robots.allows("/tea", "webtext")


def test_a_site_that_says_nothing_about_training_is_not_opted_out() -> None:
    robots = Robots(b"User-agent: *\nDisallow: /x\n\nUser-agent: GPTBot\nAllow: /\n")
    assert robots_opt_outs(robots, "/page") == []
    stated = {"x-robots-tag": "nofollow, max-snippet: 20", "tdm-reservation": "0", "content-signal": "ai-train=yes"}
    assert header_opt_outs(stated.items()) == []


def test_rules_for_another_crawler_don_t_apply_to_us() -> None:
    assert robots_tag_rules("googlebot: noindex, webtext: noai, nofollow") == {"noai", "nofollow"}
    for date in ("25 Jun 2030 15:00:00 GMT", "Tue, 25 Jun 2030 15:00:00 GMT", "Tuesday, 25-Jun-30 15:00:00 GMT"):
        assert robots_tag_rules(f"unavailable_after: {date}, noindex") >= {"noindex"}
