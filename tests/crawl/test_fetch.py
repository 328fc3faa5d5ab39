"""A crawl over a small hostile web: every link's fate, what is stored, politeness, resume."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from webtext.base.errors import ConfigError, EnvironmentError_, InputError
from webtext.base.partset import PartSet
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.base.warc import read_responses
from webtext.crawl.fetch import FetchSettings, fetch_pages
from webtext.crawl.hosts import Hosts
from webtext.crawl.link_table import LinkTable
from webtext.crawl.reasons import REASONS
from webtext.crawl.visit import retry_after

LIMITS = {"max_bytes": 100_000, "total_seconds": 1.0, "connect_seconds": 1.0, "delay": 0.0}
MakeLinks = Callable[..., str]


def settings_for(web: Any, **changes: Any) -> FetchSettings:
    return FetchSettings(**{**LIMITS, "allow_address": (f"127.0.0.0/8:{web.port}",), **changes})


def crawl(web: Any, links: str, out: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    """Fetch, and return the rows by URL."""
    pages = fetch_pages(links, str(out), settings_for(web, **changes), Run.quiet())
    assert pages is not None
    return rows_of(pages)


def rows_of(pages: PartSet) -> dict[str, dict[str, Any]]:
    rows = [row for part in pages.parts for row in pages.table(part).to_pylist()]
    assert len({row["link_id"] for row in rows}) == len(rows), "a link has two rows"
    return {row["url"]: row for row in rows}


def bodies(folder: Path) -> dict[str, bytes]:
    """Target URI -> decoded body of every response record, as warcio reads them; no URI may come twice."""
    found: list[tuple[str, bytes]] = []
    for path in sorted(folder.glob("*.warc.gz")):
        with open(path, "rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                if record.rec_type == "response":
                    found.append((record.rec_headers.get_header("WARC-Target-URI"), record.content_stream().read()))
    assert len(dict(found)) == len(found)
    return dict(found)


# Fates ----------------------------------------------------------------------------------------------------------------


def test_a_page_is_stored_and_its_row_says_where(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    url = web.page("/a?b=c", "<html>words</html>")
    row = crawl(web, make_links([url]), tmp_path / "pages")[url]
    assert (row["outcome"], row["reason"], row["status"], row["final_url"]) == ("fetched", None, 200, url)
    assert (row["redirects"], row["fetched"], row["karma"]) == ([], "web", 5)
    assert abs(row["captured"] - time.time()) < 60
    assert 0 <= row["milliseconds"] < 1000
    member = (tmp_path / "pages" / row["warc_file"]).read_bytes()[row["warc_offset"] :][: row["warc_length"]]
    assert b"<html>words</html>" in gzip.decompress(member)
    assert bodies(tmp_path / "pages") == {url: b"<html>words</html>"}


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


def test_pages_in_every_coding_come_back_as_they_were(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    good = plant_good_pages(web)
    rows = crawl(web, make_links(list(good)), tmp_path / "pages")
    assert {url: row["reason"] for url, row in rows.items()} == dict.fromkeys(good)
    assert bodies(tmp_path / "pages") == good
    assert sum(path.stat().st_size for path in (tmp_path / "pages").glob("*.warc.gz")) < 200_000, "a bomb went off"
    read = list(read_responses(Folder(tmp_path / "pages"), "part-00000.warc.gz"))
    assert {response.url: response.body(30_000_000) for response in read} == good
    places = {(row["final_url"], row["warc_offset"], row["warc_length"]) for row in rows.values()}
    assert {(response.url, response.offset, response.length) for response in read} == places
    asked = [request.headers for request in web.requests if request.path != "/robots.txt"]
    assert {headers["accept-encoding"] for headers in asked} == {"gzip"}
    assert not any("cookie" in headers for headers in asked)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def body_drip(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.1)


async def header_drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.1)


async def header_bomb(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    for i in range(100_000):
        writer.write(b"X-%d: y\r\n" % i)
        await writer.drain()


async def silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3)


async def reset(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\nabc")
    await writer.drain()
    writer.transport.abort()


async def cut_short(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\nabc")


def plant_bad_pages(web: Any) -> dict[str, str]:
    """URL -> reason."""
    return {
        web.page("/large", b"x" * 100_001): "too_large",
        web.page("/404", "gone", status="404 Not Found"): "http_404",
        web.page("/500", "oops", status="500 Internal Server Error"): "http_500",
        web.page("/206", "part", status="206 Partial Content"): "http_206",
        web.page("/pdf", "%PDF-1.7", "Content-Type: application/pdf"): "not_text",
        web.page("/pdf-as-html", "%PDF-1.7"): "not_text",
        web.page("/image-as-html", gzip.compress(b"\x89PNG\r\n\x1a\n"), "Content-Encoding: gzip"): "not_text",
        web.page("/json", "{}", "Content-Type: application/json"): "not_text",
        web.plant("/no-http", b"220 smtp ready\r\n\r\n"): "bad_response",
        web.plant("/two-lengths", HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"): "bad_response",
        web.plant("/bad-chunk", HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n"): "bad_response",
        web.plant("/long-line", HEAD + b"X: " + b"y" * 100_000 + b"\r\n\r\n"): "bad_response",
        web.plant("/coded", HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"): "bad_response",
        web.plant("/endless", endless, host=2): "too_large",
        web.plant("/body-drip", body_drip, host=3): "timed_out",
        web.plant("/header-drip", header_drip, host=4): "timed_out",
        web.plant("/silence", silence, host=5): "timed_out",
        web.plant("/header-bomb", header_bomb, host=6): "bad_response",
        web.plant("/reset", reset, host=7): "connection_failed",
        web.plant("/cut-short", cut_short, host=8): "connection_failed",
        web.page("/noai", "x", "X-Robots-Tag: noai"): "noai_header",
        web.page("/noindex", "x", "X-Robots-Tag: noindex, nofollow"): "noindex_header",
        web.page("/tdm", "x", "TDM-Reservation: 1"): "tdm_reserved",
        web.page("/signal", "x", "Content-Signal: ai-train=no"): "content_signal_no_training",
        web.page("/no-location", b"", status="301 Moved Permanently"): "bad_redirect",
        web.page("/two-locations", b"", "Location: /a", "Location: /b", status="302 Found"): "bad_redirect",
        web.redirect("/to-file", "file:///etc/passwd"): "bad_redirect",
        web.redirect("/to-script", "javascript:alert(1)"): "bad_redirect",
        web.redirect("/loop", "/loop?again"): "redirect_loop",
        "http://no-such-name.invalid/": "dns_failed",
        f"http://127.0.0.8:{free_port()}/": "address_not_public",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_every_bad_page_is_a_counted_reason(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    bad = plant_bad_pages(web)
    web.redirect("/loop?again", "/loop?more")
    web.redirect("/loop?more", "/loop?again")
    start = time.monotonic()
    links = make_links(list(bad))
    rows = crawl(web, links, tmp_path / "pages", contact="test@example.org")
    assert {url: row["reason"] for url, row in rows.items()} == bad
    assert time.monotonic() - start < 10
    assert {row["outcome"] for row in rows.values()} == {"failed", "refused"}
    assert all(row["warc_file"] is None for row in rows.values())
    counts = PartSet.open(str(tmp_path / "pages"), "pages").counts
    assert counts.records_in == len(bad)
    assert counts.failed["http_404"] == counts.dropped["tdm_reserved"] == 1
    assert {*counts.failed, *counts.dropped} <= {*REASONS, "http_404", "http_500", "http_206"}


def test_a_port_where_nobody_listens_is_a_failed_connection(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    [row] = crawl(web, make_links([url]), tmp_path / "pages", allow_address=("127.0.0.1",), **NO_ROBOTS).values()
    assert row["reason"] == "connection_failed"
    [row] = crawl(web, make_links([url]), tmp_path / "pages2", allow_address=("127.0.0.1",)).values()
    assert (row["outcome"], row["reason"]) == ("refused", "robots_unreachable")


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[tuple[int, Path, list[bytes]]]:
    """A TLS server on 127.0.0.1 that answers with a page: its port, its own certificate, what it was sent."""
    certificate = tmp_path / "server.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
    try:
        made = subprocess.run([*command.split(), "-keyout", "-", "-out", "-"], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("needs the openssl command")
    certificate.write_bytes(made.stdout)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    received: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
                with context.wrap_socket(connection, server_side=True) as secured:
                    received.append(secured.recv(2000))
                    secured.sendall(HEAD + b"Content-Length: 6\r\n\r\n<html>")
            except ssl.SSLError:
                continue
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], certificate, received


NO_ROBOTS = {"obey_robots": False, "obey_ai_robots": False, "obey_content_signal": False}


def test_a_page_over_tls_is_fetched_only_when_its_certificate_is_vouched_for(
    web: Any,
    make_links: MakeLinks,
    tmp_path: Path,
    tls_server: tuple[int, Path, list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port, certificate, received = tls_server
    url, allow = f"https://127.0.0.1:{port}/page", ("127.0.0.1",)
    [row] = crawl(web, make_links([url]), tmp_path / "refused", allow_address=allow, **NO_ROBOTS).values()
    assert row["reason"] == "tls_failed"
    assert b"".join(received) == b"", "a request was sent over an unverified connection"
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    [row] = crawl(web, make_links([url]), tmp_path / "pages", allow_address=allow, **NO_ROBOTS).values()
    assert row["outcome"] == "fetched"
    assert bodies(tmp_path / "pages") == {url: b"<html>"}


def test_a_link_to_an_ipv6_address_is_fetched(make_links: MakeLinks, web: Any, tmp_path: Path) -> None:
    answer = HEAD + b"Content-Length: 6\r\nConnection: close\r\n\r\n<html>"

    def serve() -> None:
        for _ in range(2):  # robots.txt, page
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
        [row] = crawl(web, make_links([f"http://[::1]:{port}/"]), tmp_path / "a", allow_address=("::1",)).values()
        assert row["outcome"] == "fetched"
        [row] = crawl(web, make_links([f"http://[::1]:{port}/"]), tmp_path / "b").values()
        assert row["reason"] == "address_not_public"


# Redirects ------------------------------------------------------------------------------------------------------------


def test_a_redirect_is_followed_and_the_page_is_stored_under_its_own_url(
    web: Any, make_links: MakeLinks, tmp_path: Path
) -> None:
    start = web.redirect("/start", "middle?x#part")
    web.redirect("/middle?x", f"//127.0.0.2:{web.port}/end")
    end = web.page("/end", "<html>end", host=2)
    row = crawl(web, make_links([start]), tmp_path / "pages")[start]
    assert (row["outcome"], row["final_url"], row["status"]) == ("fetched", end, 200)
    assert row["redirects"] == [start, web.url("/middle?x")]
    assert bodies(tmp_path / "pages") == {end: b"<html>end"}


def test_a_chain_longer_than_allowed_ends(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    for i in range(10):
        web.redirect(f"/{i}", f"/{i + 1}")
    web.page("/5")
    web.redirect("/a0", "/a1")
    for i in range(1, 9):
        web.redirect(f"/a{i}", f"/a{i + 1}")
    rows = crawl(web, make_links([web.url("/0"), web.url("/a0")]), tmp_path / "pages")
    assert rows[web.url("/0")]["reason"] is None, "five redirects are allowed"
    assert rows[web.url("/a0")]["reason"] == "too_many_redirects"


def test_a_redirect_to_another_link_is_left_to_that_link(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    one = web.redirect("/one", "/two")
    two = web.page("/two", "<html>two")
    rows = crawl(web, make_links([one, two]), tmp_path / "pages")
    assert (rows[one]["outcome"], rows[one]["reason"], rows[one]["final_url"]) == ("linked", "redirects_to_link", two)
    assert rows[two]["outcome"] == "fetched"
    assert sorted(web.paths()) == ["/one", "/two"], "fetched twice"


def test_two_links_that_lead_to_one_page_share_it(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    links = [web.redirect("/one", "/page"), web.redirect("/two", "/page", host=1)]
    page = web.page("/page")
    far = web.redirect("/far", page, host=2)
    rows = crawl(web, make_links([*links, far]), tmp_path / "pages")
    assert sorted(row["outcome"] for row in rows.values()) == ["fetched", "linked", "linked"]
    assert {row["final_url"] for row in rows.values()} == {page}
    assert list(bodies(tmp_path / "pages")) == [page]
    late = web.redirect("/late", page)
    rows = crawl(web, make_links([*links, far, late]), tmp_path / "pages")
    assert rows[late]["outcome"] == "linked", "forgotten in a later run"


def silent_listener() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.2)
    return listener


def assert_untouched(listener: socket.socket) -> None:
    with pytest.raises(TimeoutError):
        listener.accept()


def test_a_redirect_to_a_private_address_is_never_connected_to(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    with silent_listener() as listener:
        port = listener.getsockname()[1]
        spellings = ["127.0.0.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.1", "localhost", "[::ffff:127.0.0.1]",
                     "①②⑦.⓪.⓪.①", "LOCALHOST.", "user:pw@127.0.0.1"]  # fmt: skip
        targets = [f"http://{spelling}:{port}/secret" for spelling in spellings]
        targets += ["http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://[64:ff9b::a00:1]/"]
        links = [web.redirect(f"/{i}", target) for i, target in enumerate(targets)]
        rows = crawl(web, make_links(links), tmp_path / "pages", contact="test@example.org")
        rows.pop(links[spellings.index("LOCALHOST.")])  # some systems know no such name
        assert {row["reason"] for row in rows.values()} == {"address_not_public"}
        assert_untouched(listener)


def test_a_robots_file_that_redirects_to_a_private_address_is_not_followed(
    web: Any, make_links: MakeLinks, tmp_path: Path
) -> None:
    with silent_listener() as listener:
        web.redirect("/robots.txt", f"http://127.0.0.1:{listener.getsockname()[1]}/robots.txt")
        [row] = crawl(web, make_links([web.page("/a")]), tmp_path / "pages").values()
        assert row["reason"] == "robots_unreachable"
        assert_untouched(listener)


def test_a_proxy_variable_switches_nothing_off(
    web: Any, make_links: MakeLinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silent_listener() as listener:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
        page = web.page("/a")
        rows = crawl(web, make_links([page, "http://10.0.0.1/"]), tmp_path / "pages", contact="test@example.org")
        assert rows[page]["outcome"] == "fetched"
        assert rows["http://10.0.0.1/"]["reason"] == "address_not_public"
        assert_untouched(listener)


# Wishes of the site ---------------------------------------------------------------------------------------------------


def test_robots_txt_is_asked_first_and_obeyed(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    web.page("/robots.txt", "User-agent: *\nDisallow: /private\n\nUser-agent: CCBot\nDisallow: /no-training\n",
             "Content-Type: text/plain")  # fmt: skip
    urls = [web.page(path) for path in ("/public", "/private/a", "/no-training?x")]
    rows = crawl(web, make_links(urls), tmp_path / "pages")
    assert [rows[url]["reason"] for url in urls] == [None, "robots_disallowed", "robots_disallowed_ai_training"]
    assert web.paths(robots=True) == ["/robots.txt", "/public"], "robots.txt is asked once, a forbidden page never"
    assert {request.headers["user-agent"] for request in web.requests} == {"webtext/0.1.0"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("404 Not Found", None),
        ("403 Forbidden", None),
        ("500 Error", "robots_unreachable"),
        ("429 Slow", "robots_unreachable"),
    ],
)
def test_robots_txt_that_is_absent_allows_and_that_fails_forbids(
    web: Any, make_links: MakeLinks, tmp_path: Path, status: str, reason: str | None
) -> None:
    web.page("/robots.txt", "User-agent: *\nDisallow: /", status=status)
    [row] = crawl(web, make_links([web.page("/a")]), tmp_path / "pages").values()
    assert row["reason"] == reason


def test_robots_txt_behind_redirects_endless_or_packed_is_still_read(
    web: Any, make_links: MakeLinks, tmp_path: Path
) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nUser-agent: *\nDisallow: /forbidden\n")
        while True:
            writer.write(b"# filler\n" * 1000)
            await writer.drain()

    web.redirect("/robots.txt", web.plant("/real-robots", endless, host=2))
    packed = gzip.compress(b"User-agent: *\nDisallow: /forbidden\n" + b"#" * 10_000_000)
    web.page("/robots.txt", packed, "Content-Encoding: gzip", host=3)
    urls = [web.page(path, host=host) for host in (1, 3) for path in ("/forbidden", "/open")]
    rows = crawl(web, make_links(urls), tmp_path / "pages", total_seconds=5.0)
    assert [rows[url]["reason"] for url in urls] == ["robots_disallowed", None, "robots_disallowed", None]


def test_the_robots_file_of_a_redirects_host_holds_too(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    web.page("/robots.txt", "User-agent: *\nDisallow: /", host=2)
    link = web.redirect("/a", web.page("/b", host=2))
    [row] = crawl(web, make_links([link]), tmp_path / "pages").values()
    assert row["reason"] == "robots_disallowed"
    assert web.paths(host=2) == []


def test_switched_off_opt_outs_are_not_obeyed(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    web.page("/robots.txt", "User-agent: *\nDisallow: /")
    url = web.page("/a", "<html>", "X-Robots-Tag: noai")
    off = {f"obey_{name}": False for name in ("robots", "ai_robots", "content_signal", "noai")}
    [row] = crawl(web, make_links([url]), tmp_path / "pages", **off).values()
    assert row["outcome"] == "fetched"
    assert web.paths(robots=True) == ["/a"]


def times_between_requests(web: Any, host: int) -> list[float]:
    times = [request.time for request in web.requests if request.host == f"127.0.0.{host}"]
    return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]


def test_requests_to_one_host_keep_their_distance_while_hosts_go_side_by_side(
    web: Any, make_links: MakeLinks, tmp_path: Path
) -> None:
    urls = [web.page(f"/{i}", host=host) for host in (1, 2, 3, 4) for i in range(4)]
    start = time.monotonic()
    crawl(web, make_links(urls), tmp_path / "pages", delay=0.15)
    seconds = time.monotonic() - start
    for host in (1, 2, 3, 4):
        assert min(times_between_requests(web, host)) >= 0.149
    assert seconds < 4 * 4 * 0.15, "hosts wait for each other"


def test_two_names_of_one_address_share_its_pause(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    urls = [web.page("/a"), web.page("/b")]
    named = f"http://localhost:{web.port}/c"
    web.page("/c")
    crawl(web, make_links([*urls, named]), tmp_path / "pages", delay=0.1)
    assert len(times_between_requests(web, 1)) == 4  # two robots.txt, three pages
    assert min(times_between_requests(web, 1)) >= 0.099


def test_a_crawl_delay_is_kept_up_to_thirty_seconds(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    web.page("/robots.txt", "User-agent: *\nCrawl-delay: 0.3\n")
    crawl(web, make_links([web.page("/a"), web.page("/b")]), tmp_path / "pages", delay=0.01)
    assert times_between_requests(web, 1)[1] >= 0.299
    hosts = Hosts(1.0)
    hosts.ask_for_delay("slow.example", 86_400.0)
    assert hosts._crawl_delays == {"slow.example": 30.0}


def test_a_host_that_has_enough_is_left_alone(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    busy = web.page("/busy", "later", "Retry-After: 1", status="429 Too Many Requests")
    rows = crawl(web, make_links([busy, web.page("/next")]), tmp_path / "pages")
    assert rows[busy]["reason"] == "http_429"
    assert times_between_requests(web, 1)[1] >= 0.99


@pytest.mark.parametrize("value", ["1000000000000", "-5", "NaN", "soon", "9" * 400])
def test_a_retry_after_of_any_form_never_stops_a_crawl(value: str) -> None:
    hosts = Hosts(1.0)
    hosts.pause("a.example", retry_after(value))
    assert hosts._clocks["a.example"].free_at <= time.monotonic() + 300.0


def test_an_error_of_the_fetcher_itself_costs_one_page(
    web: Any, make_links: MakeLinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(value: str | None) -> str | None:
        if value == "text/plain":
            raise RuntimeError("a bug")
        return "text/html"

    monkeypatch.setattr("webtext.crawl.visit.media_type", broken)
    bad, good = web.page("/bad", "x", "Content-Type: text/plain"), web.page("/good")
    rows = crawl(web, make_links([bad, good]), tmp_path / "pages")
    assert (rows[bad]["reason"], rows[good]["reason"]) == ("fetcher_raised", None)


# Contact --------------------------------------------------------------------------------------------------------------


def test_without_a_contact_nothing_is_sent_when_any_link_leaves_this_machine(
    web: Any, make_links: MakeLinks, tmp_path: Path
) -> None:
    links = make_links([web.page("/a"), "http://example.com/"])
    with pytest.raises(ConfigError, match=r"example\.com.*not on this machine") as raised:
        crawl(web, links, tmp_path / "pages")
    assert raised.value.exit_code == 2
    assert "--contact" in str(raised.value)
    assert web.requests == []
    assert not (tmp_path / "pages").exists()


def test_without_a_contact_a_redirect_off_this_machine_is_refused(
    web: Any, make_links: MakeLinks, tmp_path: Path
) -> None:
    [row] = crawl(web, make_links([web.redirect("/a", "http://8.8.8.8/")]), tmp_path / "pages").values()
    assert row["reason"] == "contact_missing"


def test_the_contact_is_sent(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    crawl(web, make_links([web.page("/a")]), tmp_path / "pages", contact="https://example.org/bot")
    assert web.requests[0].headers["user-agent"] == "webtext/0.1.0 (+https://example.org/bot)"


@pytest.mark.parametrize("contact", ["", "a\r\nX: y", "me (home)", "é@example.org", " "])
def test_a_contact_that_cannot_stand_in_a_header_is_refused(contact: str) -> None:
    with pytest.raises(ConfigError, match="contact"):
        FetchSettings(contact=contact)


# Parts, growth, resume ------------------------------------------------------------------------------------------------


def test_parts_roll_and_running_again_does_nothing(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    links = make_links([web.page(f"/{i}") for i in range(7)])
    rows = crawl(web, links, tmp_path / "pages", part_pages=3)
    pages = PartSet.open(str(tmp_path / "pages"), "pages")
    pages.verify()
    assert [part.records for part in pages.parts] == [3, 3, 1]
    assert [[a.name for a in part.attachments] for part in pages.parts][0] == ["part-00000.cdxj", "part-00000.warc.gz"]
    assert (pages.records, pages.counts.kept) == (7, 7)
    n_requests, manifest = len(web.requests), (tmp_path / "pages/manifest.json").read_bytes()
    assert crawl(web, links, tmp_path / "pages", part_pages=100, delay=9.0) == rows
    assert len(web.requests) == n_requests
    assert (tmp_path / "pages/manifest.json").read_bytes() == manifest


def test_when_the_links_grow_only_the_new_ones_are_fetched(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    old, new = [web.page(f"/{i}") for i in range(3)], [web.page(f"/new{i}") for i in range(2)]
    crawl(web, make_links(old), tmp_path / "pages")
    web.requests.clear()
    rows = crawl(web, make_links(old + new), tmp_path / "pages")
    assert sorted(rows) == sorted(old + new)
    assert sorted(web.paths()) == ["/new0", "/new1"]
    pages = PartSet.open(str(tmp_path / "pages"), "pages")
    assert [part.generation for part in pages.parts] == [1, 2]
    assert pages.manifest["parents"][0]["hash"] == PartSet.open(str(tmp_path / "links"), "links").hash


def test_other_links_in_an_old_folder_are_an_error(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    crawl(web, make_links([web.page("/a"), web.page("/b")]), tmp_path / "pages")
    with pytest.raises(InputError, match=r"1 links that .* does not hold\nchoose another --out"):
        crawl(web, make_links([web.page("/a")]), tmp_path / "pages")


def test_other_settings_in_an_old_folder_are_an_error_that_names_them(
    web: Any, make_links: MakeLinks, tmp_path: Path
) -> None:
    links = make_links([web.page("/a")])
    crawl(web, links, tmp_path / "pages")
    with pytest.raises(
        InputError, match=r"max_bytes was 100000, is 50000\nrestore the setting, or choose another --out"
    ):
        crawl(web, links, tmp_path / "pages", max_bytes=50_000)
    (tmp_path / "pages/manifest.json").unlink()  # as if it were still under way
    with pytest.raises(InputError, match="obey_noai was True, is False"):
        crawl(web, links, tmp_path / "pages", obey_noai=False)


def test_what_is_no_links_set_is_refused(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    crawl(web, make_links([web.page("/a")]), tmp_path / "pages")
    with pytest.raises(InputError, match="holds pages, not links"):
        crawl(web, str(tmp_path / "pages"), tmp_path / "more")
    with pytest.raises(InputError, match="no such folder"):
        crawl(web, str(tmp_path / "nothing"), tmp_path / "more")


def test_no_links_make_an_empty_sealed_set(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    assert crawl(web, make_links([]), tmp_path / "pages") == {}


def test_an_altered_part_is_refused_by_readers_and_fetched_again(
    web: Any, make_links: MakeLinks, tmp_path: Path
) -> None:
    links = make_links([web.page(f"/{i}") for i in range(6)])
    rows = crawl(web, links, tmp_path / "pages", part_pages=2)
    altered = tmp_path / "pages/part-00001.warc.gz"
    data = bytearray(altered.read_bytes())
    data[len(data) // 2] ^= 1
    altered.write_bytes(data)
    with pytest.raises(InputError, match=r"part-00001\.warc\.gz' was altered"):
        PartSet.open(str(tmp_path / "pages"), "pages").verify()
    web.requests.clear()
    again = crawl(web, links, tmp_path / "pages")
    assert len(web.paths()) == 2
    assert sorted(again) == sorted(rows)
    PartSet.open(str(tmp_path / "pages"), "pages").verify()


def test_a_dry_run_sends_and_writes_nothing(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    run = Run.quiet()
    run.dry_run = True
    assert fetch_pages(make_links([web.page("/a")]), str(tmp_path / "pages"), settings_for(web), run) is None
    assert web.requests == []
    assert not (tmp_path / "pages").exists()


def test_a_disk_that_is_full_ends_the_run_with_a_short_error(
    web: Any, make_links: MakeLinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = make_links([web.page(f"/{i}") for i in range(4)])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("webtext.crawl.warc_writer.WarcWriter.write", full)
        with pytest.raises(EnvironmentError_, match="no space left"):
            crawl(web, links, tmp_path / "pages")
    assert not list((tmp_path / "pages").glob("part-*"))
    assert len(crawl(web, links, tmp_path / "pages")) == 4


def test_two_runs_cannot_write_one_folder(web: Any, make_links: MakeLinks, tmp_path: Path) -> None:
    links = make_links([web.page(f"/{i}") for i in range(30)])
    child = start_child(web, links, tmp_path / "pages")
    wait_for_requests(web, 6, child)
    with pytest.raises(InputError, match="another run is writing"):
        fetch_pages(links, str(tmp_path / "pages"), child_settings(web), Run.quiet())
    assert child.wait(30) == 0, "the first run was disturbed"
    assert PartSet.open(str(tmp_path / "pages"), "pages").records == 30


CHILD = """
import sys
from webtext.base.run import Run
from webtext.crawl.fetch import FetchSettings, fetch_pages
links, out, port = sys.argv[1:]
settings = FetchSettings(delay=0.02, part_pages=4, allow_address=(f"127.0.0.0/8:{port}",))
fetch_pages(links, out, settings, Run.quiet())
"""


def child_settings(web: Any) -> FetchSettings:
    return FetchSettings(allow_address=(f"127.0.0.0/8:{web.port}",))


def start_child(web: Any, links: str, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", CHILD, links, str(out), str(web.port)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def wait_for_requests(web: Any, n: int, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while len(web.requests) < n and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)


def test_killed_again_and_again_nothing_is_lost_and_nothing_is_there_twice(
    web: Any, make_links: MakeLinks, tmp_path: Path
) -> None:
    chance = random.Random(7)
    urls = [web.page(f"/{i}", f"<html>{i}", host=host) for host in (1, 2, 3) for i in range(12)]
    urls += [web.redirect(f"/r{i}", f"/target{i % 2}", host=1) for i in range(4)]
    targets = [web.page(f"/target{i}") for i in range(2)]
    links = make_links(urls)
    for _ in range(3):
        child = start_child(web, links, tmp_path / "pages")
        wait_for_requests(web, len(web.requests) + chance.randint(6, 18), child)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    assert start_child(web, links, tmp_path / "pages").wait(30) == 0
    pages = PartSet.open(str(tmp_path / "pages"), "pages")
    pages.verify()
    rows = rows_of(pages)
    assert sorted(rows) == sorted(urls)
    assert sorted(bodies(tmp_path / "pages")) == sorted(urls[:36] + targets)
    assert not list((tmp_path / "pages").glob(".*")), "scratch of a killed run is left"


def test_interrupted_it_publishes_what_is_complete_and_goes_on_later(
    web: Any, make_links: MakeLinks, tmp_path: Path
) -> None:
    links = make_links([web.page(f"/{i}") for i in range(30)])
    child = start_child(web, links, tmp_path / "pages")
    wait_for_requests(web, 12, child)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert child.returncode != 0
    assert b"KeyboardInterrupt" in errors
    with pytest.raises(InputError, match="not sealed"):
        PartSet.open(str(tmp_path / "pages"), "pages")
    n_before = len(web.paths())
    assert start_child(web, links, tmp_path / "pages").wait(30) == 0
    assert len(PartSet.open(str(tmp_path / "pages"), "pages").table(0)) == 4
    assert len(web.paths()) - n_before <= 30 - n_before + 2, "published pages were fetched again"


def test_a_table_of_links_knows_its_members() -> None:
    ids = [f"{i:032x}" for i in (1 << 100, 1 << 120, (1 << 128) - 1)]
    table = LinkTable(ids)
    assert all(identifier in table for identifier in ids)
    assert f"{1 << 110:032x}" not in table
    assert len(table) == 3
    table.add_url("http://a.example/")
    assert table.has_url("http://a.example/")
    assert not table.has_url("http://b.example/")
    assert table.missing_from(LinkTable(ids[:1])) == 2
