"""SURT keys of URLs, as in the archives' indexes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.web.urls import canonical_url
from webtext.crawl.pages.surt import surt

KEYS = {  # from iipc/webarchive-commons (Apache-2.0): WaybackURLKeyMakerTest and the canonicalizers' tests
    "http://archive.org/": "org,archive)/",
    "http://archive.org:/": "org,archive)/",
    "http://archive.org/goo/": "org,archive)/goo",
    "http://archive.org/goo/?": "org,archive)/goo",
    "http://archive.org/goo/?b&a": "org,archive)/goo?a&b",
    "http://archive.org/goo/?a=2&b&a=1": "org,archive)/goo?a=1&a=2&b",
    "https://34.203.211.192/robots.txt": "192,211,203,34)/robots.txt",
    "https://[2600:1f18:200d:fb00:2b74:867c:ab0c:150a]/robots.txt": "2600:1f18:200d:fb00:2b74:867c:ab0c:150a)/robots.txt",
    "http://1kr.ua/newslist.html?tag=%E4%EE%F8%EA%EE%EB%FC%ED%EE%E5": "ua,1kr)/newslist.html?tag=%e4%ee%f8%ea%ee%eb%fc%ed%ee%e5",
    "http://www.aluroba.com/tags/%C3%CE%CA%C7%D1%E5%C7.htm": "com,aluroba)/tags/%c3%ce%ca%c7%d1%e5%c7.htm",
    "http://www34.archive.org/index.html?b=a&b=b&a=b": "org,archive)/index.html?a=b&b=a&b=b",
    "https://www.archive.org:80/": "org,archive:80)/",
    "http://www.archive.org:443/": "org,archive:443)/",
    "https://www.archive.org:443/": "org,archive)/",
    "http://www2.www2foo.com/": "com,www2foo)/",
    "http://www.archive.org/big/": "org,archive)/big",
    "http://www.nsf.gov/a/SED_2009.zip?CFID=14387305&CFTOKEN=72942008": "gov,nsf)/a/sed_2009.zip",
    "http://host/%25%32%35": "host)/%25",
    "http://host/%2525252525252525": "host)/%25",
    "http://host/asdf%25%32%35asd": "host)/asdf%25asd",
    "http://host/%%%25%32%35asd%%": "host)/%25%25%25asd%25%25",
    "http://host.com/%257Ea%2521b%2540c%2523d%2524e%25f%255E00": "com,host)/~a!b@c%23d$e%25f^00",
    "http://host.com/a%252611%252A22%252833%252944_55%252B": "com,host)/a&11*22(33)44_55+",
    "http://www.google.com.../": "com,google)/",
    "http://www.google.com/q?r?s": "com,google)/q?r?s",
    "http://evil.com/foo?bar;": "com,evil)/foo?bar;",
}


@pytest.mark.parametrize("url", KEYS)
def test_keys_equal_those_of_the_archives_own_software(url: str) -> None:
    assert surt(url) == KEYS[url]


def test_keys_equal_those_in_real_index_answers(shared_data: Path) -> None:
    rows: set[tuple[str, str]] = set()
    for path in (shared_data / "crawl/cc").glob("cdxt_*.jsonl"):
        for line in path.read_text().splitlines():
            answer = json.loads(line)
            text = answer["response_text"]
            if answer["response_status_code"] == 200 and text.startswith("[["):
                rows |= {(row[0], row[2]) for row in json.loads(text)[1:]}
            elif answer["response_status_code"] == 200 and text.startswith('{"urlkey"'):
                rows |= {(row["urlkey"], row["url"]) for row in map(json.loads, text.splitlines())}
    assert len(rows) == 16
    assert {url: surt(url) for _, url in rows} == {url: key for key, url in rows}


@pytest.mark.parametrize("name", ["jsessionid", "PHPSESSID", "sid"])
def test_session_ids_make_no_difference(name: str) -> None:
    assert surt(f"http://a.example/b?x=1&{name}={'0af' * 10}12&y=2") == surt("http://a.example/b?x=1&y=2")
    assert surt(f"http://a.example/(S({'0' * 24}))/b.aspx") == surt("http://a.example/b.aspx")


@given(st.text("abzAZ019_~!$&*+,;=:@.-/", max_size=20))
def test_a_plain_path_has_the_same_key_as_its_escaped_form(path: str) -> None:
    escaped = "".join(c if c == "/" else f"%{ord(c):02X}" for c in path)
    assert surt(f"http://example.com/{path}") == surt(f"http://example.com/{escaped}")


@given(st.text(max_size=40), st.text(max_size=40))
def test_every_canonical_url_has_a_key_which_is_ascii(path: str, query: str) -> None:
    url = canonical_url(f"http://www.example.com/{path}?{query}")
    assert url is not None
    assert surt(url).startswith("com,example)/")
    assert surt(url).isascii()
    assert " " not in surt(url)
    assert surt(url) == surt(url.replace("http://www.", "https://"))


def test_many_nested_escapes_take_little_time() -> None:
    assert surt("http://a.example/%" + "25" * 30_000).startswith("example,a)/%25")
