"""Redirects and revisits in archives: the target or the original is looked up in the same archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from local_common_crawl import LocalCommonCrawl, seconds

from webtext.base.storage import Folder
from webtext.base.warc.reader import read_responses
from webtext.crawl.archives import common_crawl

JUDGED = ("outcome", "reason", "final_url", "redirects", "status", "opt_outs")  # the columns with the result of a link


def test_a_captured_redirect_is_followed_inside_the_index(crawl_archive: LocalCommonCrawl, tmp_path: Path) -> None:
    web = crawl_archive.web
    link, hop, end = web.url("/old"), web.url("/hop", host=2), web.url("/end", host=2)
    crawl_archive.redirect(link, hop)
    crawl_archive.redirect(hop, "end", "2017-12-02")
    crawl_archive.page(end, "2017-12-03", b"<html>there</html>")
    [row] = crawl_archive.crawl([link]).values()
    assert (row["outcome"], row["final_url"], row["redirects"]) == ("fetched", end, [link, hop])
    assert (row["captured"], row["requests"], row["source"]) == (seconds("2017-12-03"), 3, "common-crawl")
    [page] = read_responses(Folder(tmp_path / "pages"), row["warc_file"])
    assert (page.url, page.raw) == (end, b"<html>there</html>")


def test_archived_redirects_give_the_same_rows_as_live_ones(
    crawl: Any, crawl_archive: LocalCommonCrawl, make_links: Any
) -> None:
    """The same pages, live and archived: every kind of redirect has the same result."""
    web = crawl_archive.web
    web.page("/robots.txt", "User-agent: *\nDisallow: /closed", "Content-Type: text/plain", host=3)
    pages = {path: host for host, path in ((1, "/page"), (2, "/other"), (2, "/third"), (3, "/closed"))}
    redirects = {
        "/relative": "page#part",
        "/to-tracked-link": "/page?utm_source=feed",
        "/to-page": web.url("/other", 2),
        "/to-closed": web.url("/closed", 3),
        "/to-private": "http://10.0.0.1/",
        "/to-metadata": "http://[::ffff:169.254.169.254]/",
        "/to-wikipedia": "https://de.wikipedia.org/wiki/A",
        "/to-file": "file:///etc/passwd",
        "/to-nowhere": "",
        "/loop": "/loop",
        "/ping": "/pong",
        "/pong": "/ping",
        **{f"/{i}": f"/{i + 1}" for i in range(8)},
        "/twice-a": web.url("/third", 2),
        "/twice-b": web.url("/third", 2),
    }
    hops = ["/pong", *(f"/{i}" for i in range(1, 8))]  # not links themselves
    for path, host in pages.items():
        crawl_archive.page(web.page(path, f"<html>{path}", host=host))
    for path, target in redirects.items():
        location = [f"Location: {target}"] if target else []
        crawl_archive.redirect(web.page(path, b"", *location, status="302 Found"), target)
    for target in ("http://10.0.0.1/", "http://[::ffff:a9fe:a9fe]/"):
        crawl_archive.page(target)
    crawl_archive.write_index()
    links = make_links([web.url("/page"), *(web.url(path) for path in redirects if path not in hops)])
    contact = "https://example.org/"
    living = crawl(links, "living", contact=contact)
    archived = crawl_archive.crawl(links, "archived", contact=contact)
    twice = [web.url("/twice-a"), web.url("/twice-b")]  # of two links to one page, the first one to reach it has it
    for url in living.keys() - set(twice):
        was, now = ({name: rows[url][name] for name in JUDGED} for rows in (living, archived))
        assert now == was, url
    assert sorted(archived[url]["outcome"] for url in twice) == ["fetched", "linked"]
    assert {archived[url]["final_url"] for url in twice} == {web.url("/third", 2)}
    reasons = {row["reason"] for row in archived.values()}
    failed = {"bad_redirect", "redirect_loop", "too_many_redirects"}
    assert reasons == failed | {None, "redirects_to_link", "robots_disallowed", "address_not_public", "excluded_domain"}


def test_a_redirect_out_of_the_index_is_left_to_the_next_source(crawl_archive: LocalCommonCrawl) -> None:
    web = crawl_archive.web
    link = web.redirect("/a", web.page("/b"))
    crawl_archive.redirect(link, "/gone-from-the-index")
    [row] = crawl_archive.crawl([link], "alone").values()
    assert (row["reason"], row["redirects"], row["requests"]) == ("not_archived", [link], 1)
    assert row["cause"] == f"redirects to {web.url('/gone-from-the-index')}"
    settings = {"sources": ("common-crawl", "web")}
    [row] = crawl_archive.crawl([link], "both", **settings).values()
    assert (row["outcome"], row["source"], row["requests"]) == ("fetched", "web", 3)
    assert row["cause"].startswith("common-crawl: not_archived")


def test_a_page_with_the_same_key_is_preferred_to_a_redirect(crawl_archive: LocalCommonCrawl) -> None:
    link, slash = crawl_archive.web.url("/a"), crawl_archive.web.url("/a/")
    crawl_archive.redirect(link, slash, "1970-01-01")
    crawl_archive.page(slash)
    [row] = crawl_archive.crawl([link]).values()
    assert (row["outcome"], row["final_url"], row["requests"]) == ("fetched", slash, 1)


def test_a_redirect_to_another_spelling_of_itself_ends(crawl_archive: LocalCommonCrawl) -> None:
    """Both spellings have the same key, and the index has only the redirect under it."""
    link, slash = crawl_archive.web.url("/a"), crawl_archive.web.url("/a/")
    crawl_archive.redirect(link, slash)
    [row] = crawl_archive.crawl([link]).values()
    assert (row["reason"], row["redirects"], row["requests"]) == ("not_archived", [link], 1)


def test_a_redirect_that_contradicts_its_index_is_not_followed(crawl_archive: LocalCommonCrawl) -> None:
    link, end = crawl_archive.web.url("/a"), crawl_archive.web.url("/end")
    crawl_archive.redirect(link, end, content_digest="A" * 32)
    crawl_archive.page(end)
    [row] = crawl_archive.crawl([link]).values()
    assert (row["reason"], row["redirects"]) == ("archive_damaged", [])


def test_hops_are_fetched_together_and_each_pass_reads_the_index_once(
    crawl_archive: LocalCommonCrawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = [crawl_archive.web.url(f"/{i}") for i in range(20)]
    for i, url in enumerate(links):
        crawl_archive.redirect(url, f"/end/{i}")
    for i in range(20):
        crawl_archive.page(crawl_archive.web.url(f"/end/{i}"))
    passes = []
    choose = common_crawl.LinkJoin.choose
    monkeypatch.setattr(
        common_crawl.LinkJoin, "choose", lambda join, *rest: (passes.append(join.n_wanted), choose(join, *rest))
    )
    rows = crawl_archive.crawl(links)
    assert {row["outcome"] for row in rows.values()} == {"fetched"}
    assert passes == [20, 20]
    assert len(crawl_archive.ranges) == 2


BODY = b"<html>the same words</html>"


@pytest.mark.parametrize("is_link", [False, True])
def test_a_revisit_has_the_body_of_its_original(is_link: bool, crawl_archive: LocalCommonCrawl, tmp_path: Path) -> None:
    """The original may be another link's page or no link's."""
    link, other = crawl_archive.web.url("/a"), crawl_archive.web.url("/other")
    crawl_archive.page(other, "2010-01-01", BODY)
    crawl_archive.page(other, "2011-01-01", b"<html>other words</html>")
    crawl_archive.revisit(link, other, BODY, "2017-12-01", "2010-01-01")
    rows = crawl_archive.crawl([link, *([other] if is_link else [])])
    assert {row["outcome"] for row in rows.values()} == {"fetched"}
    row = rows[link]
    assert (row["final_url"], row["captured"], row["redirects"]) == (link, seconds("2017-12-01"), [])
    pages = {page.url: page for page in read_responses(Folder(tmp_path / "pages"), row["warc_file"])}
    assert pages[link].raw == BODY
    assert (pages[link].http_headers.get("X-Seen"), pages[link].date) == ("again", "2017-12-01T00:00:00Z")


def test_a_page_is_preferred_to_a_revisit(crawl_archive: LocalCommonCrawl) -> None:
    link = crawl_archive.web.url("/a")
    crawl_archive.page(link, "2010-01-01", BODY)
    crawl_archive.revisit(link, link, BODY, "1990-01-01", "2010-01-01")
    [row] = crawl_archive.crawl([link]).values()
    assert (row["captured"], row["requests"]) == (seconds("2010-01-01"), 1)


@pytest.mark.parametrize(
    "doubt",
    [
        {"WARC_Payload_Digest": "sha1:" + "A" * 32},
        {"WARC_Payload_Digest": ""},
        {"WARC_Profile": "http://netpreserve.org/warc/1.0/revisit/server-not-modified"},
        {"WARC_Refers_To_Date": "2010-01-02T00:00:00Z"},
        {"WARC_Refers_To_Date": ""},
        {"WARC_Refers_To_Target_URI": ""},
        {"WARC_Refers_To_Target_URI": "http://other.example/"},
    ],
    ids=lambda doubt: f"{next(iter(doubt))}={next(iter(doubt.values()))[-12:]}",
)
def test_an_ambiguous_revisit_is_not_a_page(doubt: dict[str, str], crawl_archive: LocalCommonCrawl) -> None:
    link, other = crawl_archive.web.url("/a"), crawl_archive.web.url("/other")
    crawl_archive.page(other, "2010-01-01", BODY)
    crawl_archive.revisit(link, other, BODY, "2017-12-01", "2010-01-01", **doubt)
    [row] = crawl_archive.crawl([link]).values()
    assert row["reason"] in ("not_archived", "archive_damaged")
    assert row["requests"] == 1, "nothing is fetched on a guess"
