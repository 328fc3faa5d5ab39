"""The result of each link: good pages, hostile servers, TLS, the contact."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import hostile_answers as hostile
import pytest
from click.testing import CliRunner
from hostile_answers import HEAD, NO_ROBOTS
from local_web import SITE_FILES

from webtext.app.main import run as webtext
from webtext.base.errors import ConfigError
from webtext.base.parts.partset import PartSet
from webtext.base.run import Parts, Run
from webtext.base.storage import Folder
from webtext.base.warc.reader import read_responses
from webtext.crawl import command
from webtext.crawl.command import group
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.pages.reasons import REASONS


def test_a_page_is_stored_and_its_row_says_where(crawl: Any, bodies: Any, web: Any, tmp_path: Path) -> None:
    url = web.page("/a?b=c", "<html>words</html>")
    before, begun = int(time.time()), time.monotonic()
    row = crawl([url])[url]
    after, seconds = time.time(), time.monotonic() - begun
    assert (row["outcome"], row["reason"], row["status"], row["final_url"]) == ("fetched", None, 200, url)
    assert (row["redirects"], row["source"], row["karma"], row["voted"]) == ([], "web", 5, 1)
    assert before <= row["captured"] <= after
    assert 0 <= row["milliseconds"] <= 1000 * seconds + 1
    member = (tmp_path / "pages" / row["warc_file"]).read_bytes()[row["warc_offset"] :][: row["warc_length"]]
    assert b"<html>words</html>" in gzip.decompress(member)
    assert bodies() == {url: b"<html>words</html>"}


def plant_good_pages(web: Any) -> dict[str, bytes]:
    page = b"<html>" + b"good " * 1000 + b"</html>"
    packed = gzip.compress(page)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(page[i : i + 999]), page[i : i + 999]) for i in range(0, len(page), 999))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
    good = {
        web.page("/gzip", packed, "Content-Encoding: gzip"): page,
        web.plant("/chunked", head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"): page,
        web.page("/text", "just text", "Content-Type: text/plain"): b"just text",
        web.page("/markdown", "# text", "Content-Type: text/markdown"): b"# text",
        web.page("/xhtml", page, "Content-Type: application/xhtml+xml"): page,
        web.plant("/untyped", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"): b"<html>",
        web.page("/empty", b""): b"",
        web.page("/203", page, status="203 Non-Authoritative Information"): page,
        web.page("/caf%C3%A9?q=%20x", page): page,
        web.page("/cookies", page, *(f"Set-Cookie: c{i}=1" for i in range(100))): page,
        web.page("/deflate-bomb", gzip.compress(bytes(20_000_000)), "Content-Encoding: gzip"): bytes(20_000_000),
    }

    async def until_close(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + page)

    return good | {web.plant("/http-1.0", until_close): page}


def test_pages_in_every_coding_come_back_as_they_were(crawl: Any, bodies: Any, web: Any, tmp_path: Path) -> None:
    good = plant_good_pages(web)
    rows = crawl(list(good))
    assert {url: row["reason"] for url, row in rows.items()} == dict.fromkeys(good)
    assert bodies() == good
    assert sum(path.stat().st_size for path in (tmp_path / "pages").glob("*.warc.gz")) < 200_000, "a bomb went off"
    read = list(read_responses(Folder(tmp_path / "pages"), "part-00000.warc.gz"))
    assert {response.url: response.body(30_000_000) for response in read} == good
    places = {(row["final_url"], row["warc_offset"], row["warc_length"]) for row in rows.values()}
    assert {(response.url, response.offset, response.length) for response in read} == places
    asked = [request.headers for request in web.requests if request.path not in SITE_FILES]
    assert {headers["accept-encoding"] for headers in asked} == {"gzip"}
    assert not any("cookie" in headers for headers in asked)


def plant_bad_pages(web: Any) -> dict[str, str]:
    """URL -> reason; tests/crawl/test_hostile_*.py have more."""
    return {
        web.page("/large", b"x" * 100_001): "too_large",
        web.page("/404", "gone", status="404 Not Found"): "http_404",
        web.page("/500", "oops", status="500 Internal Server Error"): "http_500",
        web.page("/pdf", "%PDF-1.7", "Content-Type: application/pdf"): "not_text",
        web.page("/image-as-html", gzip.compress(b"\x89PNG\r\n\x1a\n"), "Content-Encoding: gzip"): "not_text",
        web.page("/json", "{}", "Content-Type: application/json"): "not_text",
        web.plant("/coded", HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"): "bad_response",
        web.plant("/cut-short", hostile.short_body, host=8): "connection_failed",
        web.page("/noai", "x", "X-Robots-Tag: noai"): "noai_header",
        web.page("/tdm", "x", "TDM-Reservation: 1"): "tdm_reserved",
        web.redirect("/to-script", "javascript:alert(1)"): "bad_redirect",
        web.redirect("/loop", "/loop?again"): "redirect_loop",
        "http://no-such-name.invalid/": "dns_failed",
        "http://127.0.0.8:9/": "address_not_public",
    }


def test_every_bad_page_is_a_counted_reason(crawl: Any, web: Any, tmp_path: Path) -> None:
    bad = plant_bad_pages(web)
    web.redirect("/loop?again", "/loop?more")
    web.redirect("/loop?more", "/loop?again")
    rows = crawl(list(bad), contact="test@example.org")
    assert {url: row["reason"] for url, row in rows.items()} == bad
    assert {row["outcome"] for row in rows.values()} == {"failed", "refused"}
    assert all(row["warc_file"] is None for row in rows.values())
    counts = PartSet.open(str(tmp_path / "pages"), "pages").counts
    assert counts.records_in == len(bad)
    assert counts.failed["http_404"] == counts.dropped["tdm_reserved"] == 1
    assert {*counts.failed, *counts.dropped} <= {*REASONS, "http_404", "http_500"}


def test_a_port_where_nobody_listens_is_a_failed_connection(crawl: Any) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound but not listening, so that no other process can listen there
        url = f"http://127.0.0.1:{held.getsockname()[1]}/"
        [row] = crawl([url], allow_address=("127.0.0.1",), **NO_ROBOTS).values()
        assert row["reason"] == "connection_failed"
        [row] = crawl([url], "pages2", allow_address=("127.0.0.1",)).values()
        assert (row["outcome"], row["reason"]) == ("refused", "robots_unreachable")


def test_a_link_to_an_ipv6_address_is_fetched(crawl: Any) -> None:
    answer = HEAD + b"Content-Length: 6\r\nConnection: close\r\n\r\n<html>"

    def serve() -> None:
        for _ in range(3):  # robots.txt, tdmrep.json, page
            connection, _ = listener.accept()
            with connection:
                connection.recv(2000)
                connection.sendall(answer)

    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("needs IPv6 on loopback")
    with listener:
        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        [row] = crawl([f"http://[::1]:{port}/"], "a", allow_address=("::1",)).values()
        assert row["outcome"] == "fetched"
        [row] = crawl([f"http://[::1]:{port}/"], "b").values()
        assert row["reason"] == "address_not_public"


def test_without_a_contact_nothing_is_sent_when_any_link_leaves_this_machine(
    crawl: Any, web: Any, make_links: Any, tmp_path: Path
) -> None:
    links = make_links([web.page("/a"), "http://example.com/"])
    with pytest.raises(ConfigError, match=r"example\.com.*not on this machine") as raised:
        crawl(links)
    assert raised.value.exit_code == 2
    assert "--contact" in str(raised.value)
    assert web.requests == []
    assert not (tmp_path / "pages").exists()


def test_without_a_contact_a_redirect_off_this_machine_is_refused(crawl: Any, web: Any) -> None:
    [row] = crawl([web.redirect("/a", "http://8.8.8.8/")]).values()
    assert row["reason"] == "contact_missing"


def test_the_contact_is_sent(crawl: Any, web: Any) -> None:
    crawl([web.page("/a")], contact="https://example.org/bot")
    assert web.requests[0].headers["user-agent"] == "webtext/0.1.0 (+https://example.org/bot)"


@pytest.mark.parametrize(
    "contact",
    ["", "a\r\nX: y", "me (home)", "é@example.org", " ", "me", "me@home", "@a.b", "the demo"]
    + ["http://", "ftp://a.example/"],
)
def test_a_contact_that_reaches_nobody_or_is_not_allowed_in_a_header_is_rejected(contact: str) -> None:
    with pytest.raises(ConfigError, match="contact"):
        FetchSettings(contact=contact)


def test_machines_fetch_their_parts_and_together_all_links(web: Any, make_links: Any, tmp_path: Path) -> None:
    urls = [web.page(f"/page{n}", host=host) for host in range(1, 9) for n in range(2)]
    options = [make_links(urls), "--allow-address", f"127.0.0.0/8:{web.port}", "--delay", "0", "--quiet"]
    found = []
    for number in (1, 2, 3):
        out = tmp_path / f"pages-{number}"
        for _ in range(2):  # the second run has nothing to do
            assert webtext(["crawl", "fetch", *options, "--out", str(out), "--parts", f"{number}/3"]) == 0
        pages = PartSet.open(str(out), "pages")
        found.append([row["url"] for part in pages.parts for row in pages.table(part).to_pylist()])
        assert json.loads((out / "run.json").read_text())["links_elsewhere"] == len(urls) - len(found[-1])
    assert sorted(url for each in found for url in each) == sorted(urls)
    hosts = [{url.split("/")[2] for url in each} for each in found]
    assert sum(map(len, hosts)) == 8, "a host is in two parts"
    assert max(map(len, hosts)) < 8
    assert sum(len(web.paths(host=host)) for host in range(1, 9)) == len(urls)


def test_another_part_s_page_is_left_to_it(web: Any, make_links: Any, settings_for: Any, tmp_path: Path) -> None:
    """A redirect to a link on a host of the other part is `redirects_to_link`, and only the other part has its page."""
    pages = {host: web.page("/page", host=host) for host in range(1, 9)}
    redirects = [web.redirect("/moved", pages[host % 8 + 1], host=host) for host in pages]
    links = make_links([*pages.values(), *redirects])
    rows: dict[str, Any] = {}
    for number in (1, 2):
        found = command.crawl(links, str(tmp_path / f"{number}"), settings_for(), Run.quiet(), parts=Parts(number, 2))
        rows |= {row["url"]: row for part in found.parts for row in found.table(part).to_pylist()}
    assert {rows[url]["reason"] for url in redirects} == {"redirects_to_link"}
    assert {rows[url]["reason"] for url in pages.values()} == {None}


def test_the_options_are_listed_in_groups() -> None:
    titles = re.findall(
        r"^(\S.*) \[crawl.fetch\]:$", CliRunner().invoke(group, ["fetch", "--help"]).output, re.MULTILINE
    )
    assert titles == ["Sources", "Politeness", "Limits"]
