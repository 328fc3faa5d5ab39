"""Pages from a Wayback Machine on loopback: its index, its replay, its failures."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from local_wayback import ARCHIVE, LocalWayback
from warcio.archiveiterator import ArchiveIterator

from webtext.base.errors import ConfigError, NetworkError
from webtext.crawl.archives import server as archive_server
from webtext.crawl.archives.wayback import original_headers

VOTED = "19700101000001"  # as in `make_links`


def records(folder: Path) -> list[tuple[Any, list[tuple[str, str]], bytes]]:
    """Return WARC headers, HTTP headers and decoded body of each record, as read by warcio."""
    found = []
    for path in sorted(folder.glob("*.warc.gz")):
        with open(path, "rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                if record.rec_type != "warcinfo":
                    body = record.content_stream().read()
                    found.append((record.rec_headers, record.http_headers.headers, body))
    return found


def test_the_capture_nearest_to_the_vote_is_stored_unchanged(wayback: LocalWayback, tmp_path: Path) -> None:
    url = wayback.web.url("/page?q=1")
    wayback.page(url, "20200101000000", "<html>late</html>")
    wayback.page(url, "19990101000000", "<html>near</html>", "X-Archive-Orig-Content-Length: 7")
    [row] = wayback.crawl([url]).values()
    assert (row["outcome"], row["source"], row["status"], row["final_url"]) == ("fetched", "wayback", 200, url)
    assert (row["captured"], row["voted"], row["requests"], row["cause"]) == (915148800, 1, 2, None)
    [(warc, http, body)] = records(tmp_path / "pages")
    assert body == b"<html>near</html>"
    assert dict(http) == {"server": "then", "Content-Type": "text/html; charset=utf-8", "Content-Length": "17"}
    assert warc.get_header("WARC-Type") == "response"
    assert warc.get_header("WARC-Target-URI") == url
    assert warc.get_header("WARC-Date") == "1999-01-01T00:00:00Z"
    assert warc.get_header("WARC-Source-URI") == f"{wayback.settings['wayback_replay']}/19990101000000id_/{url}"
    assert warc.get_header("WARC-IP-Address") is None
    [query] = wayback.asked()
    assert (query["url"], query["closest"], query["sort"], query["output"]) == ([url], [VOTED], ["closest"], ["json"])


def test_the_newest_capture_before_a_moment_can_be_chosen(wayback: LocalWayback) -> None:
    url = wayback.web.url("/page")
    for timestamp in ("19990101000000", "20100101000000", "20180101000000"):
        wayback.page(url, timestamp, timestamp)
    [row] = wayback.crawl([url], "p", archive_before="2018-01-01").values()
    assert row["captured"] == 1262304000
    assert wayback.asked()[0]["to"] == ["20171231235959"]
    [row] = wayback.crawl([url], "q", archive_before="1998-01-01").values()
    assert row["reason"] == "not_archived"


def test_an_opt_out_in_a_replayed_page_is_obeyed(wayback: LocalWayback) -> None:
    url = wayback.web.url("/page")
    wayback.page(url, "19990101000000", "<html><head><meta name=robots content=noindex></head><body>")
    [row] = wayback.crawl([url], "p").values()
    assert (row["outcome"], row["reason"]) == ("refused", "noindex_meta")


def test_redirects_are_followed_inside_the_archive(wayback: LocalWayback, tmp_path: Path) -> None:
    start, end = wayback.web.url("/start"), wayback.web.url("/end", 2)
    replay = wayback.settings["wayback_replay"]
    wayback.page(start, "19990101000000", b"", f"Location: {replay}/19990102000000id_/{end}", status="302 Found")
    wayback.page(end, "19990105000000", "<html>end</html>")
    [row] = wayback.crawl([start]).values()
    assert (row["outcome"], row["final_url"], row["redirects"]) == ("fetched", end, [start])
    assert row["captured"] == 915494400
    assert [body for *_, body in records(tmp_path / "pages")] == [b"<html>end</html>"]


def test_a_captured_redirect_to_another_link_is_left_to_that_link(wayback: LocalWayback) -> None:
    start, end = wayback.web.url("/start"), wayback.web.url("/end")
    wayback.page(start, "19990101000000", b"", f"X-Archive-Orig-Location: {end}", status="301 Moved Permanently")
    wayback.page(end, "19990105000000")
    rows = wayback.crawl([start, end])
    assert (rows[start]["outcome"], rows[start]["final_url"]) == ("linked", end)
    assert rows[end]["outcome"] == "fetched"


def test_the_archive_may_redirect_to_a_neighbouring_capture(wayback: LocalWayback) -> None:
    url, replay = wayback.web.url("/page"), wayback.settings["wayback_replay"]
    wayback.capture(url, "19990101000000")
    path = f"/web/19990101000000id_/{url}"
    wayback.web.page(path, b"", f"Location: {replay}/20010101000000id_/{url}", host=ARCHIVE, status="302 Found")
    wayback.replay(url, "20010101000000", "<html>neighbour</html>")
    [row] = wayback.crawl([url]).values()
    assert (row["outcome"], row["captured"], row["redirects"]) == ("fetched", 978307200, [])


@pytest.mark.parametrize(("n_bad", "captured"), [(1, 946_684_800), (2, 978_307_200), (3, None)])
def test_the_next_captures_are_tried_if_the_best_cannot_be_replayed(
    n_bad: int, captured: int | None, wayback: LocalWayback
) -> None:
    url, years = wayback.web.url("/page"), (1999, 2000, 2001, 2002)
    for year in years[:n_bad]:
        wayback.capture(url, f"{year}0101000000")
    for year in years[n_bad:]:
        wayback.page(url, f"{year}0101000000")
    [row] = wayback.crawl([url]).values()
    assert (row["captured"], row["requests"]) == (captured, 2 + min(n_bad, 2))
    assert row["reason"] == (None if captured else "not_archived")


def test_the_current_robots_txt_applies_to_archived_pages(wayback: LocalWayback) -> None:
    web = wayback.web
    closed, ai, open_ = web.url("/secret"), web.url("/ai", 2), web.url("/open")
    web.page("/robots.txt", "User-agent: *\nDisallow: /secret", "Content-Type: text/plain")
    web.page("/robots.txt", "User-agent: GPTBot\nDisallow: /", "Content-Type: text/plain", host=2)
    for url in (closed, ai, open_):
        wayback.page(url, "19990101000000")
    rows = wayback.crawl([closed, ai, open_])
    assert (rows[closed]["outcome"], rows[closed]["reason"]) == ("refused", "robots_disallowed")
    assert (rows[ai]["outcome"], rows[ai]["reason"]) == ("refused", "robots_disallowed_ai_training")
    assert rows[open_]["outcome"] == "fetched"
    assert [query["url"] for query in wayback.asked()] == [[open_]], (
        "the archive was asked for a page that its site's robots.txt forbids"
    )
    assert web.paths() == [], "the live site was asked for more than its robots.txt"


@pytest.mark.usefixtures("names")  # which knows none of these hosts
def test_the_archived_robots_txt_of_a_gone_site_is_obeyed_and_asked_for_once(wayback: LocalWayback) -> None:
    """One that can't be read, here because of its own opt-out, forbids everything, as on the web."""
    hosts = ("gone", "marked", "moved")
    urls = [f"http://{host}.example/{path}" for host in hosts for path in ("closed", "open")]
    for url in urls:
        wayback.page(url, "19990101000000")
    files = [f"http://{host}.example/robots.txt" for host in hosts]
    rules = "User-agent: *\nDisallow: /closed"
    wayback.page(files[0], "19980101000000", rules)
    wayback.page(files[1], "19980101000000", rules, "X-Archive-Orig-X-Robots-Tag: noindex")
    wayback.page(files[2], "19980101000000", "", "Location: /", status="302 Found")
    rows = wayback.crawl(urls, contact="https://example.org/", take_gone_sites=True)
    reasons = ["robots_disallowed", None, "robots_unreachable", "robots_unreachable", None, None]
    assert [rows[url]["reason"] for url in urls] == reasons
    [notice] = rows[urls[0]]["opt_out_evidence"]
    assert notice == {"rule": "robots_disallowed", "source": f"{files[0]} in wayback", "noticed": 883_612_800}
    assert [query["url"] for query in wayback.asked()].count([files[0]]) == 1


def test_opt_outs_that_are_not_obeyed_are_recorded(wayback: LocalWayback) -> None:
    url = wayback.web.url("/a")
    wayback.web.page("/robots.txt", "User-agent: *\nDisallow: /", "Content-Type: text/plain")
    wayback.page(url, "19990101000000", "<html>", "X-Archive-Orig-X-Robots-Tag: noai")
    obey = {"obey_robots": False, "obey_noai": False}
    [row] = wayback.crawl([url], **obey).values()
    assert (row["outcome"], row["opt_outs"]) == ("fetched", ["robots_disallowed", "noai_header"])
    [row] = wayback.crawl([url], "more", obey_robots=False).values()
    assert row["reason"] == "noai_header"


def test_headers_of_the_archive_are_dropped() -> None:
    answer = [
        (b"Server", b"archive"),
        (b"X-Robots-Tag", b"noindex"),
        (b"Content-Encoding", b"gzip"),
        (b"Content-Type", b"text/html"),
        (b"x-archive-orig-Content-Type", b"text/plain"),
        (b"X-Archive-Orig-Content-Encoding", b"br"),
        (b"X-Archive-Orig-Transfer-Encoding", b"chunked"),
        (b"X-Archive-Orig-ETag", b"e"),
    ]
    expected = [(b"content-type", b"text/plain"), (b"etag", b"e"), (b"Content-Encoding", b"gzip")]
    assert original_headers(answer) == expected


def test_a_body_that_the_archive_compresses_is_stored_compressed(wayback: LocalWayback, tmp_path: Path) -> None:
    url = wayback.web.url("/a")
    wayback.page(url, "19990101000000", gzip.compress(b"<html>packed</html>"), "Content-Encoding: gzip")
    wayback.crawl([url])
    assert [body for *_, body in records(tmp_path / "pages")] == [b"<html>packed</html>"]


BAD_INDEXES = [
    *(b"no json", b"[[1, 2], 3]", b"{}", b"[" * 100_000, b"\xff\xfe"),
    b'[["timestamp", "original"], ["x", "y"]]',
    b'[["timestamp", "original", "statuscode"], ["19990101000000", "URL", "\xc2\xb2"]]',
]


@pytest.mark.parametrize("body", BAD_INDEXES, ids=range(len(BAD_INDEXES)))
def test_an_invalid_answer_of_the_index_is_a_counted_failure(body: bytes, wayback: LocalWayback) -> None:
    url = wayback.web.url("/a")
    cdx = wayback.web.page("/index", body.replace(b"URL", url.encode()), host=ARCHIVE)
    wayback.web.answer = lambda host, path: wayback._web_answer(host, path.partition("?")[0])
    [row] = wayback.crawl([url], **{"wayback_cdx": cdx}).values()
    assert row["reason"] in ("archive_damaged", "not_archived")


def test_the_archive_s_own_answers_are_not_pages(wayback: LocalWayback) -> None:
    web = wayback.web
    urls = [web.url(path) for path in ("/error", "/blocked", "/elsewhere", "/large", "/image", "/gone")]
    for url in urls:
        wayback.capture(url, "19990101000000")
    error, blocked, elsewhere, large, image, _ = (f"/web/19990101000000id_/{url}" for url in urls)
    web.page(error, "<html>Sorry</html>", host=ARCHIVE)
    web.page(blocked, "<html>Blocked</html>", host=ARCHIVE, status="403 Forbidden")
    web.page(elsewhere, b"", "Location: http://10.0.0.1/", host=ARCHIVE, status="302 Found")
    wayback.replay(urls[3], "19990101000000", b"x" * 100_001)
    wayback.replay(urls[4], "19990101000000", b"\x89PNG\r\n\x1a\n")
    rows = wayback.crawl(urls)
    reasons = [rows[url]["reason"] for url in urls]
    assert reasons == ["not_archived"] * 3 + ["too_large", "not_text", "not_archived"]


def test_another_spelling_of_the_url_is_taken_without_a_better_one(wayback: LocalWayback) -> None:
    """A trailing slash has the same key. If the other spelling is itself a link, that link has the page."""
    url, other = wayback.web.url("/a"), wayback.web.url("/a/")
    wayback.capture(url, "19990101000000", original=other)
    wayback.replay(other, "19990101000000", "<html>slash</html>")
    [row] = wayback.crawl([url], "one").values()
    assert (row["outcome"], row["final_url"]) == ("fetched", other)
    wayback.capture(other, "19990101000000")
    rows = wayback.crawl([url, other], "two")
    assert (rows[url]["outcome"], rows[url]["final_url"]) == ("linked", other)
    assert rows[other]["outcome"] == "fetched"


def test_a_busy_archive_is_retried_more_slowly_and_then_left_alone(
    wayback: LocalWayback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_server, "RETRY_SECONDS", 0.005)
    monkeypatch.setattr(archive_server, "MAX_RETRY_SECONDS", 0.5)
    url = wayback.web.url("/a")
    wayback.page(url, "19990101000000")
    n_busy, asks_for = 2, b""

    def answer(host: str, path: str) -> Any:
        nonlocal n_busy
        if path.startswith("/cdx") and n_busy:
            n_busy -= 1
            return b"HTTP/1.1 429 Too Many Requests\r\n%sContent-Length: 0\r\n\r\n" % asks_for
        return wayback._answer(host, path)

    wayback.web.answer = answer
    [row] = wayback.crawl([url]).values()
    assert (row["outcome"], row["requests"]) == ("fetched", 4)
    n_busy = 1_000_000
    urls = [wayback.web.url(f"/{i}") for i in range(10)]
    with pytest.raises(NetworkError, match=r"does not answer: archive_unavailable: HTTP status 429\n.*same command"):
        wayback.crawl(urls, "more")
    n_busy = 0
    rows = wayback.crawl(urls, "more")
    reasons = [row["reason"] for row in rows.values()]
    assert reasons.count("archive_unavailable") < archive_server.MAX_LOST
    assert reasons.count("archive_unavailable") + reasons.count("not_archived") == 10
    n_busy, asks_for = 1, b"Retry-After: 4000\r\n"
    for _ in range(2):  # the second run asks nothing
        with pytest.raises(NetworkError, match=r"asks for a pause of (4,000|3,9\d\d) s\n.*same command"):
            wayback.crawl([url], "long")
    assert n_busy == 0


def test_sources_are_tried_in_order_and_the_row_names_the_last(wayback: LocalWayback, make_links: Any) -> None:
    web = wayback.web
    archived, living, both, neither = (web.url(path) for path in ("/archived", "/living", "/both", "/neither"))
    for url in (archived, both):
        wayback.page(url, "19990101000000", "<html>archived</html>")
    for path in ("/living", "/both"):
        web.page(path, "<html>living</html>")
    links = make_links([archived, living, both, neither])
    first = wayback.crawl(links, "first", **{"sources": ("wayback,web",)})
    assert [first[url]["source"] for url in (archived, living, both, neither)] == ["wayback", "web", "wayback", "web"]
    assert (first[living]["cause"], first[living]["requests"]) == ("wayback: not_archived", 2)
    assert (first[neither]["reason"], first[neither]["cause"]) == ("http_404", "wayback: not_archived")
    second = wayback.crawl(links, "second", **{"sources": ("web", "wayback")})
    assert [second[url]["source"] for url in (archived, living, both, neither)] == ["wayback", "web", "web", "wayback"]
    assert (second[neither]["reason"], second[neither]["cause"]) == ("not_archived", "web: http_404")
    assert second[archived]["cause"] == "web: http_404"


def test_an_opt_out_applies_to_every_source(wayback: LocalWayback) -> None:
    url = wayback.web.page("/a", "x", "X-Robots-Tag: noai")
    wayback.page(url, "19990101000000")
    [row] = wayback.crawl([url], "p", **{"sources": ("web", "wayback")}).values()
    assert (row["reason"], row["source"]) == ("noai_header", "web")
    assert wayback.asked() == []


def test_the_archive_s_url_may_be_spelled_in_any_way(wayback: LocalWayback) -> None:
    url = wayback.web.url("/a")
    wayback.page(url, "19990101000000")
    settings = {name: value.replace("http://", "HTTP://") for name, value in wayback.settings.items() if "way" in name}
    with pytest.raises(ConfigError, match="expected an http"):
        wayback.crawl([url], "no", **settings)
    settings = {"wayback_replay": wayback.settings["wayback_replay"].replace("127.0.0.8", "127.8") + "/"}
    [row] = wayback.crawl([url], **settings).values()
    assert row["outcome"] == "fetched"
    with pytest.raises(ConfigError, match="expected URLs with a host"):
        wayback.crawl([url], "bad", **{"wayback_cdx": "http://"})


def test_a_forbidden_archive_is_never_asked(wayback: LocalWayback) -> None:
    settings = {"wayback_cdx": "http://10.0.0.1/cdx"}
    with pytest.raises(NetworkError, match="are not allowed: contact_missing"):
        wayback.crawl([wayback.web.url("/a")], **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sources": ("wayback", "wbe")}, "unknown source 'wbe'\ndid you mean 'web'"),
        ({"sources": ("web,web",)}, "each once"),
        ({"sources": ("common-crawl",)}, "--from common-crawl and --cc-index go together"),
        ({"warc": ("a.warc",)}, "--from warc and --warc go together"),
        ({"archive_before": "yesterday"}, "archive_before = 'yesterday': not a date"),
        ({"max_pages_per_host": 0}, "max_pages_per_host = 0: expected at least 1"),
        ({"wayback_cdx": "ftp://a"}, r"wayback_cdx = 'ftp://a': expected an http\(s\) URL"),
        ({"sources": ("common-crawl",), "cc_index": ("https://a/b",)}, "is an HTTP URL"),
    ],
)
def test_inconsistent_settings_are_rejected(settings: dict[str, Any], message: str, settings_for: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_for(**settings)


def test_real_answers_of_the_wayback_machine_are_parsed(
    shared_data: Path, wayback: LocalWayback, tmp_path: Path, names: Any
) -> None:
    """The answers of the index and the replay for commoncrawl.org in 2008, as recorded by cdx_toolkit."""
    answers = [
        json.loads(line) for line in (shared_data / "crawl/cc/cdxt_test_warc_prefix_2.jsonl").read_text().splitlines()
    ]
    index, replay = (next(a for a in answers if part in a["url"]) for part in ("/cdx/", "id_/"))

    names |= {name: ["127.0.0.1"] for name in ("commoncrawl.org", "www.commoncrawl.org")}
    body = replay["response_text"].encode()
    kept = ("x-archive-orig-", "memento-datetime", "content-type", "x-robots-tag")
    headers = "".join(f"{k}: {v}\r\n" for k, v in replay["response_headers"].items() if k.lower().startswith(kept))

    def answer(host: str, path: str) -> bytes:
        if path.startswith("/cdx"):
            head, data = "", index["response_text"].encode()
        elif path.startswith("/web/20080328041443id_/http://www.commoncrawl.org:80/"):
            head, data = headers, body
        else:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        return f"HTTP/1.1 200 OK\r\n{head}Content-Length: {len(data)}\r\n\r\n".encode() + data

    wayback.web.answer = answer
    link = "http://commoncrawl.org/"
    settings = {"contact": "https://example.org/", "allow_address": ("127.0.0.0/8",)}
    settings |= {"obey_robots": False, "obey_ai_robots": False, "obey_content_signal": False}
    [row] = wayback.crawl([link], **settings).values()
    assert (row["outcome"], row["final_url"], row["captured"]) == ("fetched", "http://www.commoncrawl.org/", 1206677683)
    [(_, http, stored)] = records(tmp_path / "pages")
    assert stored == body
    assert dict(http)["server"] == "Apache"


def test_a_redirect_to_another_spelling_of_itself_is_followed_once(wayback: LocalWayback) -> None:
    """The index returns the same list for both spellings, with only the redirect in it."""
    link, slash = wayback.web.url("/a"), wayback.web.url("/a/")
    wayback.page(link, "19990101000000", "", f"X-Archive-Orig-Location: {slash}", status="301 Moved")
    wayback.capture(slash, "19990101000000", "301", original=link)
    [row] = wayback.crawl([link]).values()
    assert (row["reason"], row["redirects"], row["requests"]) == ("not_archived", [link], 3)
