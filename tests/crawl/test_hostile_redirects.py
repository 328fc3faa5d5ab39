"""Redirects of hostile servers: every hop is checked like a link, no state is sent along, and chains are bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hostile_answers as hostile
import pytest
from hostile_answers import answer, redirect

pytestmark = pytest.mark.usefixtures("wire")

CONTACT = {"contact": "test@example.org"}


def test_redirects_to_private_addresses_and_files_are_not_followed(outcomes: Any) -> None:
    rows = outcomes({"private": redirect("http://10.0.0.1/"), "file": redirect("file:///etc/passwd")}, **CONTACT)
    assert (rows["private"]["reason"], rows["private"]["status"]) == ("address_not_public", 302)
    assert (rows["file"]["reason"], rows["file"]["cause"]) == ("bad_redirect", "Location: b'file:///etc/passwd'")


def test_a_loop_and_a_chain_that_is_too_long_end(outcomes: Any, web: Any) -> None:
    for i in range(9):
        web.redirect(f"/chain{i}", f"/chain{i + 1}", host=2)
    web.redirect("/there", "/back")
    web.redirect("/back", "/there")
    rows = outcomes({"loop": redirect("/there"), "chain": redirect("/chain0")})
    assert rows["loop"]["reason"] == "redirect_loop"
    assert (rows["chain"]["reason"], len(rows["chain"]["redirects"])) == ("too_many_redirects", 6)
    assert rows["chain"]["requests"] == 6


def test_a_location_of_any_form_is_resolved_or_rejected(outcomes: Any, web: Any) -> None:
    no_location = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"
    plan = {
        "missing": no_location,
        "empty": redirect(""),
        "two that differ": redirect("/a", "Location: /b"),
        "a megabyte": redirect("/" + "x" * hostile.MiB),
        "relative": redirect("end?of=it"),
        "without scheme": redirect(f"//127.0.0.1:{web.port}/there"),
    }
    web.page("/end?of=it", host=5)
    web.page("/there")
    reasons = {name: row["reason"] for name, row in outcomes(plan).items()}
    bad = dict.fromkeys(("missing", "empty", "two that differ"), "bad_redirect")
    assert reasons == bad | {"a megabyte": "bad_response", "relative": None, "without scheme": None}


def test_a_redirect_to_an_excluded_site_is_refused(
    outcomes: Any, names: dict[str, list[str]], web: Any, tmp_path: Path
) -> None:
    blocklist = tmp_path / "blocked.txt"
    blocklist.write_text("blocked.example\n")
    names |= {"www.blocked.example": ["127.0.0.7"], "closed.example": ["127.0.0.8"]}
    web.page("/robots.txt", "User-agent: *\nDisallow: /", host=8)
    targets = {
        "Wikipedia": "https://de.m.wikipedia.org/wiki/A",
        "Reddit": "https://old.reddit.com/r/a",
        "blocklist": f"http://www.blocked.example:{web.port}/",
    }
    plan: dict[str, Any] = {name: redirect(to) for name, to in targets.items()}
    targets["the link itself"] = plan["the link itself"] = f"http://www.blocked.example:{web.port}/a"
    plan["robots"] = redirect(f"http://closed.example:{web.port}/page")
    rows = outcomes(plan, domain_blocklist=(str(blocklist),), **CONTACT)
    assert {name: (rows[name]["reason"], rows[name]["cause"]) for name in targets} == {
        name: ("excluded_domain", to) for name, to in targets.items()
    }
    assert rows["robots"]["reason"] == "robots_disallowed"
    assert web.paths(7, robots=True) == []
    assert web.paths(8) == []


def test_cookies_and_passwords_are_not_sent_on_with_a_redirect(outcomes: Any, web: Any) -> None:
    end = web.page("/end", host=4).replace("http://", "http://user:secret@")
    rows = outcomes({"start": redirect(end, "Set-Cookie: session=1", "WWW-Authenticate: Basic realm=x")})
    assert (rows["start"]["reason"], rows["start"]["final_url"]) == (None, web.url("/end", 4))
    assert not {"cookie", "authorization", "referer"} & {name for request in web.requests for name in request.headers}


def test_a_refresh_inside_a_page_is_not_followed(outcomes: Any, web: Any) -> None:
    body = f'<html><meta http-equiv="refresh" content="0;url={web.url("/target", 3)}">'.encode()
    rows = outcomes({"meta": answer(body), "header": answer(b"<html>", f"Refresh: 0;url={web.url('/target', 3)}")})
    assert {row["reason"] for row in rows.values()} == {None}
    assert web.paths(3) == []


def test_a_hostile_robots_file_forbids_everything_or_is_cut(outcomes: Any, web: Any) -> None:
    async def huge(writer: Any) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500000000\r\n\r\nUser-agent: *\nDisallow: /link2\n")
        while True:
            writer.write(b"# filler\n" * 1000)
            await writer.drain()

    web.redirect("/robots.txt", "http://10.0.0.1/robots.txt", host=1)
    web.plant("/robots.txt", hostile.body_drip, host=2)
    web.plant("/robots.txt", huge, host=3)
    plan = {"redirects to a private address": answer(), "": web.page("/", host=4), "is huge": answer()}
    rows = outcomes(plan, **CONTACT)
    assert [row["reason"] for row in rows.values()] == ["robots_unreachable", None, "robots_disallowed"]
    drips = outcomes({"drips": web.page("/", host=2)}, out="drips", total_seconds=1.0, **CONTACT)
    assert drips["drips"]["reason"] == "robots_unreachable"
    assert web.paths(1) == web.paths(2) == web.paths(3) == []
