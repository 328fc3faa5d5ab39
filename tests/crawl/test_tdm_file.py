"""tdmrep.json: the report's example, patterns, odd files, and how a crawl asks for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.crawl.fetch.robots.cache import SilentSites
from webtext.crawl.fetch.robots.robots_txt import MAX_RULES, TDM_PATH, TdmFile

EXAMPLE = b"""[
  {"location": "/directory-a/", "tdm-reservation": 1},
  {"location": "/directory-b/html/", "tdm-reservation": 1, "tdm-policy": "https://provider.com/policies/policy.json"},
  {"location": "/directory-b/images/*.jpg", "tdm-reservation": 0}
]"""


def test_the_report_s_example() -> None:
    file = TdmFile.read(EXAMPLE)
    assert file.reserves("/directory-a/book.pdf")
    assert file.reserves("/directory-b/html/page?x")
    assert not file.reserves("/directory-b/images/a.jpg")
    assert not file.reserves("/other")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/", "/any", True),
        ("*", "/any", True),
        ("/a*c", "/abbc/d", True),
        ("/a*c$", "/abcc", True),
        ("/a*c$", "/abcd", False),
        ("/a*b*c$", "/abc", True),
        ("/ab*bc$", "/abc", False),
        ("/this/path/exactly$", "/this/path/exactly", True),
        ("/this/path/exactly$", "/this/path/exactly/not", False),
        ("/A", "/a", False),
        ("", "/a", True),
    ],
)
def test_patterns_match_as_in_robots_txt(pattern: str, path: str, matches: bool) -> None:
    assert TdmFile(((pattern, True),)).reserves(path) == matches


def test_the_first_rule_that_matches_counts() -> None:
    file = TdmFile.read(b'[{"location":"/a/","tdm-reservation":0},{"location":"/","tdm-reservation":"1"}]')
    assert (file.reserves("/a/b"), file.reserves("/b")) == (False, True)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"<html>", b"{}", b"[[], 1, null, {}]", b"[" * 100_000, b'["\xff"]'),
        b'[{"location": 1, "tdm-reservation": 1}]',
        b'[{"location": "/", "tdm-reservation": 2}]',
        b'[{"location": "/", "tdm-reservation": [1]}]',
    ],
)
def test_what_is_no_rule_states_nothing(content: bytes) -> None:
    assert TdmFile.read(content).rules == ()


def test_only_the_first_thousand_rules_count() -> None:
    rule = b'{"location": "/a", "tdm-reservation": 1}'
    assert len(TdmFile.read(b"[" + b",".join([rule] * (MAX_RULES + 5)) + b"]").rules) == MAX_RULES


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(content: bytes) -> None:
    TdmFile.read(content).reserves("/")


def test_a_crawl_asks_for_the_file_once_per_site_and_obeys_it(crawl: Any, web: Any) -> None:
    web.page(TDM_PATH, EXAMPLE, "Content-Type: application/json")
    urls = [web.page("/directory-a/x"), web.page("/y"), web.page("/z")]
    rows = crawl(urls)
    assert [rows[url]["reason"] for url in urls] == ["tdm_reserved", None, None]
    assert [rows[url]["opt_outs"] for url in urls] == [["tdm_reserved"], [], []]
    assert web.paths(robots=True).count(TDM_PATH) == 1
    assert "/directory-a/x" not in web.paths()


def test_a_crawl_that_doesn_t_obey_it_doesn_t_ask_for_it(crawl: Any, web: Any) -> None:
    crawl([web.page("/y")], obey_tdm_reservation=False)
    assert TDM_PATH not in web.paths(robots=True)


def test_a_file_that_robots_txt_forbids_is_not_asked_for(crawl: Any, web: Any) -> None:
    web.page("/robots.txt", "User-agent: *\nDisallow: /.well-known/\n", "Content-Type: text/plain")
    url = web.page("/y")
    assert crawl([url])[url]["reason"] is None
    assert TDM_PATH not in web.paths(robots=True)


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "301 Moved"])
def test_a_site_without_the_file_reserves_nothing(crawl: Any, web: Any, status: str) -> None:
    web.page(TDM_PATH, EXAMPLE, status=status)
    url = web.page("/directory-a/x")
    assert crawl([url])[url]["reason"] is None


def test_a_site_that_only_sends_robots_txt_is_not_silent(crawl: Any, web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    monkeypatch.setattr(SilentSites, "answered", lambda self, origin: noted.append("answered"))
    monkeypatch.setattr(SilentSites, "did_not_answer", lambda self, origin: noted.append("silent"))
    web.plant(TDM_PATH, b"")
    url = web.page("/x")
    assert crawl([url], total_seconds=1.0)[url]["reason"] is None
    assert noted == ["answered", "silent", "answered"]
