"""Canonical URLs: the standard's own vectors, then properties, then ugly inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ada_url
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from webtext.base.web import urls
from webtext.base.web.urls import canonical_url, host_of, join_url, path_of, port_of, registrable_domain, target_of

PARTS = ("href", "protocol", "host", "hostname", "port", "pathname", "search", "hash", "username", "password")


def _agrees(case: dict[str, Any]) -> bool:
    try:
        url = ada_url.URL(case["input"], case["base"]) if case.get("base") else ada_url.URL(case["input"])
    except ValueError:
        return bool(case.get("failure"))
    return not case.get("failure") and all(getattr(url, part) == case[part] for part in PARTS if part in case)


OWN_VECTORS: list[dict[str, Any]] = [
    {"input": "HTTP://EXAMPLE.org:80/a/./b/../c", "href": "http://example.org/a/c", "port": ""},
    {"input": " ht\ntps:\\\\a.example\\b\t ", "href": "https://a.example/b", "pathname": "/b"},
    {"input": "../x?q#f", "base": "http://a.example/b/c/d", "href": "http://a.example/b/x?q#f", "hash": "#f"},
    {"input": "https://me:word@a.example:8443/?q", "host": "a.example:8443", "username": "me", "password": "word"},
    {"input": "http://Straße.example/ä?ö", "href": "http://xn--strae-oqa.example/%C3%A4?%C3%B6"},
    {"input": "http://0x7F.0.1:0080/", "href": "http://127.0.0.1/", "hostname": "127.0.0.1"},
    {"input": "http://[1:0::0:2]:81/%7e^", "href": "http://[1::2]:81/%7e%5E", "hostname": "[1::2]", "port": "81"},
    {"input": "mailto:me@a.example", "href": "mailto:me@a.example", "host": "", "pathname": "me@a.example"},
    *({"input": raw, "failure": True} for raw in ("a.example/b", "http://", "http://a b/", "http://1.2.3.256/")),
    *({"input": f"http://{host}/", "failure": True} for host in ("a:65536", "[1", "[1::2::3]", "a%00b", "a<b")),
]
N_VECTORS = {"wpt_urltestdata": 891, "wpt_ada_extra_urltestdata": 28}


@pytest.fixture(params=["own", *N_VECTORS])
def vectors(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Vectors of our own, written from the standard's rules, or those of the web platform's tests."""
    if request.param == "own":
        return OWN_VECTORS
    text = (request.getfixturevalue("shared_data") / f"crawl/url/{request.param}.json").read_text()
    cases = [case for case in json.loads(text) if isinstance(case, dict)]
    assert len(cases) == N_VECTORS[request.param]
    return cases


def test_all_vectors_agree(vectors: list[dict[str, Any]]) -> None:
    """The library does the parsing; this is why it was chosen, and checks each new version."""
    assert [case["input"] for case in vectors if not _agrees(case)] == []


def test_canonical_urls_of_the_vectors_are_idempotent_and_bare(vectors: list[dict[str, Any]]) -> None:
    found = 0
    for case in vectors:
        url = canonical_url(case.get("href", case["input"]))
        if url is not None:
            found += 1
            assert canonical_url(url) == url
            parsed = ada_url.URL(url)
            assert (parsed.hash, parsed.username, parsed.password) == ("", "", "")
    assert found >= len(vectors) / 4


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("http://Example.COM", "http://example.com/"),
        ("http://example.com:8080/a", "http://example.com:8080/a"),
        ("http://example.com./a", "http://example.com./a"),
        ("  http://example.com/a b\t\n", "http://example.com/a%20b"),
        ("http://exa\tmple.com/a\r\nb", "http://example.com/ab"),
        ("http://example.com/a?#", "http://example.com/a?"),
        ("http://example.com\\a", "http://example.com/a"),
        ("http://münchen.de/ä", "http://xn--mnchen-3ya.de/%C3%A4"),
        ("http://example.com/^", "http://example.com/%5E"),
    ],
)
def test_canonical_form_is_what_the_standard_says(raw: str, expected: str) -> None:
    assert canonical_url(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        *("", " ", "example.com", "/r/books", "//example.com/a", "mailto:a@b.org", "javascript:alert(1)"),
        *("ftp://a.org/", "file:///etc/passwd", "data:text/html,x", "magnet:?xt=1"),
        *("http://", "http:///", "http://a b/", "http://a:99999/"),
        *("http://a.com/\ud800", "http://exa\0mple.com/", "http://[::1", "http://1.2.3.4.5/"),
    ],
)
def test_only_web_addresses_have_a_canonical_form(raw: str) -> None:
    assert canonical_url(raw) is None


def test_hosts_and_paths_of_urlcanon_vectors_are_as_they_say_where_they_follow_the_standard(shared_data: Path) -> None:
    """The vectors differ from the standard for backslashes, for dots as an address, and for '0000xa'."""

    def read(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((shared_data / f"crawl/url/urlcanon_{name}.json").read_text())
        return found

    addresses = read("funky_ipv4")
    assert len(addresses) == 47
    for raw, address in addresses.items():
        url = canonical_url(f"http://{raw}/")
        assert (host_of(url) if url else None) == address or raw == "0000xa"
    paths = {raw: path for raw, path in read("path_dots")["special"].items() if "\\" not in raw}
    assert len(paths) > 300
    assert {raw: path_of(str(canonical_url(f"http://a.com{raw}"))) for raw in paths} == paths
    urls = read("supplemental_whatwg")
    differ = [raw for raw, url in urls.items() if canonical_url(raw) != canonical_url(url)]
    assert (len(urls), len(differ)) == (118, 13)
    assert [raw for raw in differ if "%2e/" not in raw] == ["http://â\x98\x83.net/"]  # UTF-8 read as Latin-1


@given(st.text(max_size=60).map(lambda text: "http://" + text) | st.text(max_size=60))
@example("http://a@b@c/#x#y")
@example("http://a/%ff?%#%")
@settings(max_examples=300, deadline=None)
def test_canonical_form_is_idempotent_and_encodable(raw: str) -> None:
    url = canonical_url(raw)
    if url is not None:
        assert url.isascii()
        assert canonical_url(url) == url
        assert "#" not in url
        assert url.startswith(("http://", "https://"))


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("http://www.example.com/", "example.com"),
        ("http://en.m.wikipedia.org:8080/wiki/A", "wikipedia.org"),
        ("http://name.blogspot.com/", "blogspot.com"),
        ("http://example.com./", "example.com"),
        ("http://[::1]:8000/", "[::1]"),
        ("http://localhost/", "localhost"),
        ("http://co.uk/", "co.uk"),
    ],
)
def test_registrable_domain_is_what_somebody_registered(url: str, domain: str) -> None:
    assert registrable_domain(url) == domain


@pytest.mark.parametrize(
    ("base", "reference", "joined"),
    [
        ("http://a.com/b/c", "d", "http://a.com/b/d"),
        ("http://a.com/b", "//user@c.com/d#e", "http://c.com/d"),
        ("http://a.com/b", "#e", "http://a.com/b"),
        ("http://a.com/b", "file:///etc/passwd", None),
        ("http://a.com/b", "http://", None),
    ],
)
def test_references_are_joined_by_the_standard(base: str, reference: str, joined: str | None) -> None:
    assert join_url(base, reference) == joined


def test_what_is_read_off_canonical_urls_agrees_with_the_parser_on_all_vectors(vectors: list[dict[str, Any]]) -> None:
    for case in vectors:
        url = canonical_url(case.get("href", ""))
        if url is not None:
            parsed = ada_url.URL(url)
            port = int(parsed.port) if parsed.port else {"http:": 80, "https:": 443}[parsed.protocol]
            assert (host_of(url), port_of(url), path_of(url)) == (parsed.hostname, port, parsed.pathname)
            assert target_of(url).removesuffix("?") == parsed.pathname + parsed.search


HOSTS = st.sampled_from(
    ["a.com", "a_b.-c-.com", "1.2.3", "1.2.3.4", "0x7f.1", "a.1", "a.0x1", "xn--a.com", "a.xn--ls8h.la"]
)
MORE_HOSTS = st.text("aA1-_.x\u00e9", min_size=1, max_size=8)
REST = st.text("aA1/.?&=%2e#'\"|^;:@+~-\\ \t\u00e9", max_size=12)


@pytest.mark.slow
@given(st.sampled_from(["http://", "https://", "HTTP://", "http:/"]), HOSTS | MORE_HOSTS, REST)
@example("http://", "a.com", "/..")
@example("http://", "a.com", "/a/.b/%2e")
@settings(max_examples=1500)
def test_urls_that_match_the_canonical_pattern_are_unchanged_by_the_parser(scheme: str, host: str, rest: str) -> None:
    for url in (scheme + host + "/" + rest, scheme + host + rest):
        if urls._IS_CANONICAL(url):
            assert ada_url.normalize_url(url) == url
