"""Redirects: followed by our own rules, never to a forbidden address, and never twice to the same page."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from webtext.base.web.urls import canonical_url
from webtext.crawl.fetch.client.headers import redirect_target


def test_a_redirect_is_followed_and_the_page_is_stored_under_its_own_url(crawl: Any, bodies: Any, web: Any) -> None:
    start = web.redirect("/start", "middle?x#part")
    web.redirect("/middle?x", f"//127.0.0.2:{web.port}/end")
    end = web.page("/end", "<html>end", host=2)
    row = crawl([start])[start]
    assert (row["outcome"], row["final_url"], row["status"]) == ("fetched", end, 200)
    assert row["redirects"] == [start, web.url("/middle?x")]
    assert bodies() == {end: b"<html>end"}


def test_a_chain_longer_than_max_redirects_fails(crawl: Any, web: Any) -> None:
    for i in range(10):
        web.redirect(f"/{i}", f"/{i + 1}")
    web.page("/5")
    web.redirect("/a0", "/a1")
    for i in range(1, 9):
        web.redirect(f"/a{i}", f"/a{i + 1}")
    rows = crawl([web.url("/0"), web.url("/a0")])
    assert rows[web.url("/0")]["reason"] is None, "five redirects are allowed"
    assert rows[web.url("/a0")]["reason"] == "too_many_redirects"


def test_a_redirect_to_another_link_is_left_to_that_link(crawl: Any, web: Any) -> None:
    one = web.redirect("/one", "/two")
    two = web.page("/two", "<html>two")
    rows = crawl([one, two])
    assert (rows[one]["outcome"], rows[one]["reason"], rows[one]["final_url"]) == ("linked", "redirects_to_link", two)
    assert rows[two]["outcome"] == "fetched"
    assert sorted(web.paths()) == ["/one", "/two"], "fetched twice"


def test_a_redirect_to_a_link_with_tracking_parameters_is_left_to_that_link(crawl: Any, web: Any) -> None:
    """Links are stored without them, and URL shorteners often add them."""
    one = web.redirect("/one", "/two?utm_source=shortener")
    two = web.page("/two", "<html>two")
    rows = crawl([one, two])
    assert (rows[one]["reason"], rows[one]["final_url"]) == ("redirects_to_link", two)
    assert sorted(web.paths()) == ["/one", "/two"]


def test_a_link_that_redirects_to_its_own_tracked_url_is_followed(crawl: Any, web: Any) -> None:
    link = web.redirect("/page", "/page?utm_source=self")
    page = web.page("/page?utm_source=self", "<html>page")
    row = crawl([link])[link]
    assert (row["outcome"], row["final_url"]) == ("fetched", page)
    assert web.paths() == ["/page", "/page?utm_source=self"], "the target is asked for as the site names it"


def test_two_links_that_lead_to_one_page_share_it(crawl: Any, bodies: Any, web: Any) -> None:
    links = [web.redirect("/one", "/page"), web.redirect("/two", "/page", host=1)]
    page = web.page("/page")
    far = web.redirect("/far", page, host=2)
    rows = crawl([*links, far])
    assert sorted(row["outcome"] for row in rows.values()) == ["fetched", "linked", "linked"]
    assert {row["final_url"] for row in rows.values()} == {page}
    assert list(bodies()) == [page]
    late = web.redirect("/late", page)
    rows = crawl([*links, far, late])
    assert rows[late]["outcome"] == "linked", "forgotten in a later run"


@given(st.binary(max_size=60))
def test_any_location_gives_a_canonical_http_url_or_none(location: bytes) -> None:
    target = redirect_target("http://a.example/b", [(b"LOCATION", location)])
    assert target is None or (target.startswith(("http://", "https://")) and canonical_url(target) == target)
